"""check_family passes what keeps the contract, and names what breaks it."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from sept_offline.collect import FamilyWarning, check_family, collect_dataset
from sept_offline.errors import FamilyError
from sept_offline.family import Family, load_family
from simulators.families import FAMILIES

OWN = Path(__file__).parents[1] / "own_family" / "cartpole_family.py"
STEPS = 12


class Slide(gymnasium.Env[Any, Any]):
    """A point that moves by a hidden amount to the left or to the right."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (1,), np.float32)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, amount: float = 1.0) -> None:
        self.amount = amount
        self.place = 0.0

    def noise(self) -> float:
        return float(self.np_random.normal())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(self.np_random.normal())
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += self.amount * (1.0 if action else -1.0) + 0.01 * self.noise()
        return self.seen(), self.pay(), False, False, {}

    def seen(self) -> Any:
        return np.array([np.clip(self.place, -100, 100)], dtype=np.float32)

    def pay(self) -> float:
        return -abs(self.place)


class Unseeded(Slide):
    rng = np.random.default_rng()

    def noise(self) -> float:
        return float(self.rng.normal())


class Telling(Slide):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:4], {"amount": self.amount}


class StepCounting(Slide):
    """Knows how many steps it has taken."""

    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return super().step(action)


class TellingAtTheEnd(StepCounting):
    """Its only info that leaks is that of the last step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *_ = super().step(action)
        ended = self.steps == 5
        return observation, reward, ended, False, {"amount": self.amount} if ended else {}


class Unpaid(Slide):
    def pay(self) -> float:
        return float("nan") if self.place > 0 else 0.0


class Unbounded(Slide):
    action_space = gymnasium.spaces.Box(-np.inf, 1.0, (1,), np.float32)


class Several(Slide):
    action_space = gymnasium.spaces.MultiDiscrete([2, 2])


class Overpaid(Slide):
    def pay(self) -> float:
        return super().pay() + 1


class Globals(Slide):
    """Writes its physics where every copy reads it, as LunarLander of CARL does."""

    shared: ClassVar[dict[str, float]] = {}

    def __init__(self, amount: float = 1.0) -> None:
        super().__init__(amount)
        self.shared["amount"] = amount

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.shared["amount"] = self.amount
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += (self.shared["amount"] - self.amount) * (1.0 if action else -1.0)
        return super().step(action)


class TwoColumns(Slide):
    """A second column that the subclass fills."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)

    def second(self) -> float:
        raise NotImplementedError

    def seen(self) -> Any:
        return np.append(super().seen(), np.float32(self.second()))


class Shown(TwoColumns):
    def second(self) -> float:
        return self.amount


class Labelled(TwoColumns):
    def second(self) -> float:
        return 3.0 - self.amount**2


class Unlabelled(TwoColumns):
    """Constant everywhere, so that it says nothing."""

    def second(self) -> float:
        return 7.0


class Nested(Slide):
    observation_space: Any = gymnasium.spaces.Dict(
        obs=Slide.observation_space, context=Slide.observation_space
    )


class FromOne(Slide):
    action_space = gymnasium.spaces.Discrete(2, start=1)


class PaidInArrays(Slide):
    def pay(self) -> Any:
        return np.array([0.5])


class Failing(Slide):
    steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.amount == 2.0 and self.steps == 4:
            raise ZeroDivisionError("no\nfriction")
        return super().step(action)


class Leaving(Slide):
    """Ends the program in one instance."""

    steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.amount == 2.0 and self.steps == 4:
            sys.exit(7)
        return super().step(action)


class LeavingInTheChecker(Slide):
    """Ends the program under the seed of Gymnasium's checker alone."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed == 123:
            sys.exit()
        return super().reset(seed=seed)


class FailingAtReset(Slide):
    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.amount == 2.0:
            raise KeyError("terrain")
        return super().reset(seed=seed)


class OldStyle(Slide):
    def step(self, action: Any) -> Any:
        found = super().step(action)
        return found[0], found[1], found[2], found[4]


class Wordy(Slide):
    def seen(self) -> Any:
        return {"place": self.place}


class Silent(Slide):
    """No info, not even an empty one."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], None


class TwoRows(Slide):
    """Rows where one observation belongs, but for the first."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, *others = super().step(action)
        return seen[None], *others  # type: ignore[return-value]


class Doubled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that leaves the observation space of what it wraps."""

    def __init__(self, amount: float) -> None:
        super().__init__(Slide(amount))

    def reset(self, **options: Any) -> Any:
        seen, info = self.env.reset(**options)
        return seen + 5000, info


class Batch(SyncVectorEnv):
    """A batch of slides, altered by what a subclass does to its answers."""

    def __init__(self, hiddens: Sequence[Any], limit: int) -> None:
        super().__init__([lambda h=h: TimeLimit(Slide(**h), limit) for h in hiddens])


class Flat(Batch):
    def step(self, actions: Any) -> Any:
        seen, *others = super().step(actions)
        return seen[:, 0], *others


class OldBatch(Batch):
    def step(self, actions: Any) -> Any:
        return super().step(actions)[:4]


class Counting(Batch):
    """Ends as numbers, which are accepted."""

    def step(self, actions: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(actions)
        return seen, reward, terminated.astype(np.int64), truncated.tolist(), info


class Changing(Batch):
    """Returns one array again and again, and changes the actions that it is given."""

    buffer: Any = None

    def reset(self, **options: Any) -> Any:
        self.buffer, info = super().reset(**options)
        return self.buffer, info

    def step(self, actions: Any) -> Any:
        seen, *others = super().step(actions.copy())
        self.buffer[:] = seen
        actions[:] = 0
        return self.buffer, *others


class Shrinking(StepCounting, TwoColumns):
    """Loses a column after the fourth step."""

    def second(self) -> float:
        return 0.0

    def seen(self) -> Any:
        return super().seen()[: 1 if self.steps > 4 else 2]


class EndingInArrays(Slide):
    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, np.array([False, False]), truncated, info


class BlindAtReset(TwoColumns):
    """Its first observation is not finite, but only under the seed of Gymnasium's checker."""

    seeds: tuple[int, ...] = (123,)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        seen, info = super().reset(seed=seed)
        if seed in self.seeds:
            seen[1] = np.nan
        return seen, info

    def second(self) -> float:
        return 0.0


class Blind(BlindAtReset):
    seeds = (0,)


class ShrinkingBatch(Batch):
    """Its rows lose their only column."""

    def step(self, actions: Any) -> Any:
        seen, *others = super().step(actions)
        return seen[:, :0], *others


class PaidInWords(Batch):
    """Rewards that are no numbers."""

    def step(self, actions: Any) -> Any:
        observation, reward, *others = super().step(actions)
        return observation, reward.astype(str).astype(object) + " euros", *others


class Bounded(Slide):
    """Sees as far as it may move, which depends on the hidden amount."""

    def __init__(self, amount: float = 1.0) -> None:
        super().__init__(amount)
        self.observation_space = gymnasium.spaces.Box(-amount - 99, amount + 99, (1,), np.float32)


class Stronger(Slide):
    """Has more actions if the hidden amount is larger."""

    def __init__(self, amount: float = 1.0) -> None:
        super().__init__(amount)
        self.action_space = gymnasium.spaces.Discrete(1 + int(amount))


class Longer(Bounded):
    """Declares more columns if the hidden amount is larger."""

    def __init__(self, amount: float = 1.0) -> None:
        super().__init__(amount)
        self.observation_space = gymnasium.spaces.Box(-99, 99, (int(amount),), np.float32)


class Empty(Slide):
    """Observes nothing."""

    observation_space = gymnasium.spaces.Box(-1, 1, (0,), np.float32)

    def seen(self) -> Any:
        return np.empty(0, dtype=np.float32)


class NeverClosed(Slide):
    def close(self) -> None:
        raise RuntimeError("the window is gone")


class NotPaid(Slide):
    def pay(self) -> Any:
        return None


def make_some(hidden: Mapping[str, float]) -> Slide:
    if hidden["amount"] == 2.0:
        raise OSError("no licence")
    return Slide(**hidden)


ONE_FOR_ALL = Slide()


def make_the_same(hidden: Mapping[str, float]) -> Slide:
    ONE_FOR_ALL.amount = hidden["amount"]
    return ONE_FOR_ALL


def maker(kind: Callable[..., Any] = Slide) -> Callable[[Mapping[str, float]], Any]:
    return lambda hidden: kind(**hidden)


def batch(kind: Callable[..., Any] = Slide) -> Callable[[Sequence[Any], int], Any]:
    def make(hiddens: Sequence[Any], limit: int) -> Any:
        return SyncVectorEnv([lambda h=h: TimeLimit(kind(**h), limit) for h in hiddens])

    return make


SOUND = Family(
    name="slide",
    make=maker(),
    splits={
        "train": [{"amount": 1.0}, {"amount": 2.0}],
        "validation": [{"amount": 1.5}],
        "test": [{"amount": 1.2}],
    },
    train_steps=STEPS,
    test_steps=STEPS,
    probe_steps=2,
    latent_dim=1,
)

BROKEN = {
    "make ignores hidden": ({"make": lambda hidden: Slide()}, "hidden parameters have no effect"),
    "ends the program": ({"make": maker(LeavingInTheChecker)}, "the environment ended the program"),
    "unseeded": ({"make": maker(Unseeded)}, "np_random|seed"),
    "info leaks": ({"make": maker(Telling)}, "info contains the hidden parameter 'amount'"),
    "last info leaks": ({"make": maker(TellingAtTheEnd)}, "info contains the hidden parameter"),
    "own limit": ({"make": lambda hidden: TimeLimit(Slide(**hidden), 7)}, "time limit of 7"),
    "vec pays otherwise": ({"make_vec": batch(Overpaid)}, "rewards of row 0 of make_vec"),
    "vec ignores hidden": (
        {"make_vec": lambda hiddens, limit: batch()([{}] * len(hiddens), limit)},
        "observations of row 1 of make_vec",
    ),
    "vec without limit": (
        {"make_vec": lambda hiddens, _: SyncVectorEnv([lambda h=h: Slide(**h) for h in hiddens])},
        "make_vec must apply max_episode_steps",
    ),
    "NaN reward": ({"make": maker(Unpaid)}, "finite|NaN|nan"),
    "several actions": ({"make": maker(Several)}, "only Discrete and a flat Box of floats are"),
    "unbounded actions": ({"make": maker(Unbounded)}, "from -inf to 1.0; expected finite bounds"),
    "globals": (
        {"make": maker(Globals)},
        r"instance train-0 .* stepped in turn; environments probably share state",
    ),
    "one object": ({"make": make_the_same}, "share state"),
    "column shows hidden": ({"make": maker(Shown)}, "column 1 .* hidden parameter 'amount'"),
    "named column": (
        {"make": maker(Shown), "observation_names": ("place", "push")},
        r"column 1 \('push'\) of the observation",
    ),
    "dict": ({"make": maker(Nested)}, "a Dict of .*without entries that contain hidden"),
    "actions from 1": ({"make": maker(FromOne)}, r"declare Discrete\(2\).*add 1 in step\(\)"),
    "reward of shape (1,)": (
        {"make": maker(PaidInArrays)},
        r"instance train-0: step 0 .* shape \(1,\); return one number",
    ),
    "text as hidden": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}, {"amount": "ice"}]}},
        "instance train-1: the hidden parameter 'amount' is 'ice'; .*0 or 1 each",
    ),
    "make fails": ({"make": make_some}, r"train-1: make\(\) raised OSError: no licence$"),
    "step fails": (
        {"make": maker(Failing)},
        "train-1: step 3 raised ZeroDivisionError: no friction$",
    ),
    "reset fails": ({"make": maker(FailingAtReset)}, r"train-1: reset\(\) raised KeyError"),
    "old API": ({"make": maker(OldStyle)}, "train-0: step 0 returned 4 values"),
    "observation in words": ({"make": maker(Wordy)}, "must be a 1-D numeric array"),
    "no reward": ({"make": maker(NotPaid)}, "step 0 returned the reward None"),
    "no environment": ({"make": lambda hidden: object()}, r"make\(\) returned a object"),
    "no info": ({"make": maker(Silent)}, "where info is a dict"),
    "rows of one observation": ({"make": maker(TwoRows)}, "must be a 1-D numeric array"),
    "shorter observation": (
        {"make": maker(Shrinking)},
        r"train-0: step 4 returned an observation of 1 numbers, but observation_space has",
    ),
    "array of flags": (
        {"make": maker(EndingInArrays)},
        r"train-0: step 0 returned terminated of shape \(2,\); return True or False",
    ),
    "NaN at reset": ({"make": maker(Blind)}, r"reset\(\) gave nan in column 1 of the observation"),
    "NaN under another seed": (
        {"make": maker(BlindAtReset), "observation_names": ("place", "wind")},
        r"reset\(\) gave nan in column 1 \('wind'\) of the observation",
    ),
    "shorter rows": ({"make_vec": ShrinkingBatch}, "step 0 .* observations of 0 numbers each"),
    "wrapper leaves the space": ({"make": maker(Doubled)}, "environment checker says"),
    "flat batch": ({"make_vec": Flat}, r"observations of shape \(4,\).*shape \(4, columns\)"),
    "old batch": ({"make_vec": OldBatch}, "step 0 of the batch returned 4 values"),
    "no batch": ({"make_vec": lambda hiddens, limit: None}, "return a gymnasium.vector.VectorEnv"),
    "names of columns": ({"observation_names": ("a", "b")}, "names 2 observed columns but .* 1"),
    "infinite hidden": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}, {"amount": np.nan}]}},
        "'amount' is nan; hidden parameters must be finite",
    ),
    "hidden in a list": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}, [2.0]]}},
        "not a dict of hidden parameters by name",
    ),
    "no splits": ({"splits": None}, "splits must be a dict"),
    "no list of instances": ({"splits": {**SOUND.splits, "train": None}}, "splits must be a dict"),
    "instances to be read once": (
        {"splits": {**SOUND.splits, "train": ({"amount": each} for each in (1.0, 2.0))}},
        "splits must be a dict of lists",
    ),
    "hidden beyond floats": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}, {"amount": 10**400}]}},
        "instance train-1: the hidden parameter 'amount' is 1000",
    ),
    "other actions": (
        {
            "make": maker(Stronger),
            "splits": {**SOUND.splits, "train": [{"amount": 3}, {"amount": 1}]},
        },
        r"train-0 takes Discrete\(4\), but instance train-1 Discrete\(2\); all instances must",
    ),
    "nothing observed": ({"make": maker(Empty)}, "only a flat Box is supported"),
    "close fails": ({"make": maker(NeverClosed)}, r"close\(\) raised RuntimeError: the window is"),
    "rewards in words": (
        {"make_vec": PaidInWords},
        "step 0 of the batch, rewards raised ValueError",
    ),
    "half a step": ({"train_steps": 12.0}, "train_steps is 12.0; expected a whole number"),
    "no test split": (
        {"splits": {name: SOUND.splits[name] for name in ("train", "validation")}},
        "split 'test' is missing",
    ),
    "one training instance": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}]}},
        "one instance",
    ),
    "the same twice": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}] * 2}},
        "the same hidden parameters",
    ),
    "names differ": (
        {"splits": {**SOUND.splits, "train": [{"amount": 1.0}, {"height": 1.0}]}},
        "name different parameters",
    ),
    "probe too long": ({"probe_steps": STEPS}, "leaves no step for control"),
    "no probe": ({"probe_steps": 0}, "probe_steps is 0"),
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_shipped_families_pass(name: str) -> None:
    if name.endswith("-params"):
        pytest.importorskip("mujoco", reason="MuJoCo is not installed: sept-offline[mujoco]")
    check_family(name, episodes=1)


def test_a_sound_family_passes() -> None:
    check_family(SOUND)
    check_family(dataclasses.replace(SOUND, make_vec=batch()))


def test_a_batch_may_reuse_its_arrays(tmp_path: Path) -> None:
    """What is logged does not depend on whose memory the environment writes to."""
    hashes = set()
    for number, make_vec in enumerate((None, Batch, Counting, Changing)):
        family = dataclasses.replace(SOUND, make_vec=make_vec)
        check_family(family)
        out = tmp_path / f"{number}.h5"
        with collect_dataset(family, out, overrides={"episodes": 4}) as data:
            hashes.add(data.content_hash)
    assert len(hashes) == 1


def test_hidden_parameters_of_numpy_are_plain_numbers(tmp_path: Path) -> None:
    train = [{"amount": np.int64(1)}, {"amount": np.float32(2)}, {"amount": np.array(3.0)}]
    family = dataclasses.replace(SOUND, splits={**SOUND.splits, "train": train})
    assert [type(one["amount"]) for one in family.instances("train")] == [int, float, float]
    collect_dataset(family, tmp_path / "x.h5", overrides={"episodes": 3}).close()


def test_hidden_parameters_may_be_exact_numbers(tmp_path: Path) -> None:
    train = [{"amount": Fraction(1, 2)}, {"amount": Decimal("1.5")}]
    family = dataclasses.replace(SOUND, splits={**SOUND.splits, "train": train})
    data = collect_dataset(family, tmp_path / "x.h5", overrides={"episodes": 3})
    assert data.hidden is not None and data.hidden.values[:, 0].tolist() == [0.5, 1.5]


def test_bounds_of_observations_may_depend_on_the_instance(tmp_path: Path) -> None:
    family = dataclasses.replace(SOUND, make=maker(Bounded))
    check_family(family)
    logged = [
        collect_dataset(each, tmp_path / name, overrides={"episodes": 4}).content_hash
        for each, name in ((family, "x.h5"), (SOUND, "y.h5"))
    ]
    assert logged[0] == logged[1]


def test_the_columns_of_observations_may_not(tmp_path: Path) -> None:
    family = dataclasses.replace(SOUND, make=maker(Longer))
    with pytest.raises(FamilyError, match=r"observes Box.* all instances must share"):
        collect_dataset(family, tmp_path / "x.h5", overrides={"episodes": 4})


@pytest.mark.parametrize("name", [5, "", None])
def test_a_family_needs_a_name(name: Any) -> None:
    with pytest.raises(FamilyError, match="name must be a string"):
        load_family(dataclasses.replace(SOUND, name=name))


def test_the_cartpole_of_the_docs_passes() -> None:
    check_family(own_family())


@pytest.mark.parametrize("case", BROKEN)
def test_the_fault_of_a_broken_family_is_named(case: str) -> None:
    change, cause = BROKEN[case]
    with pytest.raises(FamilyError, match=cause) as caught:
        check_family(dataclasses.replace(SOUND, **change))
    assert "slide" in str(caught.value)


def test_a_column_that_names_the_instance_gives_a_warning() -> None:
    with pytest.warns(FamilyWarning, match="column 1 of the observation is constant within"):
        check_family(dataclasses.replace(SOUND, make=maker(Labelled)))


@pytest.mark.filterwarnings("error::sept_offline.collect.FamilyWarning")
def test_a_column_that_never_changes_gives_no_warning() -> None:
    check_family(dataclasses.replace(SOUND, make=maker(Unlabelled)))


def test_copies_may_end_at_different_steps() -> None:
    class Ending(Slide):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, abs(self.place) > 2 * self.amount, False, info

    check_family(dataclasses.replace(SOUND, make=maker(Ending)))


def test_an_error_keeps_its_cause() -> None:
    with pytest.raises(FamilyError) as caught:
        check_family(dataclasses.replace(SOUND, make=maker(Failing)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (Failing, "instance train-1: step 3 raised ZeroDivisionError"),
        (FailingAtReset, r"instance train-1: reset\(\) raised KeyError"),
        (Leaving, "instance train-1: step 3 raised SystemExit: 7"),
        (PaidInArrays, r"step 0 returned a reward of shape \(1,\)"),
        (OldStyle, "step 0 returned 4 values"),
        (Shrinking, "instance train-0: step 4 returned an observation of 1 numbers"),
        (EndingInArrays, r"instance train-0: step 0 returned terminated of shape \(2,\)"),
        (TwoRows, "instance train-0: step 0 .* must be a 1-D numeric array"),
        (FromOne, "from 1"),
    ],
)
def test_collect_names_the_instance_and_the_step(
    kind: type[Slide], cause: str, tmp_path: Path
) -> None:
    family = dataclasses.replace(SOUND, make=maker(kind))
    with pytest.raises(FamilyError, match=cause):
        collect_dataset(family, tmp_path / "x.h5", overrides={"episodes": 4})


def test_a_batch_that_fails_is_named(tmp_path: Path) -> None:
    def broken(hiddens: Sequence[Any], limit: int) -> Any:
        raise TypeError("no such limit")

    family = dataclasses.replace(SOUND, make_vec=broken)
    with pytest.raises(FamilyError, match=r"make_vec\(\) raised TypeError: no such limit"):
        collect_dataset(family, tmp_path / "x.h5", overrides={"episodes": 4})


def test_a_limit_that_random_play_never_reaches_is_found() -> None:
    family = own_family()
    limited = dataclasses.replace(family, make=lambda hidden: TimeLimit(family.make(hidden), 99))
    with pytest.raises(FamilyError, match="time limit of 99 steps"):
        check_family(limited)


def test_a_name_that_is_no_family_is_refused() -> None:
    with pytest.raises(FamilyError, match="did you mean 'acrobot'"):
        load_family("acrobat")
    with pytest.raises(FamilyError, match=r"not a sept_offline\.Family"):
        load_family("numpy:array")
    with pytest.raises(FamilyError, match="Cannot load the family"):
        load_family("nowhere.at_all:family")


def own_family() -> Family:
    spec = importlib.util.spec_from_file_location("cartpole_family", OWN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    family: Family = module.cartpole
    return family

"""check_family passes what keeps the contract, and names what breaks it."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from sept_offline.collect import check_family
from sept_offline.errors import FamilyError
from sept_offline.family import Family, load_family

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


class TellingAtTheEnd(Slide):
    """Its only info that leaks is that of the last step."""

    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ended = self.steps == 5
        info = {"amount": self.amount} if ended else {}
        return *super().step(action)[:2], ended, False, info


class Unpaid(Slide):
    def pay(self) -> float:
        return float("nan") if self.place > 0 else 0.0


class Continuous(Slide):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


class Overpaid(Slide):
    def pay(self) -> float:
        return super().pay() + 1


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
    "make ignores hidden": ({"make": lambda hidden: Slide()}, "hidden parameters change nothing"),
    "unseeded": ({"make": maker(Unseeded)}, "np_random|seed"),
    "info leaks": ({"make": maker(Telling)}, "info holds the hidden parameter 'amount'"),
    "last info leaks": ({"make": maker(TellingAtTheEnd)}, "info holds the hidden parameter"),
    "own limit": ({"make": lambda hidden: TimeLimit(Slide(**hidden), 7)}, "time limit of 7"),
    "vec pays otherwise": ({"make_vec": batch(Overpaid)}, "rewards of row 0 of make_vec"),
    "vec ignores hidden": (
        {"make_vec": lambda hiddens, limit: batch()([{}] * len(hiddens), limit)},
        "observations of row 1 of make_vec",
    ),
    "NaN reward": ({"make": maker(Unpaid)}, "finite|NaN|nan"),
    "continuous": ({"make": maker(Continuous)}, "only Discrete is supported"),
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


@pytest.mark.parametrize("name", ["navigation2d", "navigation2d-switch", "acrobot", "hiv"])
def test_shipped_families_pass(name: str) -> None:
    check_family(name, episodes=1)


def test_a_sound_family_passes() -> None:
    check_family(SOUND)
    check_family(dataclasses.replace(SOUND, make_vec=batch()))


def test_the_cartpole_of_the_docs_passes() -> None:
    check_family(own_family())


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_family_is_told_why(case: str) -> None:
    change, cause = BROKEN[case]
    with pytest.raises(FamilyError, match=cause) as caught:
        check_family(dataclasses.replace(SOUND, **change))
    assert "slide" in str(caught.value)


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

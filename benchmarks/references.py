"""The random and the best known return of every instance of the shipped families, as data.

Run: python benchmarks/references.py [family:split ...] [--attempts 2]. One core, some seconds an
instance. What is finished is kept in simulators/data/references/<family>.json and skipped the next
time.

random: the mean over many uniform episodes. reference: the best of the constant actions, of an
online DoubleDQN trained on that instance alone (all networks kept along its training compete, each
acting greedily) and, where every episode starts alike, of its best training episode, repeated
action by action. Where starts differ, the winner is chosen on some and measured on others. Families
with boxes of actions train nothing: the last snapshots of their shipped experts, which know the
hidden parameters, compete; the point robot's best moves are known exactly.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Policy
from sept_offline.collect import load_expert
from sept_offline.collect.behaviour import Behaviour, Constant, Exploring, Snapshot, Uniform
from sept_offline.collect.expert import ExpertStage
from sept_offline.collect.recipe import ExpertConfig, load_recipe
from sept_offline.collect.rollout import Start, run_shard
from sept_offline.environments import spaces
from sept_offline.errors import FamilyError
from sept_offline.family import Family, Hidden, load_family
from sept_offline.files import write_text
from sept_offline.seals import read_json
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

_HERE = Path(__file__).resolve().parent
TARGET = _HERE.parent / "simulators" / "data" / "references"
SPLITS = ("test", "validation", "train")
ORDER = (
    "navigation2d:test",
    "navigation2d:validation",
    "navigation2d:train",
    "navigation2d-switch:test",
    "navigation2d-switch:validation",
    "navigation2d-switch:train",
    "hiv:test",
    "hiv:validation",
    "acrobot:test",
    "acrobot:validation",
    "hiv:paper",
    "hiv:train",
    "acrobot:train",
    "acrobot:test-independent",
    *(
        f"{name}:{split}"
        for name in ("pendulum", "point-robot-wind", "hopper-params")
        for split in SPLITS
    ),
)
SEED = 0
RANDOM_EPISODES = 400
CHOOSING_STARTS = 64
MEASURING_STARTS = 64
EXPERT: dict[str, dict[str, int]] = {
    "navigation2d": {"environments": 32, "rounds": 50},
    "navigation2d-switch": {"environments": 32, "rounds": 50},
    "acrobot": {"environments": 16, "rounds": 12},
    "hiv": {"environments": 16, "rounds": 20},
}
HIDDEN_LAYERS = (128, 128)
"""Smaller than a conditioned expert's: one instance needs less, and there are many of them."""
AVERAGE_DECAY = 0.99
"""Shorter too: so few updates leave a longer average of the weights behind the learner."""


class Recorder:
    """A family's `make_vec` that remembers the best whole episode any of its batches has seen."""

    def __init__(self, family: Family) -> None:
        if family.make_vec is None:
            raise FamilyError(f"Family {family.name!r} has no make_vec to record.")
        self._make = family.make_vec
        self.best = -np.inf
        self.actions: list[int] = []

    def __call__(self, hiddens: Sequence[Hidden], limit: int) -> Any:
        """A batch whose steps are recorded."""
        env = self._make(hiddens, limit)
        step, taken, earned = env.step, [], []
        going = np.ones(len(hiddens), dtype=bool)

        def recorded(actions: NDArray[Any]) -> Any:
            nonlocal going
            outcome = step(actions)
            taken.append(np.array(actions))
            earned.append(np.where(going, outcome[1], 0.0))
            ended = going & (outcome[2] | outcome[3])
            if ended.any():
                self._compare(np.array(taken), np.array(earned), ended)
            going = going & ~ended
            return outcome

        # Set on the object: the class of a user's batch is not ours to derive from.
        setattr(env, "step", recorded)  # noqa: B010
        return env

    def _compare(
        self, taken: NDArray[Any], earned: NDArray[np.float64], ended: NDArray[np.bool_]
    ) -> None:
        returns = np.where(ended, earned.sum(axis=0), -np.inf)
        row = int(returns.argmax())
        if returns[row] > self.best:
            self.best, self.actions = float(returns[row]), taken[:, row].tolist()


def returns_of(
    family: Family, hidden: Hidden, behaviours: Sequence[Behaviour], starts: int, name: str
) -> NDArray[np.float64]:
    """[len(behaviours), starts], every behaviour from the same starts, at the test limit."""
    _, space = spaces(family)
    shape = (family.test_steps, space.draws)
    planned = [
        Start(
            hidden=hidden,
            behaviour=behaviour,
            progress=0.5,
            reset_seed=integer(SEED, "references", name, start, "reset"),
            draws=generator(SEED, "references", name, start, "actions").random(shape),
        )
        for behaviour in behaviours
        for start in range(starts)
    ]
    logged = run_shard(family, space, planned, family.test_steps, 0)
    returns = np.array([episode.rewards.sum() for episode in logged])
    return returns.reshape(len(behaviours), starts)


def repeated(family: Family, hidden: Hidden, actions: Sequence[int]) -> float:
    """The return of `actions`, taken one after the other in a single environment."""
    env = family.make(hidden)
    env.reset(seed=0)
    total = 0.0
    for action in actions[: family.test_steps]:
        _, reward, terminated, _, _ = env.step(action)
        total += float(reward)
        if terminated:
            break
    env.close()  # type: ignore[no-untyped-call]
    return total


def starts_alike(family: Family, hidden: Hidden) -> bool:
    """Whether every episode begins in one and the same state."""
    env = family.make(hidden)
    first, second = (env.reset(seed=seed)[0] for seed in (0, 1))
    env.close()  # type: ignore[no-untyped-call]
    return bool(np.array_equal(first, second))


def expert_config(family: Family, attempt: int) -> ExpertConfig:
    """The recipe's expert with less to do; every attempt trains twice as long as the last."""
    expert = load_recipe(family).expert
    smaller = EXPERT[family.name]
    rounds = smaller["rounds"] * 2**attempt
    control = dataclasses.replace(expert.control, hidden=HIDDEN_LAYERS, average_decay=AVERAGE_DECAY)
    return dataclasses.replace(
        expert, control=control, epsilon_end=0.05, **(smaller | {"rounds": rounds})
    )


@dataclasses.dataclass(frozen=True)
class Against:
    """The point robot's best moves: straight to the goal, against the wind."""

    space: ActionSpace

    def policy(
        self, observations: NDArray[Any], hidden: NDArray[Any], progress: NDArray[Any]
    ) -> Policy:
        """The nearest to the goal that one move reaches, in x and in y."""
        low, high = self.space.grid().min(axis=0), self.space.grid().max(axis=0)
        return self.space.certain(np.clip(np.array([1.0, 0.0]) - observations - hidden, low, high))


def experts_of(family: Family, space: ActionSpace) -> dict[str, Behaviour]:
    """The last snapshots of the shipped experts, without noise."""
    found: dict[str, Behaviour] = {}
    for path in sorted((family.experts or Path()).glob("*.safetensors")):
        expert = load_expert(path)
        for index, snapshot in enumerate(expert.snapshots[-5:]):
            greedy = Exploring(space, (Snapshot(snapshot.network, 0.0),), expert.features, 0.0)
            found[f"expert:{path.stem}:{index}"] = greedy
    if family.name == "point-robot-wind":
        found["optimal"] = Against(space)
    return found


def known_reference(family: Family, hidden: Hidden, name: str) -> dict[str, Any]:
    """One entry of the file for a family with a box of actions."""
    _, space = spaces(family)
    chance = returns_of(family, hidden, [Uniform(space)], RANDOM_EPISODES, f"{name}-random")
    candidates: dict[str, Behaviour] = {
        f"constant:{action.tolist()}": Constant(space, action) for action in space.grid()
    }
    candidates |= experts_of(family, space)
    rules = list(candidates.values())
    chosen = returns_of(family, hidden, rules, CHOOSING_STARTS, f"{name}-choosing").mean(axis=1)
    winner = int(chosen.argmax())
    fresh = returns_of(family, hidden, [rules[winner]], MEASURING_STARTS, f"{name}-measuring")
    return {
        "hidden": dict(hidden),
        "random": float(chance.mean()),
        "random_se": float(chance.std(ddof=1) / np.sqrt(chance.size)),
        "reference": float(fresh.mean()),
        "source": list(candidates)[winner].rpartition(":")[0] or list(candidates)[winner],
        "attempts": 1,
    }


def reference_of(family: Family, hidden: Hidden, name: str, attempt: int) -> dict[str, Any]:
    """One entry of the file: hidden, random, its standard error, reference, and its source."""
    _, space = spaces(family)
    if space.shape:
        return known_reference(family, hidden, name)
    chance = returns_of(family, hidden, [Uniform(space)], RANDOM_EPISODES, f"{name}-random")
    recorder = Recorder(family)
    alone = dataclasses.replace(family, splits={"train": [hidden]}, make_vec=recorder)
    stage = ExpertStage(
        alone,
        expert_config(family, attempt),
        family.train_steps,
        integer(SEED, "references", family.name, name, *([attempt] if attempt else [])),
    )
    stage.advance(stage.total)
    expert, learner = stage.result(), stage.config.control.algorithm
    candidates: dict[str, Behaviour] = {
        f"constant:{action.tolist()}": Constant(space, action) for action in space.grid()
    }
    for index, snapshot in enumerate(expert.snapshots):
        greedy = Exploring(space, (Snapshot(snapshot.network, 0.0),), expert.features, 0.0)
        candidates[f"{learner}:{index}"] = greedy
    rules = list(candidates.values())
    alike = starts_alike(family, hidden)
    chosen = returns_of(
        family, hidden, rules, 1 if alike else CHOOSING_STARTS, f"{name}-choosing"
    ).mean(axis=1)
    winner = int(chosen.argmax())
    value = float(chosen[winner])
    if not alike:
        fresh = returns_of(family, hidden, [rules[winner]], MEASURING_STARTS, f"{name}-measuring")
        value = float(fresh.mean())
    named = list(candidates)[winner]
    where = named if named.startswith("constant") else learner
    if alike:
        again = repeated(family, hidden, recorder.actions)
        if again > value:
            where, value = f"{learner}:episode", again
    return {
        "hidden": dict(hidden),
        "random": float(chance.mean()),
        "random_se": float(chance.std(ddof=1) / np.sqrt(chance.size)),
        "reference": value,
        "source": where,
        "attempts": attempt + 1,
    }


def make(job: str, attempt: int) -> None:
    """Complete one attempt at one split of one family, an instance at a time."""
    family_name, _, split = job.partition(":")
    family = load_family(family_name)
    path = TARGET / f"{family_name}.json"
    content = read_json(path, FamilyError) if path.exists() else {}
    content["made_by"] = "benchmarks/references.py"
    content["steps"] = family.test_steps
    hiddens = family.instances(split)
    entries = content.setdefault(split, [None] * len(hiddens))
    for index, hidden in enumerate(hiddens):
        before = entries[index]
        if before is not None and before["attempts"] > attempt:
            continue
        entry = _known(family, content, hidden, attempt)
        if entry is None:
            began = time.monotonic()
            entry = reference_of(family, hidden, f"{split}-{index}", attempt)
            seconds = time.monotonic() - began
            print(
                f"{job}-{index}, attempt {attempt + 1}: {seconds:.1f} s, "
                f"random {entry['random']:.4g}, reference {entry['reference']:.4g} "
                f"({entry['source']})" + (f", was {before['reference']:.4g}" if before else ""),
                flush=True,
            )
            if before is not None and before["reference"] >= entry["reference"]:
                entry = before | {"attempts": attempt + 1}
        entries[index] = entry
        write_text(path, json.dumps(content, indent=2) + "\n")


def _known(
    family: Family, content: dict[str, Any], hidden: Hidden, attempt: int
) -> dict[str, Any] | None:
    """The entry of an equal instance, of whichever split, that is as far as this attempt."""
    for split in family.splits:
        for entry in content.get(split, []):
            if entry is None or entry["hidden"] != dict(hidden):
                continue
            if entry["attempts"] > attempt:
                return dict(entry)
    return None


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", default=ORDER, help="family:split, all by default")
    parser.add_argument("--attempts", type=int, default=1, help="trainings; the best one counts")
    options = parser.parse_args()
    jobs = options.jobs
    unknown = [job for job in jobs if job not in ORDER]
    if unknown:
        sys.exit(f"There is no {unknown[0]}; expected one of {', '.join(ORDER)}.")
    with one_thread():
        for attempt in range(options.attempts):
            for job in jobs:
                make(job, attempt)


if __name__ == "__main__":
    main()

"""Logs of a point that is pushed with its instance's own strength, by one of two behaviours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sept_offline.data.writer import DatasetWriter
from sept_offline.settings import DemarcateConfig
from sept_offline.tools.demarcate import Demarcation, demarcate_dataset
from sept_offline.training.inputs import Integers

QUICK = DemarcateConfig(updates=500, refining=300, rounds=2, hidden=48, episodes=32, window=12)
SOME = replace(QUICK, updates=350, refining=250)
FEWER = replace(QUICK, updates=170, refining=110)
"""Two groups need no more; by more updates half of their episodes are overfit, and unstable."""
STEPS = 30


def write_logs(
    path: Path,
    strengths: tuple[float, ...],
    per: int = 60,
    *,
    steps: int = STEPS,
    apart: float = 0.5,
    instances: str = "one",
    seed: int = 0,
) -> tuple[Integers, Integers]:
    """`per` episodes of each strength, shuffled; the true group and the behaviour of each, [E].

    Action 1 pushes the first coordinate by the strength, action 2 the second in the same way in
    all, and a swell moves both. The behaviours start in places that lie `apart` and like different
    actions. instances: `one` for all episodes, `each` its own, or `side`, two that are unlike the
    groups.
    """
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(len(strengths)), per))
    behaviour = rng.integers(2, size=len(group))
    likes = np.array([[0.1, 0.7, 0.2], [0.2, 0.3, 0.5]])
    with DatasetWriter(path, num_actions=3) as writer:
        for number, (own, who) in enumerate(zip(group, behaviour, strict=True)):
            state = rng.uniform(-1, 1, 2) + (apart if who else -apart)
            actions = rng.choice(3, size=steps, p=likes[who])
            observations = [state]
            for action in actions:
                push = np.array([strengths[own] * (action == 1), 0.3 * (action == 2)])
                state = state + push - 0.2 * np.sin(state) + 0.05 * rng.normal(size=2)
                observations.append(state)
            writer.append(
                instance={"one": "all", "each": f"e{number}", "side": f"s{number % 2}"}[instances],
                observations=np.array(observations, dtype=np.float32),
                actions=actions,
                rewards=np.zeros(steps),
                propensities=np.tile(likes[who], (steps, 1)),
                terminated=False,
                truncated=True,
                behaviour=f"behaviour-{who}",
                seed=number,
            )
    return group, behaviour


@dataclass(frozen=True)
class Case:
    source: Path
    target: Path
    group: Integers
    behaviour: Integers
    found: Demarcation


def case(
    folder: Path,
    strengths: tuple[float, ...],
    per: int,
    apart: float,
    kind: str,
    seed: int,
    config: DemarcateConfig = QUICK,
) -> Case:
    source, target = folder / "logs.h5", folder / "labelled.h5"
    group, behaviour = write_logs(source, strengths, per, apart=apart, instances=kind)
    found = demarcate_dataset(source, target, config, seed=seed)
    return Case(source, target, group, behaviour, found)

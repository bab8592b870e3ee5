"""Logged steps as fitted Q evaluation needs them: what Q reads, and what the agent does next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Steps
from sept_offline.ope.following import Followed


@dataclass(frozen=True)
class Transitions:
    """N' logged steps before the horizon.

    inputs `[R, m]` of all logged states, row `[N']` of a step's own (its next one's is row + 1);
    actions `[N']`; rewards `[N']`, divided by `scale`; last `[N']`: 1 where nothing follows, be it
    that the episode ended or that the horizon is reached; probabilities `[R, A]`: the agent's;
    episode `[N']`: its position in the data.
    """

    inputs: NDArray[np.float32]
    row: NDArray[np.int64]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    last: NDArray[np.float32]
    probabilities: NDArray[np.float64]
    episode: NDArray[np.int64]
    scale: float


def transitions(
    steps: Steps,
    followed: Followed,
    horizon: int,
    known: NDArray[np.int64],
    scale: float,
) -> Transitions:
    """Q reads [state, context, clock, whether the probe acts, and which instance it is].

    With the clock, Q at γ = 1 is the undiscounted value of the steps that are left. The instance is
    there if it is one of `known[K]`, those with episodes enough: what the agent does not know of
    it, the estimate may. All others look alike.
    """
    clock = np.zeros(len(steps.observations), dtype=np.float32)
    clock[steps.row] = steps.time
    starts = np.flatnonzero(steps.time == 0)
    ends = np.append(starts[1:], len(steps.time)) - 1
    after = steps.row[ends] + 1
    clock[after] = steps.time[ends] + 1
    columns: list[NDArray[Any]] = [
        Standardiser.fit(steps.observations)(steps.observations),
        followed.contexts,
        (2 * clock / horizon - 1)[:, None],
        followed.probing[:, None],
    ]
    if len(known):
        which = np.zeros(len(steps.observations), dtype=np.int64)
        which[steps.row] = steps.instance
        which[after] = steps.instance[ends]
        columns.append(which[:, None] == known)
    kept = steps.time < horizon
    last = steps.terminations | (steps.time == horizon - 1)
    return Transitions(
        inputs=np.concatenate(columns, axis=1).astype(np.float32),
        row=steps.row[kept],
        actions=steps.actions[kept],
        rewards=(steps.rewards[kept] / scale).astype(np.float32),
        last=last[kept].astype(np.float32),
        probabilities=followed.probabilities,
        episode=np.repeat(np.arange(len(starts)), ends - starts + 1)[kept],
        scale=scale,
    )

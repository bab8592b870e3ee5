"""Do learned dynamics reproduce the logs? Agents are compared in them only if they do."""

from __future__ import annotations

import numpy as np

from sept_offline.data.records import Steps
from sept_offline.dynamics.outcome import OutcomeModel
from sept_offline.dynamics.world import WorldStage, replay
from sept_offline.seeding import generator, integer
from sept_offline.training.inputs import Doubles, Integers

WINDOW = 4
"""Steps for which logged actions are repeated: more would measure chaos, not the model."""
WINDOWS = 4000
"""Windows that are repeated, spread evenly over the instances."""
FEWEST = 20
"""Windows of an instance, at least."""


def replay_error(
    world: WorldStage,
    outcome: OutcomeModel,
    steps: Steps,
    length: Integers,
    rewards: Doubles,
    factor: Doubles,
    seed: int,
) -> float:
    """How far learned dynamics are off in what logged actions earn, per episode of an instance.

    length `[E]`: of the episodes; rewards `[N]`: as the outcome has learned them; factor `[I]`:
    from these to the unit of the error. Root mean square over instances, less what chance adds.
    """
    rng = generator(seed, "windows")
    left = np.repeat(length, length) - steps.time
    present = np.unique(steps.instance)
    each = max(FEWEST, WINDOWS // len(present))
    first = np.concatenate(
        [rng.choice(np.flatnonzero(steps.instance == code), each) for code in present]
    )
    long = np.minimum(WINDOW, left[first])
    total = np.concatenate([[0.0], np.cumsum(rewards)])
    logged = total[first + long] - total[first]
    earned = replay(world, outcome, steps, first, long, integer(seed, "replay"))
    # row by row the windows of one instance
    gap, long = (earned - logged).reshape(-1, each), long.reshape(-1, each)
    owner = steps.instance[steps.time == 0]
    episode = np.array([length[owner == code].mean() for code in present]) / long.mean(axis=1)
    episode *= factor[present]
    bias = episode * gap.mean(axis=1)
    chance = episode**2 * gap.var(axis=1, ddof=1) / each
    return float(np.sqrt(max(np.mean(bias**2 - chance), 0.0)))

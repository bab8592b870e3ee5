"""The tiny family with a dose: a point moves by its instance's strength times the dose above 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box, Policy
from sept_offline.data.records import Segments, Steps
from tests.latent.tiny import STRENGTH, assembled

SPACE = Box.of([-2.0, 0.0], [2.0, 1.0], ["dose", "idle"])
Behaviour = Callable[[NDArray[np.float32]], Policy]


def uniform(observations: NDArray[np.float32]) -> Policy:
    return SPACE.uniform(len(observations))


def episodes(
    per: int, length: int, seed: int, behaviour: Behaviour = uniform
) -> tuple[Steps, Segments]:
    """A dose below 0 does nothing, so that it says nothing; neither does the second component."""
    rng = np.random.default_rng(seed)
    instance = np.repeat(np.arange(len(STRENGTH)), per)
    count = len(instance)
    state = rng.uniform(-0.5, 0.5, (count, 2))
    observations, actions, densities = [state.astype(np.float32)], [], []
    for _ in range(length):
        policy = behaviour(observations[-1])
        action = policy.draw(rng.random((count, SPACE.draws)))
        state = state + 0.02 * rng.normal(size=state.shape)
        state[:, 0] += STRENGTH[instance] * np.maximum(action[:, 0], 0)
        observations.append(state.astype(np.float32))
        actions.append(action)
        densities.append(policy.logged(action))
    return assembled(instance, observations, actions, densities)

"""Walks on a grid whose cells are observed one-hot; what each action does differs by instance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Finite
from sept_offline.data.records import Segments, Steps
from tests.latent.tiny import assembled

SIDE = 4
SPACE = Finite.of(4)
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
ORDERS = np.array(
    [(0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0)]
)
"""The move that each action makes, by instance."""
SLIP = 0.05
"""Share of the steps whose move is random."""


def walks(per: int, length: int, seed: int) -> tuple[Steps, Segments]:
    """Episodes with random actions, `per` of each instance."""
    rng = np.random.default_rng(seed)
    instance = np.repeat(np.arange(len(ORDERS)), per)
    count = len(instance)
    place = rng.integers(SIDE, size=(count, 2))
    observations, actions, chances = [_cell(place)], [], []
    for _ in range(length):
        action = rng.integers(4, size=count)
        slips = rng.random(count) < SLIP
        move = np.where(slips, rng.integers(4, size=count), ORDERS[instance, action])
        place = np.clip(place + MOVES[move], 0, SIDE - 1)
        observations.append(_cell(place))
        actions.append(action)
        chances.append(np.full((count, 4), 0.25))
    return assembled(instance, observations, actions, chances)


def _cell(place: NDArray[np.int64]) -> NDArray[np.float32]:
    one_hot: NDArray[np.float32] = np.eye(SIDE * SIDE, dtype=np.float32)[place @ (SIDE, 1)]
    return one_hot

"""A cart on a rail whose hidden colour matters to nothing: neither to motion nor to reward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

PUSH, DRAG, NOISE = 0.1, 0.1, 0.03


def start(draws: Array) -> Array:
    """At rest, somewhere on the rail."""
    return np.stack([4 * draws[0] - 2, np.zeros(draws.shape[1])])


def advance(
    state: Array, action: NDArray[np.int64], hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A push, drag and noise; the distance from the middle is bad. `hidden` is not read."""
    speed = (1 - DRAG) * state[1] + PUSH * (action - 1) + NOISE * noise[0]
    place = np.clip(state[0] + speed, -3, 3)
    return np.stack([place, speed]), -np.abs(place), np.zeros(len(action), dtype=np.bool_)


PROCESS = Process(
    hidden=("colour",),
    observation_names=("place", "speed"),
    action_names=("left", "none", "right"),
    draws=1,
    noises=1,
    start=start,
    advance=advance,
    observe=lambda state: state,
)


family = process_family(
    "indifferent",
    PROCESS,
    splits={
        "train": [{"colour": colour / 8} for colour in range(8)],
        "validation": [{"colour": 0.3}, {"colour": 0.7}],
        "test": [{"colour": 0.2}, {"colour": 0.45}, {"colour": 0.6}, {"colour": 0.8}],
    },
    train_steps=40,
    test_steps=40,
    probe_steps=4,
    latent_dim=2,
)

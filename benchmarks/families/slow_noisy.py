"""A noisy level that a treatment lifts or lowers a little: one step tells next to nothing.

Hidden is the effect. Two opposite full effects differ in one treated step by half a standard
deviation of the noise, after 40 treated steps by three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

STEP, NOISE = 0.06, 0.25
SCALE = 0.1
"""Of the reward."""


def start(draws: Array) -> Array:
    """Near 0."""
    return draws[:1] - 0.5


def advance(
    state: Array, action: NDArray[np.int64], hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A small effect in much noise; a high level is good."""
    level = np.clip(state[0] + STEP * hidden[0] * (action - 1) + NOISE * noise[0], -20, 20)
    return level[None], SCALE * level, np.zeros(len(action), dtype=np.bool_)


PROCESS = Process(
    hidden=("effect",),
    observation_names=("level",),
    action_names=("against", "none", "with"),
    draws=1,
    noises=1,
    start=start,
    advance=advance,
    observe=lambda state: state,
)


def effects(*values: float) -> list[dict[str, float]]:
    """An instance for each effect and for its opposite."""
    return [{"effect": sign * value} for value in values for sign in (1.0, -1.0)]


family = process_family(
    "slow_noisy",
    PROCESS,
    splits={
        "train": effects(0.6, 0.8, 1.0, 1.2),
        "validation": effects(0.7, 1.1),
        "test": effects(0.75, 0.9, 1.05),
    },
    train_steps=100,
    test_steps=100,
    probe_steps=24,
    latent_dim=1,
)

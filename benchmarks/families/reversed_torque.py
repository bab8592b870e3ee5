"""A pendulum to swing up, whose motor turns the wrong way round in half of all instances.

Hidden are the sign and the strength of the torque.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

GRAVITY, TIME, PARTS = 10.0, 0.1, 4
"""A step lasts `TIME` seconds, integrated in this many parts; mass and length are 1."""
FASTEST = 8.0
TORQUES = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
"""The greatest does not lift the pendulum at once: it must swing."""
SCALE = 0.1
"""Of the reward."""


def start(draws: Array) -> Array:
    """Rows: angle, 0 upright, and speed; anywhere and slow, so that logs show the top too."""
    return np.stack([2 * np.pi * draws[0] - np.pi, 2 * draws[1] - 1])


def advance(
    state: Array, action: NDArray[np.int64], hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Gravity and torque; angle, speed and effort are bad."""
    angle, speed = state
    torque = TORQUES[action]
    felt = hidden[0] * hidden[1] * torque
    part = TIME / PARTS
    for _ in range(PARTS):
        speed = speed + part * (1.5 * GRAVITY * np.sin(angle) + 3 * felt)
        speed = np.clip(speed, -FASTEST, FASTEST)
        angle = angle + part * speed
    angle = np.mod(angle + np.pi, 2 * np.pi) - np.pi
    bad = angle * angle + 0.1 * speed * speed + 0.001 * torque * torque
    return np.stack([angle, speed]), -SCALE * bad, np.zeros(len(action), dtype=np.bool_)


def observe(state: Array) -> Array:
    """Where the tip is, and the speed as a share of the fastest."""
    return np.stack([np.cos(state[0]), np.sin(state[0]), state[1] / FASTEST])


PROCESS = Process(
    hidden=("sign", "strength"),
    observation_names=("height", "side", "speed"),
    action_names=("hard left", "left", "none", "right", "hard right"),
    draws=2,
    noises=0,
    start=start,
    advance=advance,
    observe=observe,
)


def motors(*strengths: float) -> list[dict[str, float]]:
    """Motors of these strengths, each the right and the wrong way round."""
    return [{"sign": sign, "strength": value} for value in strengths for sign in (1.0, -1.0)]


family = process_family(
    "reversed_torque",
    PROCESS,
    splits={
        "train": motors(0.7, 0.9, 1.1, 1.3),
        "validation": motors(0.8, 1.2),
        "test": motors(0.75, 1.0, 1.25),
    },
    train_steps=100,
    test_steps=100,
    probe_steps=3,
    latent_dim=2,
)

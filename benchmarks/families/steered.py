"""A boat on a lake, with two thrusters whose frame is turned; its action is continuous.

Hidden are the angle by which the frame is turned, anything from 0 to a whole turn, and the
thrusters' strength: who does not know the angle steers anywhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

TIME, DRAG = 0.2, 0.5
"""Length of a step, and the drag of the water."""
EFFORT = 0.01
"""Weight of the thrust in the reward."""


def start(draws: Array) -> Array:
    """Rows: x, y and their speeds; the boat lies still."""
    return np.concatenate([2 * draws - 1, np.zeros_like(draws)])


def advance(
    state: Array, action: Array, hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Turned thrust and drag; far from the origin is bad, and so is a little the thrust."""
    place, speed = state[:2], state[2:]
    angle, strength = hidden
    cosine, sine = np.cos(angle), np.sin(angle)
    thrust = strength * np.stack(
        [cosine * action[0] - sine * action[1], sine * action[0] + cosine * action[1]]
    )
    speed = speed + TIME * (thrust - DRAG * speed) + 0.01 * noise
    place = place + TIME * speed
    bad = np.hypot(*place) + EFFORT * (action**2).sum(axis=0)
    return np.concatenate([place, speed]), -bad, np.zeros(place.shape[1], dtype=np.bool_)


PROCESS = Process(
    hidden=("angle", "strength"),
    observation_names=("x", "y", "speed of x", "speed of y"),
    action_names=("forward", "sideward"),
    bounds=((-1.0, -1.0), (1.0, 1.0)),
    draws=2,
    noises=2,
    start=start,
    advance=advance,
    observe=lambda state: state,
)


def boats(first: float, count: int) -> list[dict[str, float]]:
    """Boats all around from the first angle, in degrees, strong and weak ones in turn."""
    degrees = first + np.arange(count) * 360 / count
    return [
        {"angle": round(float(np.deg2rad(each)), 4), "strength": 0.8 + 0.4 * (index % 2)}
        for index, each in enumerate(degrees)
    ]


family = process_family(
    "steered",
    PROCESS,
    splits={"train": boats(0, 12), "validation": boats(55, 4), "test": boats(20, 6)},
    train_steps=60,
    test_steps=60,
    probe_steps=3,
    latent_dim=3,
)

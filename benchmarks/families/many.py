"""A point that is pushed over a plane: 200 training instances with five short episodes each.

Hidden are the drag and the angle by which every push is turned.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

PUSH, NOISE = 0.15, 0.01
ACROSS = np.array([0.0, 1.0, 0.0, -1.0, 0.0])
ALONG = np.array([0.0, 0.0, 1.0, 0.0, -1.0])
"""What each action pushes before the turn."""


def start(draws: Array) -> Array:
    """At rest, at a distance between 1 and 2 from the goal."""
    distance, angle = 1 + draws[0], 2 * np.pi * draws[1]
    rest = np.zeros(draws.shape[1])
    return np.stack([distance * np.cos(angle), distance * np.sin(angle), rest, rest])


def advance(
    state: Array, action: NDArray[np.int64], hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """A turned push, drag, a little noise; the distance from the goal is bad."""
    drag, turn = hidden
    cos, sin = np.cos(turn), np.sin(turn)
    push_x = PUSH * (cos * ACROSS[action] - sin * ALONG[action])
    push_y = PUSH * (sin * ACROSS[action] + cos * ALONG[action])
    speed_x = (1 - drag) * state[2] + push_x + NOISE * noise[0]
    speed_y = (1 - drag) * state[3] + push_y + NOISE * noise[1]
    # Walls: a point that nobody steers must not run away.
    x, y = np.clip(state[0] + speed_x, -3, 3), np.clip(state[1] + speed_y, -3, 3)
    reward = -np.sqrt(x * x + y * y)
    return np.stack([x, y, speed_x, speed_y]), reward, np.zeros(len(action), dtype=np.bool_)


PROCESS = Process(
    hidden=("drag", "turn"),
    observation_names=("x", "y", "speed x", "speed y"),
    action_names=("none", "east", "north", "west", "south"),
    draws=2,
    noises=2,
    start=start,
    advance=advance,
    observe=lambda state: state,
)


def drawn(count: int, seed: int) -> list[dict[str, float]]:
    """So many instances, drawn once and for all."""
    rng = np.random.default_rng(seed)
    return [
        {"drag": float(rng.uniform(0.1, 0.5)), "turn": float(rng.uniform(-np.pi, np.pi))}
        for _ in range(count)
    ]


family = process_family(
    "many",
    PROCESS,
    splits={"train": drawn(200, 0), "validation": drawn(20, 1), "test": drawn(20, 2)},
    train_steps=40,
    test_steps=40,
    probe_steps=4,
    latent_dim=3,
    recipe=Path(__file__).with_name("many.toml"),
)

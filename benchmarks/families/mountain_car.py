"""Gymnasium's MountainCar with hidden gravity and a hidden force, reversed in half of all cars.

A step costs 0.05 and the goal gives 5: an episode of 200 steps that never arrives returns -10, and
none returns more than 5. A car starts somewhere in the valley with some speed, so that random logs
show the goal now and then, but never before the probe is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from numpy.typing import NDArray

from sept_offline.family import Family, Hidden

COST, GOAL = 0.05, 5.0
LEAST, MOST = (-1.1, -0.06), (0.25, 0.06)
"""Of position and velocity at the start."""


class HiddenMountainCar(MountainCarEnv):
    """MountainCar with two parameters that no observation shows."""

    def __init__(self, gravity: float, force: float) -> None:
        super().__init__()
        self.gravity = gravity
        self.force = force

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start somewhere in the valley with some speed."""
        super().reset(seed=seed, options=options)
        position, velocity = self.np_random.uniform(LEAST, MOST)
        self.state = (float(position), float(velocity))
        return np.array(self.state, dtype=np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Drive; the goal ends the episode."""
        observation, _, terminated, truncated, info = super().step(action)
        return observation, GOAL * terminated - COST, terminated, truncated, info


def make(hidden: Hidden) -> HiddenMountainCar:
    """One instance, without a time limit."""
    return HiddenMountainCar(**hidden)


def cars(gravities: tuple[float, ...], forces: tuple[float, ...]) -> list[dict[str, float]]:
    """Every gravity with every force, driven the usual way and the wrong way round."""
    return [
        {"gravity": gravity, "force": sign * force}
        for gravity in gravities
        for force in forces
        for sign in (1.0, -1.0)
    ]


family = Family(
    name="mountain_car",
    make=make,
    splits={
        "train": cars((0.0021, 0.0025, 0.0028), (0.0009, 0.0012)),
        "validation": cars((0.0023,), (0.0010, 0.0013)),
        "test": cars((0.0022, 0.0027), (0.0010, 0.0011)),
    },
    train_steps=200,
    test_steps=200,
    probe_steps=3,
    latent_dim=2,
    solved=GOAL - COST,
    observation_names=("position", "velocity"),
    action_names=("left", "none", "right"),
)

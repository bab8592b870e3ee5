"""CartPole whose gravity, pole and sign of force are hidden, as a user of the library writes it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import sept_offline as so


class HiddenCartPole(CartPoleEnv):
    """Gymnasium's CartPole with three parameters that no observation shows."""

    def __init__(self, gravity: float = 9.8, length: float = 0.5, reverse: float = 0.0) -> None:
        super().__init__()
        self.gravity = gravity
        self.length = length
        self.polemass_length = self.masspole * length
        self.force_mag = -10.0 if reverse else 10.0


def make(hidden: Mapping[str, float]) -> HiddenCartPole:
    """One instance, without a time limit."""
    return HiddenCartPole(**hidden)


def instances(lengths: tuple[float, ...], gravities: tuple[float, ...]) -> list[dict[str, float]]:
    """Every pole under every gravity, pushed the usual way and the wrong way round."""
    return [
        {"gravity": gravity, "length": length, "reverse": reverse}
        for length in lengths
        for gravity in gravities
        for reverse in (0.0, 1.0)
    ]


cartpole = so.Family(
    name="cartpole",
    make=make,
    splits={
        "train": instances((0.4, 0.7), (8.0, 11.0)),
        "validation": instances((0.5,), (9.0,)),
        "test": instances((0.45, 0.6), (9.8,)),
    },
    train_steps=100,
    test_steps=100,
    probe_steps=3,
    latent_dim=3,
    observation_names=("position", "velocity", "angle", "angular velocity"),
    action_names=("left", "right"),
)


def hesitant(observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A behaviour to log: push against the fall or with it, nearly at random."""
    lean = observations[:, 2] + 0.5 * observations[:, 3]
    right = 0.5 + 0.1 * np.sign(lean)
    return np.stack([1 - right, right], axis=1)

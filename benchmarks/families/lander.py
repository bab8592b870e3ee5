"""Gymnasium's LunarLander with hidden gravity and, in half of all landers, swapped side engines.

Random logs show little but falls; `careful` brakes with the main engine and leaves the sides to
chance, for it does not know which is which:

    sept-offline collect benchmarks.families.lander:family \
        --policy benchmarks.families.lander:careful -o lander.h5
"""

from __future__ import annotations

from typing import Any

import Box2D  # noqa: F401 - Gymnasium's own sentence names an extra that cannot be built everywhere
import numpy as np
from gymnasium.envs.box2d.lunar_lander import LunarLander
from numpy.typing import NDArray

from sept_offline.family import Family, Hidden

SWAPPED = (0, 3, 2, 1)


class HiddenLander(LunarLander):
    """LunarLander with two parameters that no observation shows."""

    def __init__(self, gravity: float, swapped: float) -> None:
        super().__init__(gravity=gravity)
        self._swapped = bool(swapped)

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Fire an engine, perhaps that of the other side."""
        fired = SWAPPED[int(action)] if self._swapped else int(action)
        observation, reward, terminated, truncated, info = super().step(fired)  # type: ignore[no-untyped-call]
        return observation, float(reward), bool(terminated), truncated, info


def make(hidden: Hidden) -> HiddenLander:
    """One instance, without a time limit."""
    return HiddenLander(**hidden)


def moons(*gravities: float) -> list[dict[str, float]]:
    """Landers under these gravities, with side engines as they should be and swapped."""
    return [
        {"gravity": gravity, "swapped": swapped} for gravity in gravities for swapped in (0.0, 1.0)
    ]


family = Family(
    name="lander",
    make=make,
    splits={
        "train": moons(-6.0, -7.5, -9.0, -10.5, -11.5),
        "validation": moons(-8.0, -11.0),
        "test": moons(-6.75, -8.5, -10.0),
    },
    train_steps=300,
    test_steps=300,
    probe_steps=10,
    latent_dim=2,
    observation_names=(
        *("x", "y", "speed x", "speed y", "angle", "angular speed", "left leg", "right leg"),
    ),
    action_names=("none", "left engine", "main engine", "right engine"),
)


def careful(observations: NDArray[Any]) -> NDArray[Any]:
    """A behaviour to log: the faster the fall for the height, the likelier the main engine."""
    height, fall = observations[:, 1], -observations[:, 3]
    wanted = 0.1 + 0.4 * np.clip(height, 0, 1)
    main = np.clip(0.25 + 1.5 * (fall - wanted), 0.05, 0.8)
    rest = (1 - main) / 3
    return np.stack([rest, rest, main, rest], axis=1)

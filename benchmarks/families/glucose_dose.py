"""The virtual patients of `glucose`, with a pump that gives any dose up to 2.5 insulin units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families import glucose

family = glucose.family_of("glucose_dose", glucose.Dosed, ("insulin",))


def dosing(observations: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """A policy to log: it doses for announced meals and high glucose, with noise."""
    glucose_level, meal = observations[:, 0] * 60 + 140, observations[:, 1] * 50
    wanted = np.clip(meal / 30, 0, 2) + np.clip((glucose_level - 110) / 200, 0, 0.5)
    return wanted[:, np.newaxis], 0.25

"""Transformations of rewards, for agents that learn during their episode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .records import Record, Value, field, number, number_or_none

Rewards = NDArray[np.float64]


def compress(rewards: NDArray[Any]) -> Rewards:
    """sign(r)·log10(1 + |r|/1e3): rewards over eleven decades become numbers below ten."""
    values = np.asarray(rewards, dtype=np.float64)
    compressed: Rewards = np.sign(values) * np.log10(1 + np.abs(values) / 1e3)
    return compressed


def shift_by_goal(
    rewards: NDArray[Any], terminations: NDArray[Any], goal: float, gamma: float
) -> Rewards:
    """r − C·(1 − γ·(1 − done)): every value falls by exactly C, so no choice of action changes.

    A value that starts near 0 is then as good as being at the goal already: an optimistic start.
    """
    done = np.asarray(terminations, dtype=np.float64)
    shifted: Rewards = np.asarray(rewards, dtype=np.float64) - goal * (1 - gamma * (1 - done))
    return shifted


@dataclass(frozen=True)
class RewardForm(Record):
    """Compressed or not, then scaled, then shifted; the same for all instances."""

    stored = (
        Value("log", partial(field, kind=bool)),
        Value("scale", number),
        Value("goal", number_or_none),
        Value("gamma", number),
    )

    log: bool
    scale: float
    goal: float | None
    """C of the shift, or None for no shift."""
    gamma: float

    def __post_init__(self) -> None:
        """Raise unless scale, shift and discount are valid."""
        numbers = (self.scale, self.gamma, 0.0 if self.goal is None else self.goal)
        if not all(map(math.isfinite, numbers)) or self.scale <= 0 or not 0 <= self.gamma < 1:
            raise AgentError(f"The transformation of rewards is invalid: {self}.")

    def __call__(self, rewards: NDArray[Any], terminations: NDArray[Any]) -> Rewards:
        """`rewards[n]` as control learns from them."""
        values = compress(rewards) if self.log else np.asarray(rewards, dtype=np.float64)
        scaled: Rewards = values * self.scale
        if self.goal is None:
            return scaled
        return shift_by_goal(scaled, terminations, self.goal, self.gamma)

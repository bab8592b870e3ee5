"""Rewards as the control stage learns from them; results are always reported raw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.control.config import ControlConfig

Rewards = NDArray[np.float64]


def scale_by_instance(rewards: NDArray[Any], instance: NDArray[Any]) -> Rewards:
    """`rewards[N]`, each instance's divided by their root mean square (1 where all are 0)."""
    values = np.asarray(rewards, dtype=np.float64)
    counts = np.maximum(np.bincount(instance), 1)
    # by the largest first, so that rewards over many decades do not overflow when squared
    largest = np.zeros(len(counts))
    np.maximum.at(largest, instance, np.abs(values))
    largest[largest == 0] = 1.0
    relative = values / largest[instance]
    squares = np.bincount(instance, weights=relative**2, minlength=len(counts))
    size = np.sqrt(squares / counts)
    size[size == 0] = 1.0
    scaled: Rewards = relative / size[instance]
    return scaled


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


def prepare_rewards(
    rewards: NDArray[Any],
    terminations: NDArray[Any],
    instance: NDArray[Any],
    config: ControlConfig,
) -> Rewards:
    """`rewards[N]` in the config's form, scaled, then shifted."""
    prepared = np.asarray(rewards, dtype=np.float64)
    if config.reward_form == "instance":
        prepared = scale_by_instance(prepared, instance)
    elif config.reward_form == "log":
        prepared = compress(prepared)
    prepared = prepared * config.reward_scale
    if config.goal_shift is not None:
        prepared = shift_by_goal(prepared, terminations, config.goal_shift, config.gamma)
    return prepared

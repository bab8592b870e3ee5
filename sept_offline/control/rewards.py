"""Rewards as the control stage learns from them; results are always reported raw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.rewards import RewardForm, Rewards, compress, shift_by_goal
from sept_offline.control.config import ControlConfig

__all__ = ["compress", "prepare_rewards", "reward_form", "scale_by_instance", "shift_by_goal"]


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


def reward_form(config: ControlConfig) -> RewardForm:
    """The part of the config's form that is the same for all instances."""
    return RewardForm(
        config.reward_form == "log", config.reward_scale, config.goal_shift, config.gamma
    )


def prepare_rewards(
    rewards: NDArray[Any],
    terminations: NDArray[Any],
    instance: NDArray[Any],
    config: ControlConfig,
) -> Rewards:
    """`rewards[N]` in the config's form, scaled, then shifted."""
    if config.reward_form == "instance":
        rewards = scale_by_instance(rewards, instance)
    return reward_form(config)(rewards, terminations)

"""Rewards as the control stage learns from them; results are always reported raw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.rewards import RewardForm, Rewards
from sept_offline.settings import ControlConfig


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


def common_form(rewards: NDArray[Any], config: ControlConfig) -> ControlConfig:
    """The same settings with rewards in a form that a new instance's can be put into.

    In a test episode the scale of the instance's rewards is unknown. If each instance has its own
    scale, all use one instead: that of all logged `rewards[N]` together.
    """
    if config.reward_form != "instance":
        return config
    scaled = scale_by_instance(rewards, np.zeros(len(rewards), dtype=np.int64))
    largest = int(np.abs(rewards).argmax())
    size = float(rewards[largest] / scaled[largest]) if scaled[largest] else 1.0
    return replace(config, reward_form="raw", reward_scale=config.reward_scale / size)


def reward_form(config: ControlConfig) -> RewardForm:
    """The part of the config's form that is the same for all instances."""
    return RewardForm(
        config.reward_form == "log", config.reward_scale, config.goal_shift, config.gamma
    )


def mean_return(rewards: NDArray[Any], time: NDArray[Any], gamma: float) -> float:
    """The mean over all steps of the discounted return from that step on.

    `rewards[N]`, `time[N]`: 0 at an episode's first step.
    """
    # Σ_t Σ_{k≥t} γ^(k−t) r_k: a reward counts once for every step up to its own, discounted
    until = np.asarray(time, dtype=np.float64) + 1
    counted = np.asarray(rewards, dtype=np.float64) * (1 - gamma**until) / (1 - gamma)
    return float(counted.sum() / max(len(counted), 1))


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


def one_form(
    rewards: NDArray[Any],
    terminations: NDArray[Any],
    instance: NDArray[Any],
    config: ControlConfig,
) -> tuple[Rewards, Rewards]:
    """`rewards[N]` in one form for all instances, and the factors `[I]` to control's own form.

    Control may scale the rewards of each instance, which a model of rewards is not shown. Neither
    is shifted.
    """
    form = replace(config, goal_shift=None)
    scaled, common = (
        prepare_rewards(rewards, terminations, instance, each)
        for each in (form, common_form(rewards, form))
    )
    size, plain = (np.bincount(instance, weights=np.abs(values)) for values in (scaled, common))
    return common, np.where(plain > 0, size / np.maximum(plain, 1e-300), 1.0)

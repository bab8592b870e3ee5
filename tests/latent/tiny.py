"""A tiny family for tests of latent and probe: a point pushed with an instance's own strength."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Finite
from sept_offline.data.records import Segments, Steps

STRENGTH = np.array([-1.0, -0.4, 0.4, 1.0])
ACTIONS = 3
SPACE = Finite.of(ACTIONS)
Policy = Callable[[NDArray[np.float32]], NDArray[np.float64]]


def uniform(observations: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.full((len(observations), ACTIONS), 1 / ACTIONS)


def episodes(
    per: int, length: int, seed: int, policy: Policy = uniform, noise: float = 0.02
) -> tuple[Steps, Segments]:
    """Action 0 waits, 1 pushes the first coordinate by the strength, 2 the second, the same in all.

    The third coordinate never moves.
    """
    rng = np.random.default_rng(seed)
    instance = np.repeat(np.arange(len(STRENGTH)), per)
    count = len(instance)
    state = np.concatenate((rng.uniform(-0.5, 0.5, (count, 2)), np.full((count, 1), 7.0)), axis=1)
    observations, actions, chances = [state.astype(np.float32)], [], []
    for _ in range(length):
        chance = policy(observations[-1])
        action = (rng.random((count, 1)) > chance.cumsum(axis=1)).sum(axis=1).clip(0, ACTIONS - 1)
        state = state.copy()
        state[:, 0] += STRENGTH[instance] * (action == 1) + noise * rng.normal(size=count)
        state[:, 1] += 0.1 * (action == 2) + noise * rng.normal(size=count)
        observations.append(state.astype(np.float32))
        actions.append(action)
        chances.append(chance)
    return assembled(instance, observations, actions, chances)


def assembled(
    instance: NDArray[np.int64],
    observations: list[NDArray[np.float32]],
    actions: list[NDArray[Any]],
    logged: list[NDArray[np.float64]],
) -> tuple[Steps, Segments]:
    """Episodes of one length, step after step: T+1 observations, T actions and propensities."""
    seen, done, mu = (np.stack(part, axis=1) for part in (observations, actions, logged))
    count, length = done.shape[:2]
    number = np.arange(count)
    segments = Segments(seen, done, np.zeros((count, length)), mu, instance, number, 0)
    episode = np.repeat(number, length)
    ends = np.tile(np.arange(length) == length - 1, count)
    steps = Steps(
        observations=seen.reshape(-1, seen.shape[-1]),
        actions=done.reshape(-1, *done.shape[2:]),
        rewards=np.zeros(count * length),
        propensities=mu.reshape(-1, *mu.shape[2:]),
        terminations=np.zeros_like(ends),
        truncations=ends,
        row=np.arange(count * length) + episode,
        episode=episode,
        instance=instance[episode],
        time=np.tile(np.arange(length), count),
    )
    return steps, segments


def cut(segments: Segments, length: int) -> Segments:
    """The same episodes, fewer steps of each."""
    mu = segments.propensities
    return Segments(
        segments.observations[:, : length + 1],
        segments.actions[:, :length],
        segments.rewards[:, :length],
        None if mu is None else mu[:, :length],
        segments.instance,
        segments.episode,
        segments.skipped,
    )

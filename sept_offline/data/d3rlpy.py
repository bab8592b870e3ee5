"""Handing a dataset to d3rlpy: exactly its transitions, none dropped, none invented."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import d3rlpy.dataset

    from sept_offline.data.dataset import Dataset


def to_d3rlpy(data: Dataset) -> d3rlpy.dataset.ReplayBuffer:
    """A replay buffer of the T transitions of every episode.

    d3rlpy drops the last transition of an episode that did not terminate, because it has no row to
    look for the next observation in. Such an episode gets one more row, the final observation with
    a dummy action and reward; a terminated one needs none.
    """
    import d3rlpy
    from d3rlpy.dataset import InfiniteBuffer, ReplayBuffer

    space = data.action_space
    episodes = []
    for episode in data.episodes():
        observations, actions = episode.observations[:-1], episode.actions
        rewards = episode.rewards.astype(np.float32)
        if not episode.terminated:
            observations = episode.observations
            actions = np.concatenate([actions, space.empty(1)])
            rewards = np.append(rewards, np.float32(0))
        episodes.append(
            d3rlpy.dataset.Episode(
                observations=observations,
                actions=actions.reshape(len(actions), -1),
                rewards=rewards.reshape(-1, 1),
                terminated=episode.terminated,
            )
        )
    kinds = d3rlpy.ActionSpace
    # Passed explicitly: d3rlpy would not know actions that were never logged.
    return ReplayBuffer(
        InfiniteBuffer(),
        episodes=episodes,
        action_space=kinds.CONTINUOUS if space.shape else kinds.DISCRETE,
        action_size=space.width,
    )

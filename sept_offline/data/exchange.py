"""Datasets to d3rlpy, and to and from Minari."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.data.dataset import Dataset, load_dataset
from sept_offline.data.writer import DatasetWriter
from sept_offline.errors import ConfigError, DataError

if TYPE_CHECKING:
    import d3rlpy.dataset
    import minari


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


def _minari() -> Any:
    try:
        import minari
    except ImportError as error:
        raise DataError(
            "Minari is not installed; install it with `pip install 'sept-offline[minari]'`."
        ) from error
    return minari


def to_minari(data: Dataset, dataset_id: str, **options: Any) -> minari.MinariDataset:
    """Write the episodes of `data` into Minari's local store under `dataset_id`.

    Instance, behaviour and probabilities become infos.
    `options` go to `minari.create_dataset_from_buffers`. Every info has T+1 rows, as Minari wants;
    the last row of the probabilities (of a box: `log_densities`), which belongs to no step, is NaN.
    Hidden parameters stay.
    """
    minari = _minari()
    import gymnasium
    from minari.data_collector import EpisodeBuffer

    space = data.action_space
    spaces = gymnasium.spaces
    actions = spaces.Box(*space.bounds) if isinstance(space, Box) else spaces.Discrete(space.width)

    def buffers() -> Iterator[Any]:
        for episode in data.episodes():
            steps = len(episode.actions)
            infos: dict[str, Any] = {
                "instance": [episode.instance] * (steps + 1),
                "behaviour": [episode.behaviour] * (steps + 1),
            }
            if episode.propensities is not None:
                unknown = np.full((1, *space.propensity_shape), np.nan)
                infos[_logged_name(space)] = np.concatenate([episode.propensities, unknown])
            last = np.arange(steps) == steps - 1
            yield EpisodeBuffer(
                seed=episode.seed,
                observations=episode.observations,
                actions=episode.actions,
                rewards=episode.rewards,
                terminations=last & episode.terminated,
                truncations=last & episode.truncated,
                infos=infos,
            )

    family = data.metadata.family
    settings = {
        "description": f"{family or 'Logged'} episodes; content hash {data.content_hash}",
        "observation_space": spaces.Box(-np.inf, np.inf, (data.observation_dim,)),
        "action_space": actions,
        **options,
    }
    return minari.create_dataset_from_buffers(dataset_id, buffers(), **settings)


def from_minari(dataset: str | minari.MinariDataset, path: str | Path | None = None) -> Dataset:
    """Convert a Minari dataset, given as an object or by its id, to a file and open it.

    The file is `path`, by default `<id>.h5` in the current directory with "-" for "/". The instance
    of an episode is read from its infos; by default it is the dataset's id.
    """
    minari = _minari()
    import gymnasium

    found = minari.load_dataset(dataset) if isinstance(dataset, str) else dataset
    observations = found.observation_space
    space = _action_space(found)
    if not isinstance(observations, gymnasium.spaces.Box) or len(observations.shape) != 1:
        raise DataError(f"The observations of {found.id} are {observations}, expected vectors.")
    target = Path(path) if path is not None else Path(found.id.replace("/", "-") + ".h5")
    with DatasetWriter(
        target,
        action_space=space,
        observation_dim=observations.shape[0],
        extra={"minari": found.id},
    ) as writer:
        seeds = found.storage.get_episode_metadata(found.episode_indices)
        for episode, about in zip(found.iterate_episodes(), seeds, strict=True):
            steps = len(episode.rewards)
            infos = episode.infos or {}
            propensities = infos.get(_logged_name(space))
            actions = np.asarray(episode.actions)
            writer.append(
                instance=_word(infos.get("instance"), found.id),
                observations=episode.observations,
                actions=actions if space.shape else actions - int(found.action_space.start),
                rewards=episode.rewards,
                terminated=bool(episode.terminations[-1]),
                truncated=bool(episode.truncations[-1]),
                propensities=None if propensities is None else propensities[:steps],
                behaviour=_word(infos.get("behaviour"), "unknown"),
                seed=int(about.get("seed") or 0),
            )
    return load_dataset(target)


def _action_space(found: Any) -> ActionSpace:
    """The action space of a Minari dataset, or a DataError."""
    import gymnasium

    actions = found.action_space
    if isinstance(actions, gymnasium.spaces.Discrete):
        return Finite.of(int(actions.n))
    if not isinstance(actions, gymnasium.spaces.Box) or len(actions.shape) != 1:
        raise DataError(
            f"The actions of {found.id} are {actions}, expected Discrete(n), or a Box of vectors."
        )
    try:
        return Box.of(actions.low, actions.high)
    except ConfigError as error:
        raise DataError(f"The actions of {found.id} are {actions}: {error}") from error


def _logged_name(space: ActionSpace) -> str:
    """The name among the infos of what the behaviour logged."""
    return "propensities" if space.propensity_shape else "log_densities"


def _word(values: Any, default: str) -> str:
    """The first of an info's strings, which HDF5 returns as bytes."""
    if values is None or not len(values):
        return default
    first = values[0]
    return first.decode() if isinstance(first, bytes) else str(first)

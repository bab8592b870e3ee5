"""Datasets as another file, several as one, to d3rlpy, and to and from Minari."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.actions.space import named
from sept_offline.data.dataset import Dataset, load_dataset, open_source
from sept_offline.data.filesystems import Place, kind_of, locate
from sept_offline.data.problems import check_structure
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import RowCounter, Source, content_hash
from sept_offline.data.writer import DatasetWriter, publish
from sept_offline.errors import ConfigError, DataError, one_line
from sept_offline.files import Workspace, real_path
from sept_offline.progress import Progress, Silent

if TYPE_CHECKING:
    import d3rlpy.dataset
    import minari

EVERY = 500
"""Episodes between two updates of the progress."""


def convert(source: str | Place, target: str | Path, progress: RowCounter | None = None) -> str:
    """Write the dataset at `source` to `target` (.h5 or .parquet); return its content hash.

    A source whose content does not match its hash is an error: a copy would look valid.
    """
    target = Path(target)
    kind_of(target)
    columns, hidden = open_source(source)
    try:
        check_structure(columns)
        _check_hash(columns, hidden)
        with Workspace(target) as work:
            return publish(work, columns, hidden, progress)
    finally:
        columns.close()


def _check_hash(columns: Source, hidden: HiddenTable | None) -> None:
    """Refuse columns whose content is not what their hash says."""
    stored = columns.header.content_hash
    if stored is not None and content_hash(columns, hidden) != stored:
        raise DataError(
            f"The content of {columns.path} does not match its hash: it is damaged or was edited; "
            "run `sept-offline validate` on it, then restore it or write it again."
        )


def merge(
    sources: Sequence[str | Place],
    target: str | Path,
    *,
    separate: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Write the episodes of several datasets of one system to `target` (.h5 or .parquet).

    The datasets must have the same action space and number of observed columns, and must not
    contradict each other in the family, in names, or in an instance's hidden parameters. An id that
    two datasets share is one instance; with `separate` every id gets its file's name as a prefix,
    and none is shared. Probabilities and hidden parameters that a dataset does not know stay
    unknown. The probe length is the shortest that any of them names; of other metadata, what all
    agree on is kept. Episodes are read one by one; the same sources in the same order give the same
    bytes.
    """
    target = Path(target)
    kind_of(target)
    if isinstance(sources, str) or len(sources) < 2:
        raise DataError("Name at least two datasets to merge.")
    for source in sources:
        place = locate(source)
        if isinstance(place, Path) and real_path(place) == real_path(target):
            raise DataError(f"{target} is one of the datasets to merge; write to another file.")
    progress = progress or Silent()
    with contextlib.ExitStack() as stack:
        every = [stack.enter_context(load_dataset(source)) for source in sources]
        _check_one_system(every)
        for data in every:
            _check_hash(data._source, data.hidden)
        _check_once(every)
        ids = _instance_ids(every, separate)
        _write(every, ids, target, progress)
    return load_dataset(target)


def _check_one_system(every: Sequence[Dataset]) -> None:
    """Refuse datasets of different systems, and say in what they differ."""
    first = every[0]
    for other in every[1:]:
        mine, theirs = first.observation_dim, other.observation_dim
        if mine != theirs:
            raise _contradiction(first, other, "observation_dim", mine, theirs)
        if _unnamed(first) != _unnamed(other):
            actions, others = first.action_space.expected, other.action_space.expected
            raise _contradiction(first, other, "the action space", actions, others)
    for what in ("family", "observation_names", "action_names"):
        known = [data for data in every if _metadata(data, what) is not None]
        for other in known[1:]:
            mine, theirs = _metadata(known[0], what), _metadata(other, what)
            if mine != theirs:
                raise _contradiction(known[0], other, what, mine, theirs)


def _metadata(data: Dataset, what: str) -> Any:
    """What a dataset's metadata says; a box always has names, and default ones say nothing."""
    value = getattr(data.metadata, what)
    width = data.action_space.width
    return None if what == "action_names" and value == named(None, width, "actions") else value


def _unnamed(data: Dataset) -> dict[str, Any]:
    """The action space without its names, which a dataset need not know."""
    return {**data.action_space.describe(), "names": data.action_space.width}


def _contradiction(
    first: Dataset, other: Dataset, what: str, mine: object, theirs: object
) -> DataError:
    return DataError(
        f"{first.path} and {other.path} are of different systems: {what} is {mine!r:.200} in the "
        f"first and {theirs!r:.200} in the second."
    )


def _check_once(every: Sequence[Dataset]) -> None:
    """Refuse the same content twice: its episodes would count double."""
    seen: dict[str, Dataset] = {}
    for data in every:
        other = seen.setdefault(data.content_hash, data)
        if other is not data:
            raise DataError(
                f"{other.path} and {data.path} contain the same episodes; name only one of them."
            )


def _instance_ids(every: Sequence[Dataset], separate: bool) -> list[list[str]]:
    """The ids in the merged dataset of each dataset's instances."""
    if not separate:
        return [data.instances for data in every]
    stems = [Path(str(data.path)).stem for data in every]
    prefixes = [
        stem if stems.count(stem) == 1 else f"{stem}-{number}" for number, stem in enumerate(stems)
    ]
    if len(set(prefixes)) < len(prefixes):
        prefixes = [f"{number}-{stem}" for number, stem in enumerate(stems)]
    return [
        [f"{prefix}/{name}" for name in data.instances]
        for prefix, data in zip(prefixes, every, strict=True)
    ]


def _hidden(every: Sequence[Dataset], ids: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """The hidden parameters of each merged instance; empty if no dataset has any."""
    known: dict[str, dict[str, float]] = {}
    by: dict[tuple[str, str], Dataset] = {}
    for data, names in zip(every, ids, strict=True):
        for row, instance in enumerate(names):
            values = known.setdefault(instance, {})
            for name, value in (data.hidden[row] if data.hidden is not None else {}).items():
                if np.isnan(value):
                    continue
                if values.setdefault(name, value) != value:
                    raise DataError(
                        f"{by[instance, name].path} and {data.path} contradict each other: the "
                        f"hidden parameter {name!r} of instance {instance!r} is {values[name]} in "
                        f"the first and {value} in the second; if they are different instances, "
                        "add --separate (separate=True)."
                    )
                by.setdefault((instance, name), data)
    return known if any(known.values()) else {}


def _write(
    every: Sequence[Dataset], ids: Sequence[Sequence[str]], target: Path, progress: Progress
) -> None:
    metas = [data.metadata for data in every]

    def given(what: str) -> Any:
        """The one value that the datasets give, if any gives one."""
        return next((value for data in every if (value := _metadata(data, what)) is not None), None)

    probes = [meta.probe_steps for meta in metas if meta.probe_steps is not None]
    seeds = {meta.root_seed for meta in metas}
    hidden = _hidden(every, ids)
    total, done = sum(data.num_episodes for data in every), 0
    progress.start("merging", float(total), "episodes")
    with DatasetWriter.like(
        every[0],
        target,
        family=given("family"),
        family_arguments=_agreed([meta.family_arguments for meta in metas]),
        observation_names=given("observation_names"),
        action_names=given("action_names"),
        root_seed=seeds.pop() if len(seeds) == 1 else None,
        hidden=hidden or None,
        instances=list(dict.fromkeys(name for names in ids for name in names)),
        probe_steps=min(probes, default=None),
        extra={
            **_agreed([meta.extra for meta in metas]),
            "merged": [
                {"content_hash": data.content_hash, "episodes": data.num_episodes} for data in every
            ],
        },
    ) as writer:
        for data, names in zip(every, ids, strict=True):
            renamed = dict(zip(data.instances, names, strict=True))
            for episode in data.episodes():
                writer.copy(episode, instance=renamed[episode.instance])
                done += 1
                if done % EVERY == 0:
                    progress.update(done)
        progress.update(total)
    progress.finish()


def _agreed(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all have, with the same value."""
    first, *others = every
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


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


def _stored(name: str) -> Any:
    """The dataset of that id in Minari's store on this machine."""
    try:
        return _minari().load_dataset(name)
    except FileNotFoundError as error:
        raise DataError(
            f"Minari has no dataset {name!r:.120} on this machine; download it first, or choose "
            "one that `minari list local` names."
        ) from error
    except ValueError as error:  # no valid id, or a dataset of another version
        raise DataError(
            f"Minari cannot load {name!r:.120}: {one_line(error).rstrip('.')}."
        ) from error


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
    import gymnasium

    source = _stored(dataset) if isinstance(dataset, str) else dataset
    observations = source.observation_space
    space = _action_space(source)
    if not isinstance(observations, gymnasium.spaces.Box) or len(observations.shape) != 1:
        raise DataError(f"The observations of {source.id} are {observations}, expected vectors.")
    target = Path(path) if path is not None else Path(source.id.replace("/", "-") + ".h5")
    with DatasetWriter(
        target,
        action_space=space,
        observation_dim=observations.shape[0],
        extra={"minari": source.id},
    ) as writer:
        seeds = source.storage.get_episode_metadata(source.episode_indices)
        for episode, about in zip(source.iterate_episodes(), seeds, strict=True):
            steps = len(episode.rewards)
            infos = episode.infos or {}
            propensities = infos.get(_logged_name(space))
            actions = np.asarray(episode.actions)
            writer.append(
                instance=_word(infos.get("instance"), source.id),
                observations=episode.observations,
                actions=actions if space.shape else actions - int(source.action_space.start),
                rewards=episode.rewards,
                terminated=bool(episode.terminations[-1]),
                truncated=bool(episode.truncations[-1]),
                propensities=None if propensities is None else propensities[:steps],
                behaviour=_word(infos.get("behaviour"), "unknown"),
                seed=int(about.get("seed") or 0),
            )
    return load_dataset(target)


def _action_space(source: Any) -> ActionSpace:
    """The action space of a Minari dataset, or a DataError."""
    import gymnasium

    actions = source.action_space
    if isinstance(actions, gymnasium.spaces.Discrete):
        return Finite.of(int(actions.n))
    if not isinstance(actions, gymnasium.spaces.Box) or len(actions.shape) != 1:
        raise DataError(
            f"The actions of {source.id} are {actions}, expected Discrete(n), or a Box of vectors."
        )
    try:
        return Box.of(actions.low, actions.high)
    except ConfigError as error:
        raise DataError(f"The actions of {source.id} are {actions}: {error}") from error


def _logged_name(space: ActionSpace) -> str:
    """The key of the propensities in the infos of an episode."""
    return "propensities" if space.propensity_shape else "log_densities"


def _word(values: Any, default: str) -> str:
    """The first of an info's strings, which HDF5 returns as bytes."""
    if values is None or not len(values):
        return default
    first = values[0]
    return first.decode() if isinstance(first, bytes) else str(first)

"""The dataset as a learner sees it: lazy, columnar, hidden parameters apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.filesystems import (
    HDF5_SUFFIXES,
    Folder,
    Place,
    Remote,
    check_place,
    place_kind,
)
from sept_offline.data.hdf5 import Hdf5Source, hdf5_bytes_intact, read_hdf5_hidden
from sept_offline.data.parquet import parquet_bytes_intact, read_manifest
from sept_offline.data.parquet_source import ParquetSource, read_parquet_hidden
from sept_offline.data.problems import check_structure
from sept_offline.data.records import (
    Episode,
    EpisodeIndex,
    HiddenTable,
    Int64,
    Metadata,
    Segments,
    Steps,
    whole,
)
from sept_offline.data.source import (
    Source,
    StackedSource,
    content_hash,
    take_any,
    unlike_checksum,
)
from sept_offline.errors import DataError
from sept_offline.limits import LONGEST_STACK, read_whole

if TYPE_CHECKING:
    import d3rlpy.dataset
    import minari


def load_dataset(path: str | Place, *, check: bool = False) -> Dataset:
    """Open an HDF5 file, a Parquet file or a directory of Parquet files; columns are read later.

    Parquet may be on any filesystem that pyarrow supports: `s3://bucket/logs`. With `check` every
    byte is compared with the file's checksum first; otherwise damage is detected when the damaged
    part is read, or by `validate`.
    """
    if check and not bytes_intact(check_place(path)):
        raise unlike_checksum(path)
    source, hidden = open_source(path)
    try:
        check_structure(source)
    except DataError:
        source.close()
        raise
    return Dataset(source, source.index, hidden, hash_of_file=source.header.content_hash)


@contextlib.contextmanager
def opened(data: Dataset | str | Place, *, check: bool = False) -> Iterator[Dataset]:
    """A dataset that is open already, or one that is opened here and closed at the end."""
    if isinstance(data, Dataset):
        yield data
    else:
        with load_dataset(data, check=check) as dataset:
            yield dataset


def load_in_memory(path: str | Place) -> Dataset:
    """A whole dataset in memory: every byte is read once, and compared with its checksum."""
    source, hidden = open_source(path, check=True)
    try:
        check_structure(source)
        columns = source.in_memory()
    finally:
        source.close()
    return Dataset(columns, source.index, hidden, hash_of_file=source.header.content_hash)


def bytes_intact(path: Place) -> bool:
    """Whether a file matches its own digest; True for files without one."""
    try:
        if place_kind(path) == "directory":
            folder = Folder(path)
            manifest = read_manifest(folder)
            parts = manifest.parts if manifest is not None else ()
            return all(parquet_bytes_intact(path, folder.name(part.name)) for part in parts)
        if isinstance(path, Path) and path.suffix.lower() in HDF5_SUFFIXES:
            return hdf5_bytes_intact(path)
        return parquet_bytes_intact(path) is not False
    except (pa.ArrowException, OSError, ValueError, DataError):
        return False


def open_source(
    path: str | Place, *, scan: bool = False, check: bool = False
) -> tuple[Source, HiddenTable | None]:
    """The columns of a path, and apart from them its hidden parameters; nothing is checked yet.

    With `check` the bytes of files are compared with their checksums as they are opened.
    """
    place = check_place(path)
    source: Source
    folder = Folder(place) if place_kind(place) == "directory" else None
    if folder is not None or place.suffix.lower() not in HDF5_SUFFIXES:
        manifest = None if folder is None else read_manifest(folder)
        source = ParquetSource(place, manifest=manifest, scan=scan, check=check)
        return source, read_parquet_hidden(place, manifest, len(source.header.instances))
    if isinstance(place, Remote):
        raise DataError(f"{place} is HDF5, which can only be read from local files; copy it first.")
    content = read_whole(place, DataError) if check else None
    if content is not None and not hdf5_bytes_intact(place, content):
        raise unlike_checksum(place)
    source = Hdf5Source(place, content)
    try:
        return source, read_hdf5_hidden(place, len(source.header.instances), content)
    except DataError:
        source.close()
        raise


class Dataset:
    """Logged episodes, grouped by instance; data are read from the file when they are needed.

    Open one with `load_dataset`. `select`, `stacked` and the `without_…` methods return views of
    the same file. All views have the same `instances`, so instance numbers mean the same in each.
    """

    def __init__(
        self,
        source: Source,
        index: EpisodeIndex,
        hidden: HiddenTable | None,
        *,
        hash_of_file: str | None,
        propensities: bool = True,
    ) -> None:
        self._source = source
        self._hash = hash_of_file
        self._with_propensities = propensities and "propensities" in source.columns
        self.episode_index = index
        self.hidden = hidden
        """Hidden parameters, one row per instance; None if unknown. Learners never see them."""

    @property
    def path(self) -> Place:
        """The path of the file or directory."""
        return self._source.path

    @property
    def instances(self) -> list[str]:
        """The ids of the instances, in order."""
        return list(self._source.header.instances)

    @property
    def metadata(self) -> Metadata:
        """The metadata of the file."""
        return self._source.header.metadata

    @property
    def action_space(self) -> ActionSpace:
        """The action space: a finite set, or a `Box` for continuous actions."""
        return self._source.header.action_space

    @property
    def num_actions(self) -> int:
        """Number of discrete actions; raises a DataError if the actions are continuous."""
        space = self.action_space
        if space.shape:
            raise DataError(
                f"{self.path} has continuous actions, {space.expected}; this works for "
                "discrete actions only."
            )
        return space.width

    @property
    def observation_dim(self) -> int:
        """Number of columns of an observation."""
        return self._source.header.observation_dim

    @property
    def present_dim(self) -> int:
        """Number of columns of the current observation, which come first in a stacked view."""
        source = self._source
        return source.stack.dim if isinstance(source, StackedSource) else self.observation_dim

    @property
    def num_episodes(self) -> int:
        """Number of episodes in this view."""
        return len(self.episode_index)

    @property
    def num_steps(self) -> int:
        """Number of steps in this view."""
        return int(self.episode_index.length.sum())

    @property
    def has_propensities(self) -> bool:
        """Whether the behaviour's probabilities are known for at least some steps."""
        return self._with_propensities

    @cached_property
    def content_hash(self) -> str:
        """The hash of the whole file's content, for any view."""
        return self._hash or content_hash(self._source, self.hidden)

    def __repr__(self) -> str:
        return (
            f"Dataset({str(self.path)!r}: {len(self.instances)} instances, "
            f"{self.num_episodes} episodes, {self.num_steps} steps)"
        )

    def episodes(self, instance: str | None = None) -> Episodes:
        """All episodes, or those of one instance, as a sequence; each is read when accessed."""
        if instance is None:
            return Episodes(self, np.arange(self.num_episodes, dtype=np.int64))
        if instance not in self.instances:
            known = ", ".join(self.instances[:8]) + (", …" if len(self.instances) > 8 else "")
            raise DataError(f"{self.path} has no instance {instance!r}; it has {known}.")
        code = self.instances.index(instance)
        return Episodes(self, np.flatnonzero(self.episode_index.instance == code).astype(np.int64))

    def segments(self, n: int) -> Segments:
        """The first n steps of every episode with at least n steps, stacked; reads only those."""
        n = whole(n, "n of segments(n)")
        if n < 1:
            raise DataError(f"segments(n) needs at least one step, found n = {n}.")
        long_enough = self.episode_index.length >= n
        index = self.episode_index.take(np.flatnonzero(long_enough))
        # Where no episode is that long there is nothing to number, however long that is.
        times = np.arange(n + 1 if len(index) else 1)

        def stacked(name: str) -> NDArray[Any]:
            first, count = (index.offset, n) if name != "observations" else (index.first_row, n + 1)
            values = self._read(name, (first[:, None] + times[:count]).reshape(-1))
            return values.reshape(len(index), count, *values.shape[1:])

        return Segments(
            observations=stacked("observations"),
            actions=stacked("actions"),
            rewards=stacked("rewards"),
            propensities=stacked("propensities") if self.has_propensities else None,
            instance=index.instance,
            episode=index.number,
            skipped=int((~long_enough).sum()),
        )

    def steps(self) -> Steps:
        """All steps of this view as columns in memory, for learners."""
        whole = self.episode_index is self._source.index
        return self._all_steps if whole and self._source.kept else self._read_steps()

    @cached_property
    def _all_steps(self) -> Steps:
        return self._read_steps()

    def _read_steps(self) -> Steps:
        index, read = self.episode_index, self._read
        steps = _ranges(index.offset, index.length)
        position = np.repeat(np.arange(len(index)), index.length)
        rows = _ranges(index.first_row, index.length + 1)
        return Steps(
            observations=read("observations", rows),
            actions=read("actions", steps),
            rewards=read("rewards", steps),
            propensities=read("propensities", steps) if self.has_propensities else None,
            terminations=read("terminations", steps),
            truncations=read("truncations", steps),
            row=np.arange(len(steps), dtype=np.int64) + position,
            episode=index.number[position],
            instance=index.instance[position],
            time=steps - index.offset[position],
        )

    def columns(self, *names: str) -> dict[str, NDArray[Any]]:
        """The named per-step columns of this view, [N, …] each, without reading the others."""
        if "propensities" in names and not self.has_propensities:
            raise DataError(f"{self.path}: this view has no propensities.")
        if "observations" in names:
            raise DataError("Observations have one more row per episode than steps; use steps().")
        index = self.episode_index
        steps = _ranges(index.offset, index.length)
        return {name: self._read(name, steps) for name in names}

    def _read(self, name: str, rows: Int64) -> NDArray[Any]:
        """Rows of a column in any order."""
        return take_any(self._source, name, rows)

    def in_memory(self) -> Dataset:
        """The same view with all columns in memory; the file is not read again."""
        return self if self._source.kept else self._view(source=self._source.in_memory())

    def without_hidden(self) -> Dataset:
        """A view without the hidden parameters: `hidden` is None."""
        return self._view(hidden=None)

    def without_propensities(self) -> Dataset:
        """A view without the behaviour's probabilities, as if they had not been logged."""
        return self._view(propensities=False)

    def select(self, episodes: ArrayLike) -> Dataset:
        """A view of some episodes, given by a bool mask or by their positions in this view."""
        chosen = np.asarray(episodes)
        if chosen.dtype == np.bool_:
            if chosen.shape != (self.num_episodes,):
                raise DataError(
                    f"select(mask): expected {self.num_episodes} values, found {chosen.shape}."
                )
            chosen = np.flatnonzero(chosen)
        elif chosen.size == 0:
            chosen = np.zeros(0, dtype=np.int64)
        if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
            raise DataError("select() takes a bool mask or a vector of episode positions.")
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < self.num_episodes):
            raise DataError(
                f"select(): positions must lie in 0 … {self.num_episodes - 1}, found "
                f"{chosen.min()} … {chosen.max()}."
            )
        index = self.episode_index.take(chosen.astype(np.int64))
        return self._view(index=index)

    def stacked(self, n: int) -> Dataset:
        """A view whose observations are stacked with the last n − 1 observations and actions.

        `observation_dim` and the columns' names are those of the stacked rows; `Stack` says which
        column is where.
        """
        if not 1 <= n <= LONGEST_STACK:
            raise DataError(f"stacked(n) expects 1 ≤ n ≤ {LONGEST_STACK}, found {n}.")
        if n == 1:
            return self
        return self._view(source=StackedSource(self._source, n))

    def _view(self, **changes: Any) -> Dataset:
        """This view with another source, index, hidden parameters or propensities."""
        same: dict[str, Any] = {
            "source": self._source,
            "index": self.episode_index,
            "hidden": self.hidden,
            "hash_of_file": self.content_hash,
            "propensities": self._with_propensities,
        }
        return Dataset(**(same | changes))

    def close(self) -> None:
        """Close the file; this view and all views of the same file can no longer be read."""
        self._source.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def to_d3rlpy(self) -> d3rlpy.dataset.ReplayBuffer:
        """A d3rlpy replay buffer with exactly the transitions of this view."""
        from sept_offline.data.exchange import to_d3rlpy

        return to_d3rlpy(self)

    def to_minari(self, dataset_id: str, **options: Any) -> minari.MinariDataset:
        """A Minari dataset in Minari's own store; needs the extra `sept-offline[minari]`."""
        from sept_offline.data.exchange import to_minari

        return to_minari(self, dataset_id, **options)


def _ranges(starts: Int64, lengths: Int64) -> Int64:
    """start, start+1, … for each (start, length), end to end."""
    ends = np.cumsum(lengths)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    return np.repeat(starts, lengths) + within


class Episodes(Sequence[Episode]):
    """A sequence of episodes, each read from the file on access."""

    def __init__(self, data: Dataset, positions: Int64) -> None:
        self._data = data
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, item: int) -> Episode: ...
    @overload
    def __getitem__(self, item: slice) -> Episodes: ...
    def __getitem__(self, item: int | slice) -> Episode | Episodes:
        if isinstance(item, slice):
            return Episodes(self._data, self._positions[item])
        if not -len(self) <= item < len(self):
            raise IndexError(f"episode {item} of {len(self)}")
        return self._episode(int(self._positions[item]))

    def _episode(self, position: int) -> Episode:
        data, index = self._data, self._data.episode_index
        source = data._source
        first, length = int(index.offset[position]), int(index.length[position])
        number = int(index.number[position])
        steps = np.arange(first, first + length)
        last = steps[-1:]
        return Episode(
            instance=data.instances[index.instance[position]],
            observations=source.take(
                "observations", np.arange(first + number, first + number + length + 1)
            ),
            actions=source.take("actions", steps),
            rewards=source.take("rewards", steps),
            propensities=source.take("propensities", steps) if data.has_propensities else None,
            terminated=bool(source.take("terminations", last)[0]),
            truncated=bool(source.take("truncations", last)[0]),
            behaviour=data.metadata.behaviours[index.behaviour[position]],
            seed=int(index.seed[position]),
            index=number,
        )

"""Logging episodes from any loop: spooled to disk as they come, sorted and published at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.data.checks import (
    CheckedEpisode,
    check_episode,
    hidden_table,
    json_ready,
    whole,
)
from sept_offline.data.conversion import publish
from sept_offline.data.filesystems import kind_of
from sept_offline.data.mapped_column import MappedColumn
from sept_offline.data.records import Episode, EpisodeIndex, Metadata, Problem
from sept_offline.data.source import DTYPES, Header, MemorySource, in_memory
from sept_offline.errors import ConfigError, DataError
from sept_offline.files import Workspace, writing
from sept_offline.limits import MOST_ACTIONS
from sept_offline.versions import versions as library_versions

COPIED = (
    "instance",
    "observations",
    "actions",
    "rewards",
    "terminated",
    "truncated",
    "propensities",
    "behaviour",
    "seed",
)
"""The arguments of an episode."""


class DatasetWriter:
    """Write a dataset, `.h5` or `.parquet`, episode by episode, in bounded memory.

    Episodes may be appended in any order. The file groups them by instance, in the order of
    `instances` or of first appearance. The complete file appears when the `with` block ends or
    `close()` is called. After an error or a kill, the old file remains, or none.

        with DatasetWriter("log.h5", num_actions=3) as writer:
            writer.append(instance="pump-7", observations=o, actions=a, rewards=r,
                          terminated=False, truncated=True)

    Pass `num_actions` for discrete actions 0 … `num_actions` − 1, or for continuous actions
    `action_space=Box.of([-1, 0], [1, 5])`. `hidden` maps instance ids to their hidden parameters,
    `probe_steps` is the probe length that `fit` uses by default.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        num_actions: int | None = None,
        action_space: ActionSpace | None = None,
        observation_dim: int | None = None,
        family: str | None = None,
        family_arguments: Mapping[str, Any] | None = None,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        root_seed: int | None = None,
        hidden: Mapping[str, Mapping[str, float]] | None = None,
        instances: Sequence[str] | None = None,
        probe_steps: int | None = None,
        extra: Mapping[str, Any] | None = None,
        versions: Mapping[str, str] | None = None,
        plan: str | None = None,
    ) -> None:
        self.path = Path(path)
        kind_of(self.path)
        self._space, stored_names = _action_space(num_actions, action_space, action_names)
        named, dim = observation_names, observation_dim
        if named is not None and dim is not None and len(named) != dim:
            raise DataError(f"observation_names has {len(named)} names, expected {dim}.")
        if instances is not None and len(set(instances)) != len(instances):
            raise DataError("instances names an instance twice.")
        self._dim = observation_dim
        if observation_dim is None and observation_names is not None:
            self._dim = len(observation_names)
        if probe_steps is not None and whole(probe_steps, "probe_steps") < 0:
            raise DataError(f"probe_steps is {probe_steps}; expected 0 or more.")
        self._hidden = hidden
        self._declared = (
            None if instances is None else {name: i for i, name in enumerate(instances)}
        )
        self._metadata = Metadata(
            family=family,
            family_arguments=json_ready(family_arguments or {}, "family_arguments"),
            observation_names=None
            if observation_names is None
            else tuple(map(str, observation_names)),
            action_names=stored_names,
            root_seed=None if root_seed is None else whole(root_seed, "root_seed"),
            versions=dict(written_by() if versions is None else versions),
            probe_steps=None if probe_steps is None else whole(probe_steps, "probe_steps"),
            extra=json_ready(extra or {}, "extra"),
            plan=plan,
        )
        self._instances: dict[str, int] = dict(self._declared or {})
        self._behaviours: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, int]] = []
        self._knows_propensities = False
        self._work = Workspace(self.path)
        self._files: dict[str, BinaryIO] = {}
        try:
            with writing(self.path):
                for name in DTYPES:
                    spooled = self._work.directory / name
                    self._files[name] = spooled.open("wb", buffering=1 << 20)
        except DataError:
            self.abort()
            raise

    def append(
        self,
        *,
        instance: str,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminated: bool,
        truncated: bool,
        propensities: ArrayLike | None = None,
        log_densities: ArrayLike | None = None,
        behaviour: str = "unknown",
        seed: int = 0,
    ) -> None:
        """Append one whole episode: T+1 observations [T+1, d], T actions and rewards [T].

        `terminated` and `truncated` describe the last step; one of them must be true.
        `propensities` [T, A] are the behaviour's probabilities of all actions. Unknown values are
        NaN: a whole row, or all of a row but the logged action. Omit the argument if all are
        unknown.

        Continuous actions are [T, k], and `log_densities` [T] (also accepted as `propensities`) are
        the behaviour's log-densities of them; NaN where unknown.
        """
        if not self._files:
            raise DataError(f"The writer of {self.path} is closed; create a new one.")
        if self._declared is not None and instance not in self._declared:
            raise DataError(
                f"Episode {len(self._rows)} names the instance {instance!r}, which is not among "
                "the writer's instances."
            )
        episode: CheckedEpisode = check_episode(
            place=f"episode {len(self._rows)} of instance {instance!r}",
            space=self._space,
            dim=self._dim,
            observations=observations,
            actions=actions,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            propensities=self._logged(propensities, log_densities),
            seed=seed,
        )
        self._dim = episode.columns["observations"].shape[1]
        with writing(self.path):
            for name, values in episode.columns.items():
                self._files[name].write(values.tobytes())
        self._knows_propensities |= episode.knows_propensities
        self._rows.append(
            (
                len(episode.columns["actions"]),
                self._instances.setdefault(str(instance), len(self._instances)),
                self._behaviours.setdefault(str(behaviour), len(self._behaviours)),
                int(seed),
            )
        )

    def _logged(
        self, propensities: ArrayLike | None, log_densities: ArrayLike | None
    ) -> ArrayLike | None:
        if log_densities is None:
            return propensities
        if self._space.propensity_shape or propensities is not None:
            raise DataError(
                "log_densities are the propensities of continuous actions; pass propensities for "
                "discrete actions, and one of the two for continuous ones."
            )
        return log_densities

    def copy(self, episode: Episode, **changes: Any) -> None:
        """Append an episode of another dataset; `changes` replaces arguments of `append`.

        writer.copy(episode, instance="pump-7")
        """
        self.append(**({name: getattr(episode, name) for name in COPIED} | changes))

    def close(self, progress: Callable[[str, int], None] | None = None) -> None:
        """Write the file and put it in place; a second call does nothing."""
        if not self._files:
            return
        try:
            with writing(self.path):
                for file in self._files.values():
                    file.close()
            if not self._rows:
                raise DataError(f"Nothing was written to {self.path}: no episode was appended.")
            spool = self._spool()
            hidden = hidden_table(self._hidden, spool.header.instances)
            publish(self._work, spool, hidden, progress)
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard all appended episodes; no file is written."""
        for file in self._files.values():
            # On a full disk the last flush fails too; what it held is being thrown away.
            with contextlib.suppress(OSError):
                file.close()
        self._files = {}
        self._work.close()

    def _spool(self) -> Spool:
        """The spooled columns behind an index sorted by instance."""
        length, instance, behaviour, seed = np.asarray(self._rows, dtype=np.int64).T
        written = np.cumsum(length) - length
        order = np.argsort(instance, kind="stable")
        # Declared instances without episodes are dropped.
        present, instance_code = np.unique(instance[order], return_inverse=True)
        names = list(self._instances)
        _, first, codes = np.unique(behaviour[order], return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        behaviours = [list(self._behaviours)[b] for b in behaviour[order][np.sort(first)]]
        sorted_length = length[order]
        index = EpisodeIndex(
            number=np.arange(len(order), dtype=np.int64),
            offset=np.cumsum(sorted_length) - sorted_length,
            length=sorted_length,
            instance=instance_code.astype(np.int64),
            behaviour=rank[codes].astype(np.int64),
            seed=seed[order],
        )
        header = Header(
            action_space=self._space,
            observation_dim=self._dim or 0,
            instances=tuple(names[i] for i in present),
            metadata=_with_behaviours(self._metadata, behaviours),
            content_hash=None,
        )
        return Spool(
            self._work.directory,
            header,
            index,
            {"steps": written[order], "observations": written[order] + order},
            self._knows_propensities,
        )

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


def _action_space(
    num_actions: int | None, space: ActionSpace | None, names: Sequence[str] | None
) -> tuple[ActionSpace, tuple[str, ...] | None]:
    """The space of a writer, and the names to store; discrete actions may have none."""
    if (num_actions is None) == (space is None):
        raise DataError("Pass num_actions for discrete actions, or action_space.")
    count = space.width if space is not None else num_actions or 0
    if not 1 <= count <= MOST_ACTIONS:
        raise DataError(
            f"num_actions must be at least 1 and at most {MOST_ACTIONS}, found {count}."
        )
    if names is not None and len(names) != count:
        raise DataError(f"action_names has {len(names)} names, expected {count}.")
    try:
        if isinstance(space, Box):
            box = Box.of(space.low, space.high, names or space.names)
            return box, box.names
    except ConfigError as error:
        raise DataError(str(error)) from error
    plain = Finite.of(count)
    if names is None and space is not None and space != plain:
        names = space.names
    return Finite.of(count, names), None if names is None else tuple(names)


def _with_behaviours(metadata: Metadata, behaviours: list[str]) -> Metadata:
    return replace(metadata, behaviours=tuple(behaviours))


class Spool:
    """Raw columns in the order they were appended, read in the order of a sorted index."""

    kept = False

    def __init__(
        self,
        directory: Path,
        header: Header,
        index: EpisodeIndex,
        written: Mapping[str, NDArray[np.int64]],
        knows_propensities: bool,
    ) -> None:
        self.path = directory
        self.header = header
        self.index = index
        self.defects: Sequence[Problem] = ()
        self._written = written
        self._first_rows = index.offset + np.arange(len(index))
        self.columns = header.columns_of(index)
        if not knows_propensities:
            del self.columns["propensities"]
        self._raw = {
            name: MappedColumn(directory / name, dtype, shape)
            for name, (dtype, shape) in self.columns.items()
        }

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The given rows of the sorted column."""
        raw = self._raw[name]
        if not len(rows):
            return raw.array[:0]
        if name == "observations":
            starts, written = self._first_rows, self._written["observations"]
        else:
            starts, written = self.index.offset, self._written["steps"]
        low, high = int(rows[0]), int(rows[-1]) + 1
        if high - low != len(rows):
            episode = np.searchsorted(starts, rows, side="right") - 1
            return raw.gather(written[episode] + rows - starts[episode])
        # Rows without a gap, as every pass over a column asks for, are found by their episodes.
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high - 1, side="right"))
        moved = written[first:last] - starts[first:last]
        if (moved == moved[0]).all():
            values = np.array(raw.array[low + moved[0] : high + moved[0]])
            raw.used(values.nbytes)
            return values
        counts = np.diff(np.append(np.maximum(starts[first:last], low), high))
        return raw.gather(rows + np.repeat(moved, counts))

    def in_memory(self) -> MemorySource:
        """See Source."""
        return in_memory(self)

    def close(self) -> None:
        """Let go of the maps."""
        self._raw.clear()


def written_by() -> dict[str, str]:
    """Name and version of what shapes the bytes of a file."""
    found = library_versions()
    return {name: found[name] for name in ("sept-offline", "python", "numpy", "h5py", "pyarrow")}

"""Logging episodes from any loop: spooled to disk as they come, sorted and published at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.data.filesystems import Folder, kind_of
from sept_offline.data.hdf5 import write_hdf5
from sept_offline.data.parquet import Manifest, write_manifest, write_parquet
from sept_offline.data.parquet_source import ParquetSource
from sept_offline.data.records import Episode, EpisodeIndex, HiddenTable, Int64, Metadata, whole
from sept_offline.data.source import DTYPES, Header, RowCounter, Source, content_hash
from sept_offline.data.spool import SortedSpool, Spool
from sept_offline.data.validation import (
    check_episode,
    hidden_row,
    hidden_table,
    json_ready,
    storable,
)
from sept_offline.errors import ConfigError, DataError
from sept_offline.files import Workspace, writing
from sept_offline.limits import MOST_ACTIONS
from sept_offline.versions import versions as library_versions

if TYPE_CHECKING:
    from sept_offline.data.dataset import Dataset

COPIED = tuple(field.name for field in fields(Episode) if field.name != "index")
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
        names = None if observation_names is None else tuple(map(str, observation_names))
        if names is not None and observation_dim not in (None, len(names)):
            raise DataError(
                f"observation_names has {len(names)} names, expected {observation_dim}."
            )
        if family is not None and not isinstance(family, str):
            raise DataError(f"family is {family!r:.60}; expected its name.")
        named = [storable(name, "The instance") for name in instances or ()]
        if len(set(named)) != len(named):
            raise DataError("instances names an instance twice.")
        self._dim = observation_dim if names is None else len(names)
        probe = None if probe_steps is None else whole(probe_steps, "probe_steps")
        if probe is not None and probe < 0:
            raise DataError(f"probe_steps is {probe_steps}; expected 0 or more.")
        self._hidden = hidden
        self._metadata = Metadata(
            family=family,
            family_arguments=json_ready(family_arguments or {}, "family_arguments"),
            observation_names=names,
            action_names=stored_names,
            root_seed=None if root_seed is None else whole(root_seed, "root_seed"),
            versions=dict(written_by() if versions is None else versions),
            probe_steps=probe,
            extra=json_ready(extra or {}, "extra"),
            plan=plan,
        )
        for value in (family or "", *(names or ()), *(stored_names or ())):
            storable(value, "The name")
        self._declared = instances is not None
        self._instances = {name: number for number, name in enumerate(named)}
        self._behaviours: dict[str, int] = {}
        self._knows_propensities = False
        self._work = Workspace(self.path)
        self._spool: Spool | None = None
        self._error: DataError | None = None
        types = {**DTYPES, "actions": np.dtype(self._space.dtype).newbyteorder("<")}
        try:
            with writing(self.path):
                self._spool = Spool(self._work.directory, types)
        except DataError:
            self.abort()
            raise

    @classmethod
    def like(cls, data: Dataset, path: str | Path, **changes: Any) -> DatasetWriter:
        """A writer with the spaces and the metadata of another dataset, for copies of its episodes.

        `changes` replaces arguments of the constructor; `instances` and `hidden` are not taken
        over.

            with DatasetWriter.like(data, "half.h5") as writer:
                for episode in data.episodes()[::2]:
                    writer.copy(episode)
        """
        meta = data.metadata
        arguments: dict[str, Any] = {
            "action_space": data.action_space,
            "observation_dim": data.observation_dim,
            "family": meta.family,
            "family_arguments": meta.family_arguments,
            "observation_names": meta.observation_names,
            "action_names": meta.action_names,
            "root_seed": meta.root_seed,
            "probe_steps": meta.probe_steps,
            "extra": meta.extra,
        }
        return cls(path, **(arguments | changes))

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
        if self._spool is None:
            raise DataError(f"The writer of {self.path} is closed; create a new one.")
        number = self._spool.count
        instance = storable(instance, "The instance")
        behaviour = storable(behaviour, "The behaviour")
        if self._declared and instance not in self._instances:
            raise DataError(
                f"Episode {number} names the instance {instance!r}, which is not among "
                "the writer's instances."
            )
        if self._hidden:
            # here, so that a mistake refuses one episode and does not discard all in the end
            hidden_row(self._hidden, instance)
        columns = check_episode(
            place=f"episode {number} of instance {instance!r}",
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
        self._dim = columns["observations"].shape[1]
        self._knows_propensities |= not np.isnan(columns["propensities"]).all()
        about = (
            len(columns["actions"]),
            self._instances.setdefault(instance, len(self._instances)),
            self._behaviours.setdefault(behaviour, len(self._behaviours)),
            int(seed),
        )
        try:
            with writing(self.path):
                self._spool.append(np.asarray([about], dtype=np.int64), columns)
        except DataError as error:
            # Some columns may have the episode and others not: no more can follow it.
            self._error = error
            self.abort()
            raise

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

    def close(self, progress: RowCounter | None = None) -> None:
        """Write the file and put it in place; a second call does nothing."""
        if self._error is not None:
            raise self._error
        if self._spool is None:
            return
        try:
            with writing(self.path):
                episodes = self._spool.finish()
            if not len(episodes):
                raise DataError(f"Nothing was written to {self.path}: no episode was appended.")
            source = self._sorted(episodes)
            hidden = hidden_table(self._hidden, source.header.instances)
            publish(self._work, source, hidden, progress)
        finally:
            self.abort()

    def abort(self) -> None:
        """Discard all appended episodes; no file is written."""
        if self._spool is not None:
            self._spool.discard()
        self._spool = None
        self._work.close()

    def _sorted(self, episodes: Int64) -> SortedSpool:
        """The spooled columns behind an index sorted by instance."""
        order = np.argsort(episodes[:, 1], kind="stable")
        length, instance, behaviour, seed = episodes[order].T
        # Declared instances without episodes are dropped, and behaviours are in order of use.
        present, instance_code = np.unique(instance, return_inverse=True)
        _, first, codes = np.unique(behaviour, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))
        instances, behaviours = list(self._instances), list(self._behaviours)
        header = Header(
            action_space=self._space,
            observation_dim=self._dim or 0,
            instances=tuple(instances[number] for number in present),
            metadata=replace(
                self._metadata,
                behaviours=tuple(behaviours[number] for number in behaviour[np.sort(first)]),
            ),
            content_hash=None,
        )
        index = EpisodeIndex.end_to_end(length, instance_code, rank[codes], seed)
        return SortedSpool(
            self._work.directory,
            header,
            index,
            order,
            knows_propensities=self._knows_propensities,
        )

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
    if space is not None and not isinstance(space, ActionSpace):
        raise DataError(
            f"action_space is {space!r:.80}; expected Box.of(low, high) of sept_offline, or "
            "num_actions instead for discrete actions."
        )
    count = whole(num_actions, "num_actions") if space is None else space.width
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


def publish(
    work: Workspace,
    source: Source,
    hidden: HiddenTable | None,
    progress: RowCounter | None = None,
) -> str:
    """Write `source` next to the workspace's path, move it there, and return its content hash."""
    digest = content_hash(source, hidden)
    header = replace(source.header, content_hash=digest)
    finished = work.directory / "finished"
    write = write_hdf5 if kind_of(work.path) == "hdf5" else write_parquet
    with writing(work.path):
        write(finished, source, header, hidden, progress)
        work.publish(finished)
    return digest


def publish_parts(
    folder: Folder, manifest: Manifest, hidden: HiddenTable | None, check: Callable[[], None]
) -> str:
    """Hash all parts as the one dataset they are, and write its manifest; return the hash.

    check: called once they are hashed, raises if nothing may be written any more.
    """
    source = ParquetSource(folder.place, manifest=manifest)
    try:
        digest = content_hash(source, hidden)
    finally:
        source.close()
    check()
    header = replace(manifest.header, content_hash=digest)
    write_manifest(folder, replace(manifest, header=header), hidden)
    return digest


def written_by() -> dict[str, str]:
    """Names and versions of the libraries that determine the bytes of a file."""
    every = library_versions()
    return {name: every[name] for name in ("sept-offline", "python", "numpy", "h5py", "pyarrow")}

"""The header, and the interface that readers of all formats share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Box, Finite, space_from
from sept_offline.data.filesystems import Place
from sept_offline.data.records import FORMAT, FORMAT_VERSIONS, EpisodeIndex, Metadata, Problem
from sept_offline.errors import ConfigError, DataError
from sept_offline.limits import MOST_ACTIONS
from sept_offline.seals import parse_json
from sept_offline.stacking import Stack

BLOCK_ROWS = 1 << 17
"""Rows in memory during a streaming pass: a few megabytes per column, for files of any size."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "observations": np.dtype("<f4"),
    "actions": np.dtype("<i8"),
    "rewards": np.dtype("<f8"),
    "terminations": np.dtype("?"),
    "truncations": np.dtype("?"),
    "propensities": np.dtype("<f8"),
}
"""The columns in canonical order, and their canonical types; only `propensities` may be absent.

The actions of a box are of another type: `Header.columns` says which.
"""

INDEX_FIELDS = ("number", "offset", "length", "instance", "behaviour", "seed")


@dataclass(frozen=True)
class Header:
    """The small part of a file, read whole when it is opened."""

    action_space: ActionSpace
    observation_dim: int
    instances: tuple[str, ...]
    metadata: Metadata
    content_hash: str | None
    """None in a Parquet directory that other tools wrote."""

    @cached_property
    def columns(self) -> Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The canonical type of every column, and the shape of one of its rows."""
        space = self.action_space
        shapes: dict[str, tuple[int, ...]] = {
            "observations": (self.observation_dim,),
            "actions": space.shape,
            "propensities": space.propensity_shape,
        }
        types = {**DTYPES, "actions": np.dtype(space.dtype).newbyteorder("<")}
        return {name: (dtype, shapes.get(name, ())) for name, dtype in types.items()}

    def columns_of(self, index: EpisodeIndex) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The type and shape of every column of the episodes of an index."""
        steps = int(index.length.sum())
        rows = {"observations": steps + len(index)}
        return {
            name: (dtype, (rows.get(name, steps), *shape))
            for name, (dtype, shape) in self.columns.items()
        }

    def to_json(self) -> str:
        """Canonical JSON: equal headers give equal bytes."""
        meta = self.metadata
        # Left out where there is none, as in every file from before it was kept.
        planned = {} if meta.plan is None else {"plan": meta.plan}
        return canonical_json(
            {
                **planned,
                **_space_entries(self.action_space, meta.action_names),
                "format": FORMAT,
                "format_version": FORMAT_VERSIONS[self.action_space.kind],
                "content_hash": self.content_hash,
                "observation_dim": self.observation_dim,
                "instances": list(self.instances),
                "family": meta.family,
                "family_arguments": dict(meta.family_arguments),
                "observation_names": meta.observation_names,
                "behaviours": list(meta.behaviours),
                "root_seed": meta.root_seed,
                "versions": dict(meta.versions),
                "probe_steps": meta.probe_steps,
                "extra": dict(meta.extra),
            }
        )

    def with_hash(self, content_hash: str) -> Header:
        """The same header, naming the content it heads."""
        return replace(self, content_hash=content_hash)


def parse_header(text: str | bytes, path: Place) -> Header:
    """The header that `Header.to_json` wrote; a DataError says what is wrong with anything else."""
    try:
        values = parse_json(text, f"The header of {path}", DataError)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise DataError(
                f"{path} is not a sept-offline dataset (its header names the format "
                f"{values.get('format') if isinstance(values, dict) else None!r}); "
                "write it with sept_offline.DatasetWriter."
            )
        version = values["format_version"]
        if isinstance(version, bool) or version not in FORMAT_VERSIONS.values():
            known = " and ".join(map(str, FORMAT_VERSIONS.values()))
            raise DataError(
                f"{path} has format version {version!r:.80}, but this library reads versions "
                f"{known}; install the sept-offline that wrote it, or write it again."
            )
        space = _stored_space(values, version)
        _check_values(values)
        return Header(
            action_space=space,
            observation_dim=values["observation_dim"],
            instances=tuple(values["instances"]),
            metadata=Metadata(
                family=values["family"],
                family_arguments=dict(values["family_arguments"]),
                observation_names=names_or_none(values["observation_names"]),
                action_names=_action_names(values, space),
                behaviours=tuple(str(name) for name in values["behaviours"]),
                root_seed=values["root_seed"],
                versions=dict(values["versions"]),
                probe_steps=values["probe_steps"],
                extra=dict(values["extra"]),
                format_version=version,
                plan=values.get("plan"),
            ),
            content_hash=values["content_hash"],
        )
    except (
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        ConfigError,
    ) as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The header of {path} is damaged ({type(error).__name__}: {words:.200}); "
            "restore the file from a copy or collect it again."
        ) from error


def _space_entries(space: ActionSpace, names: tuple[str, ...] | None) -> dict[str, Any]:
    """The entries of a header that say which actions there are."""
    if isinstance(space, Finite):
        return {"num_actions": space.width, "action_names": names}
    return {"action_space": space.describe()}


def _stored_space(values: Mapping[str, Any], version: int) -> ActionSpace:
    """The action space of a header; an error says what is wrong with it."""
    if version == FORMAT_VERSIONS["box"]:
        space = space_from(values["action_space"])
        if not isinstance(space, Box):
            raise ValueError(f"the action space is {space.kind}, expected a box")
        if space != Box.of(space.low, space.high, space.names):
            raise ValueError("the bounds of the actions are not those that were written")
        return space
    count, names = values["num_actions"], values["action_names"]
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"num_actions is {count!r:.60}")
    if not 1 <= count <= MOST_ACTIONS:
        raise ValueError(f"num_actions is {count}")
    if not isinstance(names, list | None) or not all(isinstance(word, str) for word in names or ()):
        raise TypeError("action_names holds something that is not text")
    return Finite.of(count, names if names and len(names) == count else None)


def _action_names(values: Mapping[str, Any], space: ActionSpace) -> tuple[str, ...] | None:
    """Those that were given; the default names of discrete actions are not stored."""
    return names_or_none(values.get("action_names")) if isinstance(space, Finite) else space.names


def _check_values(values: Mapping[str, Any]) -> None:
    """Refuse values of other kinds than a writer writes: later code counts on them."""
    for name, kinds in HEADER_KINDS.items():
        value = values[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{name} is {value!r:.60}")
    if not 0 <= values["observation_dim"] < 2**31:
        raise ValueError(f"observation_dim is {values['observation_dim']}")
    for name in ("instances", "behaviours", "observation_names"):
        if not all(isinstance(word, str) for word in values[name] or ()):
            raise TypeError(f"{name} holds something that is not text")
    if values["probe_steps"] is not None and not 0 <= values["probe_steps"] < 2**31:
        raise ValueError(f"probe_steps is {values['probe_steps']}")
    # numbers that are none would only be noticed where the header is written again
    canonical_json([values.get(name) for name in ("extra", "family_arguments", "versions", "plan")])
    if len(set(values["instances"])) != len(values["instances"]):
        raise ValueError("an instance is named twice")


HEADER_KINDS: dict[str, tuple[type, ...]] = {
    "observation_dim": (int,),
    "instances": (list,),
    "family": (str, type(None)),
    "family_arguments": (dict,),
    "observation_names": (list, type(None)),
    "behaviours": (list,),
    "root_seed": (int, type(None)),
    "versions": (dict,),
    "probe_steps": (int, type(None)),
    "extra": (dict,),
    "content_hash": (str, type(None)),
}


def names_or_none(names: Any) -> tuple[str, ...] | None:
    """A tuple of strings, or None."""
    return None if names is None else tuple(str(name) for name in names)


def canonical_json(value: Any) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Source(Protocol):
    """Columns of one dataset, read piece by piece; episodes are numbered 0 … E-1 in file order.

    Hidden parameters are not part of it, so code that has only a source cannot read them.
    """

    @property
    def path(self) -> Place:
        """The location of the dataset."""
        ...

    @property
    def header(self) -> Header:
        """The metadata of the dataset."""
        ...

    @property
    def index(self) -> EpisodeIndex:
        """Its episodes."""
        ...

    @property
    def columns(self) -> Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """The stored type and shape of every column that is present."""
        ...

    @property
    def defects(self) -> Sequence[Problem]:
        """Problems found while the rows were ordered."""
        ...

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The given rows (ascending, none twice) of a column: [len(rows), …], canonical dtype."""
        ...

    @property
    def kept(self) -> bool:
        """Whether the columns are in memory."""
        ...

    def in_memory(self) -> Source:
        """The same columns in memory; every stored chunk is read once."""
        ...

    def close(self) -> None:
        """Let go of open files."""
        ...


class MemorySource:
    """Columns in memory; whoever takes adjacent rows shares them."""

    kept = True

    def __init__(
        self, path: Place, header: Header, index: EpisodeIndex, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.path = path
        self.header = header
        self.index = index
        self.defects: Sequence[Problem] = ()
        self.columns = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        self._arrays = arrays
        for array in arrays.values():
            array.flags.writeable = False

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See Source."""
        array = self._arrays[name]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return array[rows[0] : rows[-1] + 1]
        taken: NDArray[Any] = array[rows]
        return taken

    def in_memory(self) -> MemorySource:
        """See Source."""
        return self

    def close(self) -> None:
        """Nothing is open."""


class StackedSource:
    """The columns of `source`, with stacked observations; see `Stack`. Nothing is read ahead."""

    def __init__(self, source: Source, length: int) -> None:
        header = source.header
        self._source = source
        self.stack = Stack(length, header.observation_dim, header.action_space.width)

    @property
    def path(self) -> Place:
        """See Source."""
        return self._source.path

    @cached_property
    def header(self) -> Header:
        """See Source: the file's, with the stacked columns."""
        header = self._source.header
        metadata = header.metadata
        names = self.stack.names(metadata.observation_names, metadata.action_names)
        return replace(
            header,
            observation_dim=self.stack.width,
            metadata=replace(metadata, observation_names=names),
        )

    @property
    def index(self) -> EpisodeIndex:
        """See Source."""
        return self._source.index

    @property
    def columns(self) -> Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """See Source."""
        columns = dict(self._source.columns)
        kind, shape = columns["observations"]
        return columns | {"observations": (kind, (shape[0], self.stack.width))}

    @property
    def defects(self) -> Sequence[Problem]:
        """See Source."""
        return self._source.defects

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See Source."""
        if name != "observations":
            return self._source.take(name, rows)
        stack, index = self.stack, self.index
        starts = index.offset + index.number
        episode = np.searchsorted(starts, rows, side="right") - 1
        first, time = starts[episode], rows - starts[episode]
        lag = np.arange(stack.length)
        seen = self._scattered("observations", np.maximum(rows[:, None] - lag, first[:, None]))
        stacked = stack.empty(len(rows))
        stacked[:, : stack.observed] = seen.reshape(len(rows), -1)
        # The action that led to an observation belongs to the step before it.
        there, place = np.nonzero(time[:, None] >= lag[1:])
        steps = index.offset[episode[there]] + time[there] - lag[1:][place]
        chosen = stacked[:, stack.observed :].reshape(len(rows), stack.length - 1, stack.actions)
        chosen[there, place] = self.header.action_space.encode(self._scattered("actions", steps))
        stacked[:, stack.observed :] = chosen.reshape(len(rows), -1)
        return stacked

    def _scattered(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """`rows[...]` of a column in any order, each of them as often as it is asked for."""
        ordered, back = np.unique(rows, return_inverse=True)
        values = self._source.take(name, ordered)
        found: NDArray[Any] = values[back.reshape(rows.shape)]
        return found

    @property
    def kept(self) -> bool:
        """See Source: the plain columns are; they are stacked when they are taken."""
        return self._source.kept

    def in_memory(self) -> StackedSource:
        """See Source."""
        return StackedSource(self._source.in_memory(), self.stack.length)

    def close(self) -> None:
        """See Source."""
        self._source.close()


def in_memory(source: Source) -> MemorySource:
    """All columns of a source, read one after another."""
    arrays = {
        name: source.take(name, np.arange(shape[0], dtype=np.int64))
        for name, (_, shape) in source.columns.items()
    }
    return MemorySource(source.path, source.header, source.index, arrays)


def blocks(
    source: Source, name: str, rows: NDArray[np.int64] | None = None
) -> Iterator[NDArray[Any]]:
    """A column (or some ascending rows of it) in pieces of bounded size."""
    count = source.columns[name][1][0] if rows is None else len(rows)
    for start in range(0, count, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, count)
        yield source.take(
            name, np.arange(start, stop, dtype=np.int64) if rows is None else rows[start:stop]
        )


def damaged(path: Place, error: BaseException | str) -> DataError:
    """The error for a file whose bytes cannot be what a writer wrote."""
    words = " ".join(str(error).split())
    return DataError(
        f"{path} is damaged or incomplete ({words:.300}); "
        "restore it from a copy or collect it again with the same seed."
    )


def unlike_checksum(path: str | Place) -> DataError:
    """The error for a file whose bytes do not fit the checksum it carries."""
    return DataError(
        f"{path} does not match its own checksum: it is damaged or was edited; run "
        "`sept-offline validate` on it, then restore it or write it again."
    )

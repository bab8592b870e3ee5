"""The header, the columns that readers of all formats give, and the hash of their content."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Box, Finite, space_from
from sept_offline.data.filesystems import Place
from sept_offline.data.records import (
    FORMAT_VERSIONS,
    INDEX_FIELDS,
    EpisodeIndex,
    HiddenTable,
    Int64,
    Metadata,
    Problem,
)
from sept_offline.errors import ConfigError, DataError, one_line
from sept_offline.limits import MOST_ACTIONS
from sept_offline.seals import parse_json
from sept_offline.stacking import Stack

RowCounter = Callable[[str, int], None]
"""Called with the name of a column and how many more of its rows have been read or written."""

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

FORMAT = "sept-offline"
NOT_CONTENT = ("content_hash", "versions", "plan")
"""Entries of a header that the content hash does not depend on."""


@dataclass(frozen=True)
class Header:
    """The header of a file, which is read when the file is opened."""

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
        meta, space = self.metadata, self.action_space
        # Left out where there is none, as in every file from before it was kept.
        entries: dict[str, Any] = {} if meta.plan is None else {"plan": meta.plan}
        if isinstance(space, Finite):
            entries |= {"num_actions": space.width, "action_names": meta.action_names}
        else:
            entries |= {"action_space": space.describe()}
        return canonical_json(
            {
                **entries,
                "format": FORMAT,
                "format_version": FORMAT_VERSIONS[self.action_space.kind],
                "content_hash": self.content_hash,
                "observation_dim": self.observation_dim,
                "instances": self.instances,
                "observation_names": meta.observation_names,
                "behaviours": meta.behaviours,
                **{name: getattr(meta, name) for name in PLAIN},
            }
        )


def parse_header(text: str | bytes, path: Place) -> Header:
    """The header that `Header.to_json` wrote; a DataError names anything invalid."""
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
        # The default names of discrete actions are not stored.
        finite = isinstance(space, Finite)
        return Header(
            action_space=space,
            observation_dim=values["observation_dim"],
            instances=tuple(values["instances"]),
            metadata=Metadata(
                observation_names=_names(values["observation_names"]),
                action_names=_names(values["action_names"]) if finite else space.names,
                behaviours=tuple(values["behaviours"]),
                format_version=version,
                plan=values.get("plan"),
                **{name: values[name] for name in PLAIN},
            ),
            content_hash=values["content_hash"],
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, ConfigError) as error:
        words = one_line(error).rstrip(".")
        raise DataError(
            f"The header of {path} is damaged ({type(error).__name__}: {words:.200}); "
            "restore the file from a copy or collect it again."
        ) from error


def _stored_space(values: Mapping[str, Any], version: int) -> ActionSpace:
    """The action space of a header; an error names what is invalid."""
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


def _check_values(values: Mapping[str, Any]) -> None:
    """Refuse values of other kinds than a writer writes: later code counts on them."""
    for name, kinds in HEADER_KINDS.items():
        value = values[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
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
PLAIN = ("family", "family_arguments", "root_seed", "versions", "probe_steps", "extra")
"""Metadata that a header stores as they are."""


def _names(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def canonical_json(value: Any) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Source(ABC):
    """Columns of one dataset, read piece by piece; episodes are numbered 0 … E-1 in file order.

    Hidden parameters are not part of it, so code that has only a source cannot read them.
    """

    path: Place
    header: Header
    index: EpisodeIndex
    columns: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    """The stored type and shape of every column that is present."""
    defects: Sequence[Problem] = ()
    """Problems found while the rows were ordered."""
    kept = False
    """Whether the columns are in memory."""

    @abstractmethod
    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """The given rows (ascending, none twice) of a column: [len(rows), …], canonical dtype."""

    def in_memory(self) -> Source:
        """The same columns in memory; every stored chunk is read once."""
        arrays = {
            name: self.take(name, np.arange(shape[0], dtype=np.int64))
            for name, (_, shape) in self.columns.items()
        }
        return MemorySource(self.path, self.header, self.index, arrays)

    def close(self) -> None:  # noqa: B027  # most sources keep no file open
        """Close all open files."""


class MemorySource(Source):
    """Columns in memory; adjacent rows are taken without a copy."""

    kept = True

    def __init__(
        self, path: Place, header: Header, index: EpisodeIndex, arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        self.path, self.header, self.index = path, header, index
        self.columns = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        self._arrays = arrays
        for array in arrays.values():
            array.flags.writeable = False

    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """See Source."""
        array = self._arrays[name]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return array[rows[0] : rows[-1] + 1]
        taken: NDArray[Any] = array[rows]
        return taken

    def in_memory(self) -> MemorySource:
        """See Source."""
        return self


class StackedSource(Source):
    """The columns of `source`, with stacked observations; see `Stack`. Nothing is read ahead."""

    def __init__(self, source: Source, length: int) -> None:
        header, metadata = source.header, source.header.metadata
        self._source = source
        self.stack = Stack(length, header.observation_dim, header.action_space.width)
        names = self.stack.names(metadata.observation_names, metadata.action_names)
        self.path, self.index, self.defects = source.path, source.index, source.defects
        self.kept = source.kept
        self.header = replace(
            header,
            observation_dim=self.stack.width,
            metadata=replace(metadata, observation_names=names),
        )
        kind, shape = source.columns["observations"]
        self.columns = {**source.columns, "observations": (kind, (shape[0], self.stack.width))}

    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """See Source."""
        if name != "observations":
            return self._source.take(name, rows)
        stack, index = self.stack, self.index
        starts = index.first_row
        episode = np.searchsorted(starts, rows, side="right") - 1
        first, time = starts[episode], rows - starts[episode]
        lag = np.arange(stack.length)
        seen = take_any(
            self._source, "observations", np.maximum(rows[:, None] - lag, first[:, None])
        )
        stacked = stack.empty(len(rows))
        stacked[:, : stack.observed] = seen.reshape(len(rows), -1)
        # The action that led to an observation belongs to the step before it.
        there, place = np.nonzero(time[:, None] >= lag[1:])
        steps = index.offset[episode[there]] + time[there] - lag[1:][place]
        chosen = stacked[:, stack.observed :].reshape(len(rows), stack.length - 1, stack.actions)
        taken = take_any(self._source, "actions", steps)
        chosen[there, place] = self.header.action_space.encode(taken)
        stacked[:, stack.observed :] = chosen.reshape(len(rows), -1)
        return stacked

    def in_memory(self) -> StackedSource:
        """See Source: the plain columns are in memory, and stacked when they are taken."""
        return StackedSource(self._source.in_memory(), self.stack.length)

    def close(self) -> None:
        """See Source."""
        self._source.close()


def take_any(source: Source, name: str, rows: Int64) -> NDArray[Any]:
    """`rows[...]` of a column, in any order and with repetitions."""
    if rows.ndim == 1 and bool((np.diff(rows) > 0).all()):
        return source.take(name, rows)
    ordered, back = np.unique(rows, return_inverse=True)
    values: NDArray[Any] = source.take(name, ordered)[back.reshape(rows.shape)]
    return values


def blocks(source: Source, name: str, multiple: int = 1) -> Iterator[NDArray[Any]]:
    """A column in pieces of bounded size, each but the last a multiple of some rows."""
    count = source.columns[name][1][0]
    size = max(BLOCK_ROWS - BLOCK_ROWS % multiple, multiple)
    for start in range(0, count, size):
        yield source.take(name, np.arange(start, min(start + size, count), dtype=np.int64))


def content_hash(source: Source, hidden: HiddenTable | None) -> str:
    """Hex SHA-256 over the header, every column in canonical type and order, and the hidden table.

    It does not depend on format, chunks, compression and versions.
    """
    parts: dict[str, str] = {}
    for name, (dtype, _) in source.header.columns.items():
        if name in source.columns:
            digest = hashlib.sha256()
            for block in blocks(source, name):
                digest.update(np.ascontiguousarray(block, dtype=dtype).data)
            parts[name] = digest.hexdigest()
    for name in INDEX_FIELDS:
        values = np.ascontiguousarray(getattr(source.index, name), dtype="<i8")
        parts[f"episodes/{name}"] = hashlib.sha256(values.data).hexdigest()
    if hidden is not None:
        values = np.ascontiguousarray(hidden.values, dtype="<f8")
        parts["hidden"] = hashlib.sha256(values.data).hexdigest()
        parts["hidden/names"] = canonical_json(list(hidden.names))
    header: Mapping[str, object] = json.loads(source.header.to_json())
    kept = {key: value for key, value in header.items() if key not in NOT_CONTENT}
    return hashlib.sha256(canonical_json({"header": kept, "columns": parts}).encode()).hexdigest()


def damaged(path: Place, error: BaseException | str) -> DataError:
    """The error for a file whose bytes cannot be what a writer wrote."""
    return DataError(
        f"{path} is damaged or incomplete ({one_line(error):.300}); "
        "restore it from a copy or collect it again with the same seed."
    )


def unlike_checksum(path: str | Place) -> DataError:
    """The error for a file whose bytes do not fit the checksum it carries."""
    return DataError(
        f"{path} does not match its own checksum: it is damaged or was edited; run "
        "`sept-offline validate` on it, then restore it or write it again."
    )

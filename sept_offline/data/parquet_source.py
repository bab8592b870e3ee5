"""Reading Parquet datasets: written by this library, or files and directories of other tools."""

from __future__ import annotations

import itertools
import json
from collections import OrderedDict
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sept_offline.actions import Finite
from sept_offline.data.filesystems import Folder, Place, filesystem, place_kind
from sept_offline.data.parquet import (
    HEADER_KEY,
    HIDDEN_KEY,
    INDEX_KEY,
    UNREADABLE,
    Manifest,
    group_sizes,
    parse_hidden,
    read_privileged,
    unpack_index,
)
from sept_offline.data.problems import RowScan, disagreements, order_rows
from sept_offline.data.records import EpisodeIndex, HiddenTable, Int64, Metadata
from sept_offline.data.source import (
    DTYPES,
    Header,
    MemorySource,
    Source,
    damaged,
    parse_header,
    unlike_checksum,
)
from sept_offline.errors import DataError
from sept_offline.limits import check_claim
from sept_offline.seals import is_intact

OPEN_FILES = 16


class ParquetSource(Source):
    """A Parquet dataset open for reading: one row per observation, so T+1 rows per episode.

    `scan=True` ignores the stored index and looks at every row's ids, as `validate` wants; so does
    any file whose rows another tool has rewritten. A directory that this library wrote has a
    `manifest`: no part is opened before one of its rows is asked for. With `check` a file of ours
    is read whole, and compared with its checksum, when it is opened.
    """

    def __init__(
        self,
        path: Place,
        *,
        scan: bool = False,
        manifest: Manifest | None = None,
        check: bool = False,
    ) -> None:
        self.path, self._manifest, self._check = path, manifest, check
        self._open: OrderedDict[int, pq.ParquetFile] = OrderedDict()
        self._decoded: dict[str, tuple[int, NDArray[Any]]] = {}
        try:
            self._filesystem, _ = filesystem(path)
            self._fragments = _fragments(path, manifest)
            self._list_groups(None if scan else manifest)
            metadata = self._file(0).metadata.metadata or {}
            self._check_size()
            self._order: Int64 | None = None
            header = parse_header(metadata[HEADER_KEY], path) if HEADER_KEY in metadata else None
            stored = self._stored_index()
            if manifest is not None:
                header, stored = manifest.header, manifest.index
            if stored is not None and header is not None:
                self.header, self.index = header, stored
            if scan or stored is None or header is None:
                ours = manifest is not None or place_kind(path) == "file"
                ordered = order_rows(self._scan(), header, ordered=ours)
                self._order, self.index, self.defects = (
                    ordered.order,
                    ordered.index,
                    ordered.defects,
                )
                self.header = header or self._guess_header(ordered.instances, ordered.behaviours)
                if stored is not None and header is not None:
                    # Whoever opens the dataset goes by what is stored: it must say the same.
                    self.defects = [*ordered.defects, *disagreements(stored, ordered.index)]
            self.columns = {
                name: self._stored_type(name) for name in DTYPES if name in self._schema.names
            }
        except UNREADABLE as error:
            self.close()
            raise damaged(path, error) from error
        except DataError:
            self.close()
            raise

    def _check_size(self) -> None:
        """Compare the rows that the footers claim with the bytes that are there."""
        if self._manifest is not None:  # whose parts have been found to have these sizes
            stored = sum(part.bytes for part in self._manifest.parts)
        else:
            names = [name for name, _ in self._fragments]
            stored = sum(info.size or 0 for info in self._filesystem.get_file_info(names))
        width = sum(
            kind.list_size * 8 if pa.types.is_fixed_size_list(kind) else 8
            for kind in self._schema.types
        )
        check_claim(self.path, "rows", self._rows * width, stored, DataError)

    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """The given ascending rows of a column; only their row groups are read."""
        if name != "observations":
            # A step's row is its observation's row less the final rows of the episodes before it.
            rows = rows + np.searchsorted(self.index.offset, rows, side="right") - 1
        if self._order is not None:
            rows = self._order[rows]
        ascending = bool((np.diff(rows) > 0).all())
        by_row = np.arange(len(rows)) if ascending else np.argsort(rows, kind="stable")
        ordered = rows[by_row]
        width = self.columns[name][1][1:]
        out = np.empty((len(rows), *width), dtype=self.header.columns[name][0])
        group = np.searchsorted(self._starts, ordered, side="right") - 1
        edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(rows)]
        for first, last in itertools.pairwise(edges):
            if first == last:
                continue
            values = self._group(name, int(group[first]))
            out[by_row[first:last]] = values[ordered[first:last] - self._starts[group[first]]]
        return out

    def in_memory(self) -> Source:
        """See Source: row group by row group, so that every file is opened once."""
        if self._order is not None:
            return super().in_memory()
        arrays = {
            name: np.empty(shape, dtype=self.header.columns[name][0])
            for name, (_, shape) in self.columns.items()
        }
        final = np.zeros(self._rows, dtype=np.bool_)
        final[self.index.offset + np.arange(len(self.index)) + self.index.length] = True
        steps = 0
        for group, start in enumerate(self._starts.tolist()):
            stop = start + self._sizes[group]
            kept = ~final[start:stop]
            count = int(kept.sum())
            for name, array in arrays.items():
                values = self._group(name, group)
                if name == "observations":
                    array[start:stop] = values
                else:
                    array[steps : steps + count] = values[kept]
            steps += count
        return MemorySource(self.path, self.header, self.index, arrays)

    def close(self) -> None:
        """Close the files."""
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _file(self, fragment: int) -> pq.ParquetFile:
        if fragment not in self._open:
            name = self._fragments[fragment][0]
            # other tools write directories of any size, without checksums
            if self._check and (self._manifest is not None or len(self._fragments) == 1):
                with self._filesystem.open_input_file(name) as raw:
                    content = pa.BufferReader(raw.read())
                intact = is_intact(content)
                if intact is False or (intact is None and self._manifest is not None):
                    raise unlike_checksum(self.path)
                content.seek(0)
                self._open[fragment] = pq.ParquetFile(content, page_checksum_verification=True)
            else:
                self._open[fragment] = pq.ParquetFile(
                    name, filesystem=self._filesystem, page_checksum_verification=True
                )
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            if self._manifest is not None:
                groups = group_sizes(self._open[fragment].metadata)
                if groups != self._manifest.parts[fragment].groups:
                    raise damaged(
                        self.path, f"{self._manifest.parts[fragment].name} has other rows"
                    )
        self._open.move_to_end(fragment)
        return self._open[fragment]

    def _list_groups(self, manifest: Manifest | None) -> None:
        places: list[tuple[int, int]] = []
        sizes: list[int] = []
        for fragment in range(len(self._fragments)):
            if manifest is not None:
                groups: tuple[int, ...] = manifest.parts[fragment].groups
            else:
                groups = group_sizes(self._file(fragment).metadata)
            places += [(fragment, group) for group in range(len(groups))]
            sizes += groups
        self._places, self._sizes = places, sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)[:-1]
        self._rows = int(sum(sizes))
        self._schema = self._file(0).schema_arrow

    def _read(self, name: str, group: int) -> pa.Array:
        fragment, inner = self._places[group]
        table = self._file(fragment).read_row_group(inner, columns=[name], use_threads=False)
        column = table.column(name).combine_chunks()
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column

    def _group(self, name: str, group: int) -> NDArray[Any]:
        """A row group of a column as an array; the last one of each column is kept."""
        kept = self._decoded.get(name)
        if kept is not None and kept[0] == group:
            return kept[1]
        try:
            column = self._read(name, group)
            width = self.columns[name][1][1:]
            values = _vectors(column, width[0]) if width else _scalars(column)
        except UNREADABLE as error:
            raise damaged(self.path, f"rows of {name!r} cannot be read: {error}") from error
        if len(values) != self._sizes[group]:
            raise damaged(self.path, f"rows of {name!r} are missing")
        self._decoded[name] = (group, values)
        return values

    def _stored_index(self) -> EpisodeIndex | None:
        """The index in the footer, unless the rows have been rewritten since."""
        metadata = self._file(0).metadata.metadata or {}
        if len(self._fragments) > 1 or INDEX_KEY not in metadata:
            return None
        stored = json.loads(metadata[INDEX_KEY])
        file = self._file(0)
        size = self._filesystem.get_file_info(self._fragments[0][0]).size
        footer_start = size - 8 - file.metadata.serialized_size
        if stored["data_bytes"] != footer_start or stored["rows"] != self._rows:
            return None
        return unpack_index(stored["columns"])

    def _scan(self) -> RowScan:
        """Every row's ids, read group by group."""
        for name in ("episode", "time", "observations", "actions"):
            if name not in self._schema.names:
                raise DataError(
                    f"{self.path} has no column {name!r}; a Parquet dataset needs episode, time, "
                    "instance, observations, actions, rewards, terminations and truncations, and "
                    "sept-offline import converts other tables."
                )
        scan = RowScan(self._rows)
        for group, start in enumerate(self._starts.tolist()):
            fragment = self._places[group][0]
            keys = self._fragments[fragment][1]
            number = _scalars(self._read("episode", group))
            stop = start + len(number)
            scan.episode[start:stop] = number
            scan.time[start:stop] = _scalars(self._read("time", group))
            scan.final[start:stop] = self._read("actions", group).is_null().to_numpy(False)
            if "seed" in self._schema.names:
                scan.seed[start:stop] = _scalars(self._read("seed", group))
            for name, codes in (("instance", scan.instance), ("behaviour", scan.behaviour)):
                if name in keys:
                    codes[start:stop] = scan.code(name, keys[name])
                elif name in self._schema.names:
                    words = self._read(name, group)
                    if not pa.types.is_dictionary(words.type):
                        words = words.dictionary_encode()
                    known = [scan.code(name, str(word)) for word in words.dictionary.to_pylist()]
                    table = np.asarray([*known, -1])
                    codes[start:stop] = table[words.indices.fill_null(len(known)).to_numpy(False)]
                else:
                    codes[start:stop] = scan.code(name, "unknown")
        return scan

    def _guess_header(self, instances: list[str], behaviours: list[str]) -> Header:
        """Metadata derived from the columns of a file without our header."""
        if pa.types.is_nested(self._schema.field("actions").type):
            raise DataError(
                f"{self.path} has vectors of actions and no header with their bounds; convert it "
                "with sept-offline import."
            )
        if "propensities" in self._schema.names:
            num_actions = self._width("propensities")
        else:
            groups = range(len(self._places))
            actions = [self._read("actions", group).drop_null() for group in groups]
            num_actions = 1 + max(int(a.to_numpy().max()) for a in actions if len(a))
        return Header(
            action_space=Finite.of(num_actions),
            observation_dim=self._width("observations"),
            instances=tuple(instances),
            metadata=Metadata(behaviours=tuple(behaviours)),
            content_hash=None,
        )

    def _width(self, name: str) -> int:
        kind = self._schema.field(name).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        for group in range(len(self._places)):
            column = self._read(name, group).drop_null()
            if len(column):
                return len(column[0])
        return 0

    def _stored_type(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        kind = self._schema.field(name).type
        rows = self._rows if name == "observations" else self._rows - len(self.index)
        if self.header.columns[name][1]:
            if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
                return np.dtype(object), (rows,)
            return np.dtype(kind.value_type.to_pandas_dtype()), (rows, self._width(name))
        return np.dtype(kind.to_pandas_dtype()), (rows,)


def _fragments(path: Place, manifest: Manifest | None = None) -> list[tuple[str, dict[str, str]]]:
    """The Parquet files of a path in order, each with its partition keys."""
    if manifest is not None:
        return [(Folder(path).name(part.name), {}) for part in manifest.parts]
    system, name = filesystem(path)
    if place_kind(path) == "file":
        return [(name, {})]
    import pyarrow.dataset as pads  # loads pandas

    table = pads.dataset(name, filesystem=system, format="parquet")
    files = sorted(fragment.path for fragment in table.get_fragments())
    if not files:
        raise DataError(f"The directory {path} contains no Parquet file; expected a dataset.")
    return [(file, _hive_keys(file.removeprefix(name))) for file in files]


def _hive_keys(path: str) -> dict[str, str]:
    """Names and values of the folders `name=value` in a path; the id "007" stays text."""
    named = [folder.partition("=") for folder in path.split("/")[:-1] if "=" in folder]
    return {unquote(name): unquote(value) for name, _, value in named}


def _scalars(column: pa.Array) -> NDArray[Any]:
    """Values of a column; nulls, in final rows never asked for, become NaN, 0 or False."""
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _vectors(column: pa.Array, width: int) -> NDArray[Any]:
    """[n, width]; null rows, unknown propensities or final rows, become NaN."""
    known = ~column.is_null().to_numpy(zero_copy_only=False)
    flat = column.drop_null().flatten().to_numpy(zero_copy_only=False)
    if len(flat) != int(known.sum()) * width:
        raise ValueError(f"a row does not have {width} numbers")
    out = np.full((len(column), width), np.nan, dtype=flat.dtype)
    out[known] = flat.reshape(-1, width)
    return out


def read_parquet_hidden(
    path: Place, manifest: Manifest | None, instances: int
) -> HiddenTable | None:
    """The hidden parameters next to a manifest or in a file's footer, separate from the source."""
    if manifest is not None:
        return read_privileged(Folder(path), manifest)
    try:
        metadata = pq.read_metadata(_fragments(path)[0][0], filesystem=filesystem(path)[0]).metadata
        if not metadata or HIDDEN_KEY not in metadata:
            return None
        return parse_hidden(metadata[HIDDEN_KEY], instances)
    except UNREADABLE as error:
        raise damaged(path, error) from error

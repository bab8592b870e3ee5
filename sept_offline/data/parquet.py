"""Writing datasets as Parquet: one file, or parts by workers and then a manifest of them.

A file has one row per observation, and row groups cut between episodes. Its footer holds the
header, the index of the episodes, the hidden parameters, and a digest of the file's bytes. A
directory of parts is a dataset once its manifest is written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sept_offline.actions import Finite
from sept_offline.data.filesystems import Folder, Place, filesystem
from sept_offline.data.records import INDEX_FIELDS, EpisodeIndex, HiddenTable, Int64
from sept_offline.data.source import (
    DTYPES,
    Header,
    MemorySource,
    RowCounter,
    Source,
    canonical_json,
    damaged,
    parse_header,
)
from sept_offline.errors import DataError
from sept_offline.limits import RATIO, VARIABLE, limit_bytes
from sept_offline.seals import UNSEALED, is_intact, seal_parquet, warn_unsealed

HEADER_KEY = b"sept_offline.header"
INDEX_KEY = b"sept_offline.index"
HIDDEN_KEY = b"sept_offline.privileged"
GROUP_ROWS = 1 << 14
"""Measured in benchmarks/dataset.py; docs/dataset.md says why."""
COMPRESSION = "zstd"
MANIFEST = "_manifest.json"
PRIVILEGED = "_privileged.json"
PLAN = "_plan.json"
"""File with the plan of the collection: written before the first part and kept."""
UNREADABLE = (
    *(pa.ArrowException, OSError, zlib.error, AttributeError, LookupError),
    *(OverflowError, RecursionError, TypeError, ValueError),
)
"""Errors that damaged files and footers raise."""


def write_parquet(
    path: Path,
    source: Source,
    header: Header,
    hidden: HiddenTable | None,
    progress: RowCounter | None = None,
    *,
    group_rows: int = GROUP_ROWS,
    compression: str = COMPRESSION,
) -> None:
    """Write all that `source` holds as one Parquet file; equal content gives equal bytes."""
    # In the schema, so that it survives when Arrow rewrites or partitions the rows; the index and
    # the digest are true of this file alone and stay out of it.
    entries = {HEADER_KEY: header.to_json().encode()}
    if hidden is not None:
        entries[HIDDEN_KEY] = hidden_json(hidden).encode()
    schema = _schema(source, header).with_metadata(entries)
    # numbers of which hardly two are equal
    numbers = ["observations", "rewards"]
    numbers += [] if isinstance(header.action_space, Finite) else ["actions", "propensities"]
    with (
        path.open("wb", buffering=1 << 20) as raw,
        pa.PythonFile(raw, "w") as sink,
        pq.ParquetWriter(
            sink,
            schema,
            compression=compression,
            use_dictionary=[field.name for field in schema if field.name not in numbers],
            use_byte_stream_split=[_leaf(field) for field in schema if field.name in numbers],
            write_statistics=["episode", "time", "instance"],
            write_page_checksum=True,
        ) as writer,
    ):
        for low, high in _groups(source, group_rows):
            writer.write_table(_table(source, header, schema, low, high), row_group_size=high - low)
            if progress is not None:
                for name in source.columns:
                    progress(name, high - low)
        rows = source.columns["observations"][1][0]
        # A reader believes the index only while the rows end where they ended here.
        index = {"rows": rows, "data_bytes": sink.tell(), "columns": pack_index(source.index)}
        writer.add_key_value_metadata({INDEX_KEY: canonical_json(index).encode(), **UNSEALED})
    with path.open("r+b") as raw:
        seal_parquet(raw)


def _leaf(field: pa.Field) -> str:
    """The name of a column's values in the file."""
    return f"{field.name}.list.element" if pa.types.is_nested(field.type) else str(field.name)


def _schema(source: Source, header: Header) -> pa.Schema:
    fields = [
        ("episode", pa.int64()),
        ("time", pa.int64()),
        ("instance", pa.dictionary(pa.int32(), pa.string())),
        ("behaviour", pa.dictionary(pa.int32(), pa.string())),
        ("seed", pa.int64()),
    ]
    for name, (dtype, shape) in header.columns.items():
        if name in source.columns:
            kind = pa.from_numpy_dtype(dtype)
            fields.append((name, pa.list_(kind, shape[0]) if shape else kind))
    return pa.schema(fields)


def _groups(source: Source, target: int) -> Iterator[tuple[int, int]]:
    """Ranges of observation rows: whole episodes together, a very long one in pieces."""
    low = high = 0
    for length in source.index.length.tolist():
        rows = length + 1
        if high > low and high - low + rows > target:
            yield low, high
            low = high
        high += rows
        while high - low > 2 * target:
            yield low, low + target
            low += target
    if high > low:
        yield low, high


def _table(source: Source, header: Header, schema: pa.Schema, low: int, high: int) -> pa.Table:
    """The observation rows low … high-1, nulls for the step's fields in an episode's last row."""
    index = source.index
    first_rows = index.offset + np.arange(len(index))
    rows = np.arange(low, high)
    episode = np.searchsorted(first_rows, rows, side="right") - 1
    time = rows - first_rows[episode]
    final = time == index.length[episode]
    steps = (rows - episode)[~final]

    def per_step(name: str) -> pa.Array:
        values = source.take(name, steps)
        spread = np.zeros((len(rows), *values.shape[1:]), dtype=values.dtype)
        spread[~final] = values
        absent = final
        if name == "propensities":
            absent = final | header.action_space.unknown(spread)
        return pa.array(spread, mask=absent) if spread.ndim == 1 else vectors(spread, absent)

    def vectors(values: NDArray[Any], absent: NDArray[np.bool_] | None = None) -> pa.Array:
        mask = None if absent is None else pa.array(absent)
        flat = pa.array(values.reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=mask)

    def words(codes: Int64, names: tuple[str, ...]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32)), pa.array(list(names), type=pa.string())
        )

    columns = {
        "episode": pa.array(index.number[episode]),
        "time": pa.array(time.astype(np.int64)),
        "instance": words(index.instance[episode], header.instances),
        "behaviour": words(index.behaviour[episode], header.metadata.behaviours),
        "seed": pa.array(index.seed[episode]),
        "observations": vectors(source.take("observations", rows)),
    }
    for name in schema.names[len(columns) :]:
        columns[name] = per_step(name)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def pack_index(index: EpisodeIndex) -> str:
    """An index as text: its columns as bytes, compressed."""
    columns = np.stack([getattr(index, name) for name in INDEX_FIELDS]).astype("<i8")
    return base64.b64encode(zlib.compress(columns.tobytes(), 1)).decode()


def unpack_index(text: str) -> EpisodeIndex:
    """The index that `pack_index` packed."""
    packed = base64.b64decode(text, validate=True)
    unpacking, most = zlib.decompressobj(), max(limit_bytes(), RATIO * len(packed))
    content = unpacking.decompress(packed, most)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError(
            f"its index of {len(packed):,} bytes is cut short, or unpacks to more than {most:,}; "
            f"if it is valid, raise {VARIABLE}"
        )
    columns = np.frombuffer(content, dtype="<i8").reshape(len(INDEX_FIELDS), -1)
    return EpisodeIndex(*(row.astype(np.int64) for row in columns))


def hidden_json(hidden: HiddenTable) -> str:
    """A table of hidden parameters as canonical JSON; unknown ones are null."""
    values = [[None if np.isnan(v) else v for v in row] for row in hidden.values.tolist()]
    return canonical_json({"names": list(hidden.names), "values": values})


def parse_hidden(text: str | bytes, instances: int) -> HiddenTable:
    """The table that `hidden_json` wrote; a ValueError, KeyError or TypeError on anything else."""
    stored = json.loads(text)
    names = tuple(str(name) for name in stored["names"])
    rows = [[np.nan if v is None else float(v) for v in row] for row in stored["values"]]
    values = np.asarray(rows, dtype=np.float64).reshape(instances, len(names))
    return HiddenTable(names, values)


def group_sizes(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """The rows of each row group of a file."""
    return tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))


def parquet_bytes_intact(path: Place, name: str | None = None) -> bool | None:
    """Whether every byte of a file is the one that was written; None if it carries no checksum.

    `name`: the file's on the filesystem of `path`, where it is not `path` itself.
    """
    system, whole = filesystem(path)
    with system.open_input_file(name or whole) as raw:
        return is_intact(raw)


@dataclass(frozen=True)
class Part:
    """One Parquet file of a partitioned dataset, whole episodes in the order of the dataset."""

    name: str
    bytes: int
    groups: tuple[int, ...]
    """Rows of each row group."""


@dataclass(frozen=True)
class Manifest:
    """All that is needed to read any row without opening the parts that do not hold it."""

    header: Header
    index: EpisodeIndex
    parts: tuple[Part, ...]
    privileged: str | None = None
    """The SHA-256 of the hidden parameters next to it; "" if there are none."""


@dataclass(frozen=True)
class WrittenPart:
    """A part that is whole, and the steps of its episodes."""

    part: Part
    length: Int64
    """[E]"""


def write_part(
    folder: Folder,
    name: str,
    header: Header,
    episodes: Sequence[Mapping[str, NDArray[Any]]],
    *,
    number: Int64,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> WrittenPart:
    """Write some successive episodes of a dataset as one of its parts.

    episodes: the columns of each, as `check_episode` gives them; number, instance, behaviour, seed:
    [E], as in `EpisodeIndex`. Equal episodes give equal bytes.
    """
    columns = {
        column: np.concatenate([episode[column] for episode in episodes]) for column in DTYPES
    }
    length = np.array([len(episode["actions"]) for episode in episodes], dtype=np.int64)
    index = EpisodeIndex.end_to_end(length, instance, behaviour, seed, number)
    source = MemorySource(folder.place, header, index, columns)
    parts: list[Part] = []

    def fill(path: Path) -> None:
        write_parquet(path, source, header, None)
        parts.append(Part(name, path.stat().st_size, group_sizes(pq.read_metadata(path))))

    folder.write(name, fill)
    return WrittenPart(parts[0], length)


def read_part(folder: Folder, name: str) -> WrittenPart | None:
    """The footer's data about a part; None if the part is damaged."""
    path = folder.name(name)
    try:
        if not parquet_bytes_intact(folder.place, path):
            return None
        with folder.filesystem.open_input_file(path) as raw:
            size, metadata = int(raw.size()), pq.read_metadata(raw)
        index = unpack_index(json.loads(metadata.metadata[INDEX_KEY])["columns"])
    except UNREADABLE:
        return None
    return WrittenPart(Part(name, size, group_sizes(metadata)), index.length)


def join_parts(
    header: Header,
    written: Sequence[WrittenPart],
    *,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> Manifest:
    """The manifest of all parts; instance, behaviour, seed: [E], of all episodes in order."""
    length = np.concatenate([part.length for part in written])
    index = EpisodeIndex.end_to_end(length, instance, behaviour, seed)
    return Manifest(header, index, tuple(part.part for part in written))


def write_manifest(folder: Folder, manifest: Manifest, hidden: HiddenTable | None) -> None:
    """Bring the dataset into being: from here on it can be read."""
    text = "" if hidden is None else hidden_json(hidden)
    if text:
        folder.write_text(PRIVILEGED, text)
    body = {
        "privileged": hashlib.sha256(text.encode()).hexdigest() if text else "",
        "header": json.loads(manifest.header.to_json()),
        "episodes": pack_index(manifest.index),
        "parts": [[part.name, part.bytes, list(part.groups)] for part in manifest.parts],
    }
    folder.write_text(MANIFEST, canonical_json({**body, "sha256": _digest(body)}))


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def find_manifest(folder: Folder) -> Manifest | None:
    """The manifest of a directory; None if it has none."""
    text = folder.read(MANIFEST)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        if not isinstance(stored, dict) or "sha256" not in stored:
            raise ValueError("it has no checksum")
        if _digest({key: stored[key] for key in stored if key != "sha256"}) != stored["sha256"]:
            raise ValueError("the manifest is not the one that was written")
        return Manifest(
            header=parse_header(canonical_json(stored["header"]), folder.place),
            index=unpack_index(stored["episodes"]),
            parts=tuple(
                Part(str(name), int(size), tuple(int(rows) for rows in groups))
                for name, size, groups in stored["parts"]
            ),
            privileged=stored.get("privileged"),
        )
    except UNREADABLE as error:
        raise damaged(folder.place, error) from error


def read_manifest(folder: Folder) -> Manifest | None:
    """The manifest of a directory, checked against the files there; None where it has none."""
    manifest = find_manifest(folder)
    if manifest is None:
        if folder.read(PLAN) is not None:
            raise DataError(
                f"{folder.place} contains an unfinished collection, not a dataset; continue it "
                "with sept-offline collect --resume."
            )
        return None
    sizes = folder.sizes()
    if not manifest.parts:
        raise damaged(folder.place, "its manifest names no parts")
    for part in manifest.parts:
        if sizes.get(part.name) != part.bytes:
            state = f"has {sizes[part.name]}" if part.name in sizes else "is missing, which has"
            raise damaged(folder.place, f"{part.name} {state} of {part.bytes} bytes")
    return manifest


def read_privileged(folder: Folder, manifest: Manifest) -> HiddenTable | None:
    """The hidden parameters next to a manifest, stored separately."""
    text, digest = folder.read(PRIVILEGED), manifest.privileged
    if digest is None and text is not None and isinstance(folder.place, Path):
        warn_unsealed(folder.place / PRIVILEGED)
    elif digest is not None and digest != (hashlib.sha256(text).hexdigest() if text else ""):
        raise damaged(folder.place, f"{PRIVILEGED} does not match its checksum in the manifest")
    if not text:
        return None
    try:
        return parse_hidden(text, len(manifest.header.instances))
    except UNREADABLE as error:
        raise damaged(folder.place, error) from error

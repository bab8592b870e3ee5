"""Datasets as Parquet, written: one row an observation, row groups cut between episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sept_offline.actions import Finite
from sept_offline.data.manifest import hidden_json, pack_index
from sept_offline.data.parquet import (
    DIGEST_KEY,
    HEADER_KEY,
    HIDDEN_KEY,
    INDEX_KEY,
    NO_DIGEST,
    digest_position,
    file_digest,
)
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import Header, Source, canonical_json

GROUP_ROWS = 1 << 14
"""Measured in benchmarks/dataset.py; docs/dataset.md says why."""
COMPRESSION = "zstd"


def write_parquet(
    path: Path,
    source: Source,
    header: Header,
    hidden: HiddenTable | None,
    progress: Callable[[str, int], None] | None = None,
    *,
    group_rows: int = GROUP_ROWS,
    compression: str = COMPRESSION,
) -> None:
    """Write all that `source` holds as one Parquet file; equal content gives equal bytes."""
    # In the schema, so that it survives when Arrow rewrites or partitions the rows; the index and
    # the digest are true of this file alone and stay out of it.
    schema = _schema(source, header).with_metadata(_entries(header, hidden))
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
        writer.add_key_value_metadata(
            {INDEX_KEY: canonical_json(index).encode(), DIGEST_KEY: NO_DIGEST}
        )
    _write_digest(path)


def _leaf(field: pa.Field) -> str:
    """The name of a column's values in the file."""
    return f"{field.name}.list.element" if pa.types.is_nested(field.type) else str(field.name)


def _entries(header: Header, hidden: HiddenTable | None) -> dict[bytes, bytes]:
    entries = {HEADER_KEY: header.to_json().encode()}
    if hidden is not None:
        entries[HIDDEN_KEY] = hidden_json(hidden).encode()
    return entries


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
        if values.ndim == 1:
            return pa.array(spread, mask=absent)
        return pa.FixedSizeListArray.from_arrays(
            pa.array(spread.reshape(-1)), values.shape[1], mask=pa.array(absent)
        )

    def words(
        codes: np.ndarray[tuple[int], np.dtype[np.int64]], names: tuple[str, ...]
    ) -> pa.Array:
        return pa.DictionaryArray.from_arrays(
            pa.array(codes.astype(np.int32)), pa.array(list(names), type=pa.string())
        )

    observations = source.take("observations", rows).reshape(-1)
    columns = {
        "episode": pa.array(index.number[episode]),
        "time": pa.array(time.astype(np.int64)),
        "instance": words(index.instance[episode], header.instances),
        "behaviour": words(index.behaviour[episode], header.metadata.behaviours),
        "seed": pa.array(index.seed[episode]),
        "observations": pa.FixedSizeListArray.from_arrays(
            pa.array(observations), header.observation_dim
        ),
    }
    for name in schema.names[len(columns) :]:
        columns[name] = per_step(name)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _write_digest(path: Path) -> None:
    """Put the digest of the file's bytes, with zeros in its own place, into the footer."""
    metadata = pq.read_metadata(path)
    with path.open("r+b") as raw:
        position = digest_position(raw, path.stat().st_size, metadata, NO_DIGEST)
        digest = b"sha256:" + file_digest(raw, position).encode()
        raw.seek(position)
        raw.write(digest)

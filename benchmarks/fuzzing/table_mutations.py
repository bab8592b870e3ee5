"""Mutations of arrays and tables: Parquet, HDF5 and NumPy's archives."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing.json_mutations import edit_json


def mutate_table(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """A column dropped, renamed, of another type or with other values; with its checksum."""
    from sept_offline.seals import write_table

    table = pq.read_table(pa.BufferReader(content))
    name = rng.choice(table.column_names)
    place, column = table.column_names.index(name), table.column(name)
    made = rng.randrange(10)
    if made >= 6 and len(table):
        table = table.set_column(place, name, _edit_column(column, rng))
    elif made == 0:
        table = table.drop_columns([name])
    elif made == 1:
        table = table.rename_columns(
            [f"{one}x" if one == name else one for one in table.column_names]
        )
    elif made == 2:
        table = table.set_column(place, name, pa.nulls(len(table), column.type))
    elif made == 3:
        other = rng.choice((pa.string(), pa.int64(), pa.float64(), pa.timestamp("ns")))
        table = table.set_column(place, name, pa.nulls(len(table), other))
    elif made == 4 and table.schema.metadata:
        metadata = dict(table.schema.metadata)
        key = rng.choice(list(metadata))
        edited = edit_json(json.loads(metadata[key]), rng)
        table = table.replace_schema_metadata({**metadata, key: json.dumps(edited)})
    else:
        table = table.slice(0, rng.randrange(len(table) + 1))
    write_table(scratch / "table", table)
    return (scratch / "table").read_bytes(), True


STRANGE = {
    "text": ("", "x", "evil:family", "../../x", "a\0b", "<script>", "{}", "[" * 50_000, "٣", "\n"),
    "float": (float("nan"), float("inf"), -1e308, 0.0, -1.0),
    "int": (-1, 0, 2**31, 2**62, 7),
}


def _edit_column(column: pa.ChunkedArray, rng: random.Random) -> pa.Array:
    """One value of a column replaced by a hostile one of its type; JSON in it is edited."""
    kind, values = column.type, column.to_pylist()
    place = rng.randrange(len(values))
    if pa.types.is_string(kind):
        try:
            values[place] = json.dumps(edit_json(json.loads(values[place] or ""), rng))
        except ValueError:
            values[place] = rng.choice(STRANGE["text"])
    elif pa.types.is_floating(kind):
        values[place] = rng.choice(STRANGE["float"])
    elif pa.types.is_integer(kind):
        values[place] = rng.choice(STRANGE["int"])
    elif pa.types.is_boolean(kind):
        values[place] = rng.choice((True, False, None))
    elif pa.types.is_list(kind):
        items = STRANGE["float"] if pa.types.is_floating(kind.value_type) else ("", "x")
        values[place] = rng.choice(([], None, [rng.choice(items)], [rng.choice(items)] * 1000))
    return pa.array(values, kind)


def mutate_parquet(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """The same of a dataset: no checksum is left, as where another tool has rewritten it."""
    edited, _ = mutate_table(content, rng, scratch)
    table = pq.read_table(pa.BufferReader(edited))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), True


def mutate_hdf5(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """Something else in the place of an array, or beside it; with the checksum of the whole."""
    from sept_offline.data.hdf5 import _digest, _user_block

    path = scratch / "edited.h5"
    path.write_bytes(content)
    names: list[str] = []
    with h5py.File(path, "r+") as file:
        file.visit(names.append)
        name = rng.choice(names)
        made = rng.randrange(11)
        old = file[name]
        shape = old.shape if isinstance(old, h5py.Dataset) else (3,)
        values = old[()] if isinstance(old, h5py.Dataset) else np.zeros(3)
        del file[name]
        if made == 0:
            file.create_group(name)
        elif made == 1:
            file[name] = h5py.ExternalLink(str(scratch / "other.h5"), "/x")
        elif made == 2:
            file[name] = h5py.SoftLink(rng.choice(("/nowhere", f"/{name}", "/header", "/actions")))
        elif made == 3:
            file[name] = rng.choice((1, 2.5, "text", b"bytes", True))
        elif made == 4:
            file[name] = np.array([1 + 2j, 3])
        elif made == 5:
            file.create_dataset(name, (2,), dtype=h5py.ref_dtype)
        elif made == 6:
            huge = (rng.choice((2**28, 2**40)), *shape[1:])
            file.create_dataset(name, huge, dtype="f8", chunks=True, compression="gzip")
        elif made == 7:
            layout = h5py.VirtualLayout(shape=shape or (1,), dtype="f8")
            layout[...] = h5py.VirtualSource(str(scratch / "other.h5"), "x", shape=shape or (1,))
            file.create_virtual_dataset(name, layout)
        elif made == 8:
            file.create_dataset(
                name, shape or (1,), dtype="f8", external=[(str(scratch / "raw"), 0, 1 << 20)]
            )
        elif made == 9:
            array = np.asarray(values)
            with np.errstate(all="ignore"):
                edited = array[: len(array) // 2] if array.ndim else array
                file.create_dataset(name, data=edited)
        else:
            array = np.array(values)
            if array.dtype.kind in "iuf" and array.size:
                flat = array.reshape(-1)
                flat[rng.randrange(flat.size)] = rng.choice((-1, 0, 2**31, 7))
            file.create_dataset(name, data=array)
    if content.startswith(b"sept-offline") and rng.random() < 0.8:
        with path.open("r+b") as raw:
            raw.write(_user_block(_digest(path)))
    return path.read_bytes(), True


def mutate_npz(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    """One array of another shape."""
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(list(arrays))
    arrays[name] = np.zeros(rng.choice(((0,), (1,), (3, 3), (2**20,))), dtype=arrays[name].dtype)
    sink = io.BytesIO()
    rng.choice((np.savez, np.savez_compressed))(sink, **arrays)
    return sink.getvalue(), False

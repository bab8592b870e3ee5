"""A bench on disk: one file per finished cell, and four tables gathered from them.

OUT/datasets/            logs, collected once
OUT/cells/<cell>.parquet one finished cell, whole or absent
OUT/replaced/            cells that --replace ran again, as they were
OUT/results.parquet      a row per test episode
OUT/cells.parquet        a row per cell
OUT/training.parquet     a row per metric and epoch
OUT/latents.parquet      a row per encoded training segment

The tables hold everything that the cells hold: where only the tables were kept, the cells are made
from them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sept_offline.errors import DataError, one_line
from sept_offline.files import refuse_foreign, refuse_links, remove_ours
from sept_offline.limits import read_whole
from sept_offline.seals import PARQUET_KEY, write_table
from sept_offline.seals import read_table as read_sealed_table
from sept_offline.versions import OWN

if TYPE_CHECKING:
    import pyarrow as pa

Row = TypeVar("Row", bound=Mapping[str, Any])
PARTS = ("cell", "identity", "training", "latents")
TABLES = ("results", "cells", "training", "latents")
KEYS = ("family", "method", "preset", "variant", "seed")
"""The columns that identify a cell, by which every table is sorted."""
NAMES = (*KEYS, "data_seed")
"""The columns by which every row names its cell."""
UNSAFE = re.compile(r"[^A-Za-z0-9.=,_+-]")
CELL = re.compile(r"[A-Za-z0-9.=,_+~-]+\.parquet")
NULLABLE = (
    "solved",
    "steps_to_solve",
    "normalised",
    "latent",
    "uncertainty",
    "novelty",
    "budget",
    "identification",
    "hidden",
)
"""Columns that need not have a value in every row."""
COMPRESSION = "zstd"
WRITTEN = ("tables.md", "figures.md", "figures", "failures.json", "replaced")
"""What a bench writes beside its cells and tables."""
FOLDERS = ("cells", "datasets", "figures", "replaced")
NESTED = {"cells": ("record", "config", "versions", "identity"), "latents": ("hidden",)}
"""Columns that hold JSON objects, or nothing."""


@dataclass(frozen=True)
class Finished:
    """The stored data of a cell; every row names it by the columns of `Cell.row`.

    results: a row per test episode; training: (stage, update, metric, value); latents: (instance,
    hidden, z `[k]`) of training segments; identity: what the cell was made from, nested.
    """

    results: list[dict[str, Any]]
    cell: dict[str, Any]
    identity: dict[str, Any]
    training: list[dict[str, Any]]
    latents: list[dict[str, Any]]


def refuse_other(out: Path) -> None:
    """Refuse a folder that is not a bench and holds files of the names that a bench writes.

    A bench has cells or tables, which are recognised by what is in them.
    """
    refuse_links(out, (*FOLDERS, *WRITTEN, *(f"{name}.parquet" for name in TABLES)))
    for name in FOLDERS:
        if (out / name).is_dir():
            refuse_links(out / name, sorted(entry.name for entry in (out / name).iterdir()))
    cells = sorted((out / "cells").glob("*.parquet"))
    tables = [path for name in TABLES if (path := out / f"{name}.parquet").exists()]
    # A cell is read before it is replaced, so one damaged cell among others is found there.
    other = [path for path in tables if not _is_ours(path)]
    if cells and not any(_is_ours(path) for path in cells):
        other = cells
    if other:
        raise DataError(
            f"{other[0]} was not written by a bench and is not replaced; move it away, or choose "
            "another --out."
        )
    if cells or tables:
        return
    for name in WRITTEN:
        if (out / name).exists():
            raise DataError(
                f"{out} contains {name} but no cells, so it is not a bench and nothing in it is "
                "replaced; choose another --out."
            )


def _is_ours(path: Path) -> bool:
    """Whether a bench wrote a Parquet file; one that was damaged since still shows it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = read_whole(path, DataError)
    if PARQUET_KEY in content or b"bench.cell" in content:
        return True
    try:
        return set(KEYS) <= set(pq.read_schema(pa.BufferReader(content)).names)
    except (pa.ArrowException, OSError, ValueError):
        return False


def file_name(*key: Any) -> str:
    """The name of a cell's file, without its ending, by the values of `KEYS`."""
    return "~".join(UNSAFE.sub("_", str(part)) for part in key)


def write_cell(path: Path, finished: Finished) -> None:
    """Write a whole cell or nothing: its episodes as Parquet, the rest as JSON in the metadata."""
    import pyarrow as pa

    values = {f"bench.{part}": json.dumps(getattr(finished, part)) for part in PARTS}
    table = pa.Table.from_pylist(finished.results, schema=schema("results"))
    write_table(path, table.replace_schema_metadata(values), COMPRESSION)


def read_identity(path: Path) -> dict[str, Any]:
    """The settings and data that a finished cell was computed from."""
    return dict(_read_cell(path)[1]["identity"])


def set_aside(path: Path) -> None:
    """Move a finished cell to `OUT/replaced`, where it is no longer gathered."""
    folder = path.parents[1] / "replaced"
    folder.mkdir(exist_ok=True)
    path.replace(folder / path.name)


def gather(out: Path) -> None:
    """Write the four tables from all finished cells, with their rows always in one order."""
    import pyarrow as pa

    results: list[pa.Table] = []
    rows: dict[str, list[dict[str, Any]]] = {"cells": [], "training": [], "latents": []}
    cells = []
    for path in sorted((out / "cells").glob("*.parquet")):
        table, parts = _read_cell(path)
        cells.append((tuple(parts["cell"][key] for key in KEYS), table, parts))
    for _, table, parts in sorted(cells, key=lambda cell: cell[0]):
        results.append(table.replace_schema_metadata(None))
        identity = json.dumps(parts["identity"], sort_keys=True)
        rows["cells"].append(parts["cell"] | {"identity": identity})
        rows["training"] += _named(parts["cell"], parts["training"])
        rows["latents"] += _named(parts["cell"], parts["latents"])
    tables = {
        name: pa.Table.from_pylist(entries, schema=schema(name)) for name, entries in rows.items()
    }
    empty = schema("results").empty_table()
    tables["results"] = pa.concat_tables(results) if results else empty
    for name in TABLES:
        write_table(out / f"{name}.parquet", tables[name], COMPRESSION)


def scatter(out: Path) -> None:
    """Make the files of the cells from the tables, if their folder is missing.

    The folder is filled under another name and then renamed.
    """
    folder = out / "cells"
    absent = [name for name in TABLES if not (out / f"{name}.parquet").exists()]
    if folder.exists() or len(absent) == len(TABLES):
        return
    if absent:
        raise DataError(
            f"{out} has tables but neither cells nor {absent[0]}.parquet, so its cells cannot be "
            "restored and its tables are not replaced; restore the file, or choose another --out."
        )
    rows = {name: grouped(read_table(out, name), *KEYS) for name in TABLES}
    staged = out / ".cells.tmp"
    refuse_foreign(staged, CELL)
    remove_ours(staged, CELL)
    staged.mkdir()
    for key, (cell,) in rows["cells"].items():
        identity = json.loads(cell.pop("identity"))
        parts = {part: _nameless(rows[part].get(key, [])) for part in ("training", "latents")}
        finished = Finished(rows["results"].get(key, []), cell, identity, **parts)
        write_cell(staged / f"{file_name(*key)}.parquet", finished)
    staged.rename(folder)


def read_table(out: Path, name: str) -> list[dict[str, Any]]:
    """The rows of one of the four tables."""
    path = out / f"{name}.parquet"
    if not path.exists():
        raise DataError(f"There is no {path}; `sept-offline bench --out {out}` writes it.")
    table = _table(path)
    _check_columns(path, table, name)
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
        for column in NESTED.get(name, ()):
            for text in {row[column] for row in rows}:
                value = {} if text is None else json.loads(text)
                if not isinstance(value, dict):
                    raise ValueError(f"{column} is not an object")
                if column == "versions" and not (
                    OWN in value and all(isinstance(each, str) for each in value.values())
                ):
                    raise ValueError("versions does not name a version of each library")
    except (TypeError, ValueError, RecursionError) as problem:
        raise _damaged(path, problem) from problem
    return rows


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values in `columns`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> list[str]:
    """Dotted names whose values differ; a name that only one of them has does not count.

    A cell stays valid when a later version of the library adds a setting.
    """
    names: list[str] = []
    for key in [key for key in stored if key in wanted]:
        path = f"{where}.{key}" if where else key
        if isinstance(stored[key], Mapping) and isinstance(wanted[key], Mapping):
            names += differences(stored[key], wanted[key], path)
        elif stored[key] != wanted[key]:
            names.append(path)
    return names


def schema(name: str) -> pa.Schema:
    """The columns of a table, and their types."""
    import pyarrow as pa

    text, whole, real, flag = pa.string(), pa.int32(), pa.float64(), pa.bool_()
    named: list[tuple[str, pa.DataType]] = [
        *((key, text) for key in ("family", "method", "preset", "variant")),
        *((key, whole) for key in ("data_seed", "seed")),
    ]
    columns: dict[str, Sequence[tuple[str, pa.DataType]]] = {
        "results": [
            ("instance", text),
            ("episode", whole),
            ("return", real),
            ("steps", whole),
            ("probe_steps", whole),
            ("solved", flag),
            ("steps_to_solve", whole),
            ("terminated", flag),
            ("normalised", real),
            ("latent", pa.list_(pa.float32())),
            ("uncertainty", pa.float32()),
            ("novelty", pa.float32()),
            ("flagged", flag),
            ("act_microseconds", pa.float32()),
            ("seconds", pa.float32()),
            ("reward", pa.list_(pa.float32())),
        ],
        "cells": [
            ("key", text),
            ("content_hash", text),
            ("split", text),
            ("limit", whole),
            ("episodes", whole),
            ("needs", pa.list_(text)),
            ("learns", flag),
            ("budget", text),
            ("behaviour_estimated", flag),
            ("fit_seconds", real),
            ("fit_cpu_seconds", real),
            ("test_seconds", real),
            ("identification", real),
            ("record", text),
            ("config", text),
            ("versions", text),
            ("identity", text),
        ],
        "training": [("stage", text), ("update", whole), ("metric", text), ("value", pa.float32())],
        "latents": [("instance", text), ("hidden", text), ("z", pa.list_(pa.float32()))],
    }
    return pa.schema([*named, *columns[name]])


def _named(cell: Mapping[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = {key: cell[key] for key in NAMES}
    return [keys | row for row in rows]


def _nameless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `_named` was given."""
    return [{key: value for key, value in row.items() if key not in NAMES} for row in rows]


def _table(path: Path) -> pa.Table:
    try:
        return read_sealed_table(path, DataError)
    except DataError as problem:
        raise DataError(f"{problem} Delete it and run the same command again.") from problem


def _read_cell(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The episodes of a finished cell, and the rest of it."""
    table = _table(path)
    try:
        metadata = table.schema.metadata or {}
        parts = {part: json.loads(metadata[f"bench.{part}".encode()]) for part in PARTS}
        if not all(isinstance(parts[part], dict) for part in ("cell", "identity")):
            raise ValueError("it does not describe a cell")
        missing = [key for key in NAMES if key not in parts["cell"]]
        if missing:
            raise ValueError(f"it lacks {missing[0]}")
    except (KeyError, TypeError, ValueError, RecursionError) as problem:
        raise _damaged(path, problem) from problem
    _check_columns(path, table, "results")
    return table, parts


def _check_columns(path: Path, table: pa.Table, name: str) -> None:
    for field in schema(name):
        if field.name not in table.column_names:
            raise _damaged(path, f"it has no column {field.name!r}")
        if table.schema.field(field.name).type != field.type:
            raise _damaged(path, f"its column {field.name!r} is of another type")
        if field.name not in NULLABLE and table.column(field.name).null_count:
            raise _damaged(path, f"its column {field.name!r} lacks values")


def _damaged(path: Path, problem: object) -> DataError:
    return DataError(
        f"{path} is damaged ({one_line(problem):.200}); delete it and run the same command again."
    )

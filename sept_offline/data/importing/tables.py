"""CSV and Parquet files as a stream of record batches, in bounded memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from sept_offline.data.importing.mapping import ImportMapping
from sept_offline.data.importing.prefetch import ahead
from sept_offline.errors import DataError

BLOCK_BYTES = 1 << 21
"""Bytes of CSV parsed at once: Arrow keeps several such blocks and is fastest in the cache."""
BATCH_ROWS = 1 << 17
WORDS = pa.dictionary(pa.int32(), pa.string())

Report = Callable[[float], None]
"""Called with the bytes of a file that have been read."""


@dataclass(frozen=True)
class Look:
    """Assumptions about the columns; if one proves wrong, the rows are read again."""

    whole_times: bool = True
    """Whether numeric times are integers."""
    microseconds: bool = True
    """Whether timestamps have at most microsecond resolution."""
    nothing_is_missing: bool = False
    """Whether NA and the like are missing values; they are labels if the others are words."""


class Mistaken(Exception):
    """An assumption about the rows was wrong; `changes` correct it."""

    def __init__(self, **changes: bool) -> None:
        super().__init__(changes)
        self.changes = changes


def column_names(kind: str, path: Path, delimiter: str) -> list[str]:
    """The columns of a file."""
    if kind == "parquet":
        try:
            return list(pq.read_schema(path).names)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                f"{path} is not a Parquet file, or it is damaged: {_short(error)}."
            ) from error
    try:
        with pa.input_stream(str(path)) as stream:
            # Only the first line must be UTF-8; columns that are not read may have any encoding.
            text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
            names = next(csv.reader(_lines(text, path), delimiter=_delimiter(path, delimiter)), [])
    except (pa.ArrowException, OSError, csv.Error) as error:
        raise DataError(f"The first line of {path} cannot be read: {_short(error)}.") from error
    if not names:
        raise DataError(f"{path} is empty; expected one row per step.")
    if any(0xD800 <= ord(letter) < 0xE000 for name in names for letter in name):
        raise DataError(f"The column names of {path} are not UTF-8 text; save the file as UTF-8.")
    return names


def _lines(text: TextIO, path: Path) -> Iterator[str]:
    """The lines of a text; one without an end is not read into memory to look for it."""
    while line := text.readline(BLOCK_BYTES + 1):
        if len(line) > BLOCK_BYTES:
            raise DataError(f"{path} has a line of column names longer than {BLOCK_BYTES:,} bytes.")
        yield line


def batches(
    kind: str, path: Path, mapping: ImportMapping, look: Look, report: Report
) -> Generator[pa.RecordBatch]:
    """The mapped columns of a file, batch by batch."""
    if kind == "csv":
        return ahead(_csv(path, mapping, look, report))
    return ahead(_parquet(path, mapping, report))


def _csv(
    path: Path, mapping: ImportMapping, look: Look, report: Report
) -> Generator[pa.RecordBatch]:
    kinds = {
        "observations": pa.float32(),
        "next_observations": pa.float32(),
        "reward": pa.float64(),
        "probability": pa.float64(),
        "probabilities": pa.float64(),
        "action": WORDS if mapping.bins is None else pa.float64(),
    }
    columns: dict[str, pa.DataType] = {}
    for role, column in mapping.roles():
        kind = kinds.get(role, WORDS)
        # A column that means two things is read so that it can be both.
        columns[column] = pa.float64() if columns.get(column, kind) != kind else kind
    names = list(columns)
    if mapping.time is not None:
        del columns[mapping.time]
        if not look.whole_times:
            columns[mapping.time] = pa.float64()
    size = path.stat().st_size
    try:
        with pa.OSFile(str(path)) as raw:
            # Arrow decompresses by file name, and this file is passed open.
            packed = path.suffix.lower() in (".gz", ".bz2", ".zst")
            stream = pa.CompressedInputStream(raw, _codec(path)) if packed else raw
            reader = pc.open_csv(
                stream,
                read_options=pc.ReadOptions(block_size=BLOCK_BYTES),
                parse_options=pc.ParseOptions(
                    delimiter=_delimiter(path, mapping.delimiter),
                    newlines_in_values=mapping.quoted_newlines,
                ),
                # NA is not a number but may be a word: among words, only "" is missing.
                convert_options=pc.ConvertOptions(
                    column_types=columns, include_columns=names, strings_can_be_null=False
                ),
            )
            for batch in reader:
                report(min(raw.tell(), size))
                yield batch
    except pa.ArrowException as error:
        if "to int64" in str(error) and look.whole_times:
            raise Mistaken(whole_times=False) from error
        if "Empty CSV" in str(error):
            raise DataError(f"{path} is empty; expected one row per step.") from error
        raise DataError(
            f"{path} cannot be read: "
            f"{_explained(error, column_names('csv', path, mapping.delimiter))}."
        ) from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {_short(error)}.") from error


def _parquet(path: Path, mapping: ImportMapping, report: Report) -> Generator[pa.RecordBatch]:
    names = list(dict.fromkeys(column for _, column in mapping.roles()))
    try:
        with pq.ParquetFile(path) as file:
            size, rows, done = path.stat().st_size, max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                done += batch.num_rows
                report(size * done / rows)
                yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {_short(error)}.") from error


def _delimiter(path: Path, said: str) -> str:
    return "\t" if said == "," and ".tsv" in path.name.lower() else said


def _codec(path: Path) -> str:
    return {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[path.suffix.lower()]


def _explained(error: Exception, names: list[str]) -> str:
    """Arrow's words with the column by name instead of by number."""
    text = _short(error)
    if text.startswith("In CSV column #"):
        number, _, rest = text.removeprefix("In CSV column #").partition(":")
        text = f"column {names[int(number)]!r}:{rest}"
        if "UTF8" in rest:
            text += ", expected UTF-8 text"
        elif "timestamp" in rest:
            text += ", expected a time written as those before it"
        elif "conversion error" in rest:
            text += ", expected a number"
    if "Expected" in text and "columns" in text:
        text += " (if quoted text runs over lines, say --quoted-newlines)"
    return text


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__

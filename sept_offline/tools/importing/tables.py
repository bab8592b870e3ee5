"""The files of an import, and CSV and Parquet files as rows, batch by batch, in bounded memory."""

from __future__ import annotations

import csv
import glob
import io
import re
import unicodedata
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
import pyarrow.parquet as pq

from sept_offline.data.filesystems import HDF5_SUFFIXES
from sept_offline.data.hdf5 import names_of, open_hdf5
from sept_offline.errors import DataError
from sept_offline.files import real_path
from sept_offline.limits import check_regular
from sept_offline.tools.importing.mapping import ImportMapping
from sept_offline.tools.importing.reading import Reading, is_list, rows_of
from sept_offline.tools.importing.rows import Mistaken, Rows

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst")
PARQUET = (".parquet", ".pq")
MINARI = "minari:"
SEPARATORS = {
    ";": "add --delimiter ';'",
    "\t": "name the file .tsv",
    "|": "add --delimiter '|'",
    ",": "leave out --delimiter",
}
"""What to do if a file is separated by each of these."""
PICKLED = (".pkl", ".pickle", ".d3", ".pt", ".npy", ".npz")
BLOCK_BYTES = 1 << 21
"""Bytes of CSV parsed at once: Arrow keeps several such blocks and is fastest in the cache."""
BATCH_ROWS = 1 << 17
WORDS = pa.dictionary(pa.int32(), pa.string())


def find_files(sources: Sequence[str | Path], out: Path) -> tuple[str, list[Path]]:
    """The kind of all files ("csv", "parquet", "d4rl" or "d3rlpy") and the files, in order.

    What an import before this one wrote at `out` is none of them.
    """
    files = [path for source in sources for path in _expanded(str(source))]
    files = [path for path in files if not (out.exists() and path.samefile(out))]
    if not files:
        raise DataError("There is nothing to import; name files, a pattern or a directory.")
    kinds = {_kind(path): path for path in reversed(files)}
    if len(kinds) > 1:
        (kind, first), (other, second) = list(kinds.items())[:2]
        raise DataError(
            f"{first} is {kind} and {second} is {other}; import files of one kind at a time."
        )
    once = {real_path(path): path for path in reversed(files)}
    return next(iter(kinds)), [once[place] for place in dict.fromkeys(real_path(p) for p in files)]


def stem(path: Path) -> str:
    """A file's name without its endings."""
    name = path.name
    for ending in sorted((*CSV, *PARQUET, *HDF5_SUFFIXES), key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return path.stem


def file_words(files: Sequence[Path]) -> dict[Path, str]:
    """A name for each file: its stem, with as many folders as make it unique.

    Files that differ in nothing but their endings keep them.
    """
    words = {path: stem(path) for path in files}
    named: dict[str, list[Path]] = {}
    for path, word in words.items():
        named.setdefault(word, []).append(path)
    for word, group in named.items():
        if len(group) > 1:
            words |= _distinct_names(word, [real_path(path) for path in group], group)
    return words


def _distinct_names(word: str, places: list[Path], files: list[Path]) -> dict[Path, str]:
    folders = [place.parts[1:-1] for place in places]
    ends = [word] * len(files)
    if len(set(folders)) < len(files):
        ends = [place.name for place in places]
    for depth in range(max(map(len, folders)) + 1):
        names = [
            "/".join((*parts[max(len(parts) - depth, 0) :], end))
            for parts, end in zip(folders, ends, strict=True)
        ]
        if len(set(names)) == len(names):
            break
    return dict(zip(files, names, strict=True))


def _expanded(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and file.name.lower().endswith((*CSV, *PARQUET, *HDF5_SUFFIXES))
        )
        if not files:
            raise DataError(f"The directory {path} contains no CSV, Parquet or HDF5 file.")
        return files
    try:
        if path.exists():
            check_regular(path, DataError)
            return [path]
        files = sorted(Path(name) for name in glob.glob(source, recursive=True))  # noqa: PTH207
    except ValueError:  # a name that no file can have, as with a null byte in it
        files = []
    if not files:
        raise DataError(f"There is nothing at {source}; check the path.")
    for file in files:
        check_regular(file, DataError)
    return files


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(PICKLED):
        raise DataError(
            f"{path} may contain pickled objects, which are never loaded; "
            "write its steps as CSV, Parquet or HDF5, or through sept_offline.DatasetWriter."
        )
    if not name.endswith(HDF5_SUFFIXES):
        raise DataError(
            f"Unknown format of {path}; expected .csv, .parquet or .h5 files, "
            f"or {MINARI}NAME for a Minari dataset."
        )
    return _hdf5_kind(path)


def _hdf5_kind(path: Path) -> str:
    with open_hdf5(path) as file:
        names = set(names_of(file))
    if {"columns", "num_episodes", "version"} <= names:
        return "d3rlpy"
    if "header" in names and "episodes" in names:
        raise DataError(
            f"{path} is already a sept-offline dataset; use it directly, or run sept-offline "
            "convert."
        )
    if {"observations", "actions", "rewards"} <= names:
        return "d4rl"
    raise DataError(
        f"{path} holds {', '.join(sorted(names)[:8])}; expected observations, actions and rewards, "
        "as in D4RL, or a replay buffer dumped by d3rlpy."
    )


def column_names(kind: str, path: Path, delimiter: str) -> list[str]:
    """The columns of a file."""
    if kind == "parquet":
        return list(_parquet_schema(path).names)
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
    if any(unicodedata.category(letter) == "Cc" and letter not in "\t\r\n" for letter in names[0]):
        raise DataError(
            f"{path} is not a text file: its first line holds control characters; expected CSV, "
            "the names of the columns first."
        )
    if len(names) == 1:
        _check_separator(names[0], path, _delimiter(path, delimiter))
    return names


def _check_separator(line: str, path: Path, delimiter: str) -> None:
    """Refuse a first line that is not split, but would be by another separator."""
    for other, advice in SEPARATORS.items():
        if other in line and other != delimiter:
            name = "tabs" if other == "\t" else repr(other)
            raise DataError(f"The columns of {path} seem to be separated by {name}; {advice}.")


def holds_lists(path: Path, names: Sequence[str]) -> bool:
    """Whether some of these columns of a Parquet file hold several numbers per row."""
    schema = _parquet_schema(path)
    return any(is_list(schema.field(name).type) for name in names)


def _parquet_schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a Parquet file, or it is damaged: {_short(error)}."
        ) from error


def table_rows(reading: Reading, files: Sequence[Path]) -> Generator[Rows]:
    """The rows of CSV or Parquet files."""
    batches = _csv if reading.kind == "csv" else _parquet
    for path in files:
        reading.open(path)
        for batch in batches(path, reading):
            if batch.num_rows:
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                rows = rows_of(reading, columns, path, batch.num_rows)
                if len(rows):
                    yield rows


def _csv(path: Path, reading: Reading) -> Generator[pa.RecordBatch]:
    mapping, whole_times = reading.mapping, reading.look.whole_times
    kinds = {
        "observations": pa.float32(),
        "next_observations": pa.float32(),
        "action": pa.float64() if mapping.box or mapping.bins is not None else WORDS,
        **dict.fromkeys(("reward", "probability", "probabilities"), pa.float64()),
        **dict.fromkeys(("density", "log_density"), pa.float64()),
    }
    columns: dict[str, pa.DataType] = {}
    for role, column in mapping.roles():
        kind = kinds.get(role, WORDS)
        # A column that means two things is read so that it can be both.
        columns[column] = pa.float64() if columns.get(column, kind) != kind else kind
    names = list(columns)
    if mapping.time is not None:
        del columns[mapping.time]
        if not whole_times:
            columns[mapping.time] = pa.float64()
    size = max(path.stat().st_size, 1)
    try:
        with pa.OSFile(str(path)) as raw:
            for batch in _open_csv(raw, path, mapping, names, columns):
                reading.reached(min(raw.tell() / size, 1.0))
                yield batch
    except pa.ArrowException as error:
        if "to int64" in str(error) and whole_times:
            raise Mistaken(whole_times=False) from error
        if "Empty CSV" in str(error):
            raise DataError(f"{path} is empty; expected one row per step.") from error
        explained = _explained(_short(error), path, mapping)
        raise DataError(f"{path} cannot be read: {explained}.") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {_short(error)}.") from error


def _open_csv(
    raw: pa.NativeFile,
    path: Path,
    mapping: ImportMapping,
    names: list[str],
    types: Mapping[str, pa.DataType],
) -> pc.CSVStreamingReader:
    """A reader of some columns of a file."""
    # Arrow decompresses by file name, and this file is passed open.
    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(path.suffix.lower())
    return pc.open_csv(
        pa.CompressedInputStream(raw, codec) if codec else raw,
        read_options=pc.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pc.ParseOptions(
            delimiter=_delimiter(path, mapping.delimiter),
            newlines_in_values=mapping.quoted_newlines,
        ),
        # NA is not a number but may be a word: among words, only "" is missing.
        convert_options=pc.ConvertOptions(
            column_types=types, include_columns=names, strings_can_be_null=False
        ),
    )


def _parquet(path: Path, reading: Reading) -> Generator[pa.RecordBatch]:
    names = list(dict.fromkeys(column for _, column in reading.mapping.roles()))
    try:
        with pq.ParquetFile(path) as file:
            rows, done = max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(BATCH_ROWS, columns=names):
                done += batch.num_rows
                reading.reached(done / rows)
                yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {_short(error)}.") from error


def _lines(text: TextIO, path: Path) -> Iterator[str]:
    """The lines of a text; one without an end is not read into memory to look for it."""
    while line := text.readline(BLOCK_BYTES + 1):
        if len(line) > BLOCK_BYTES:
            raise DataError(f"{path} has a line of column names longer than {BLOCK_BYTES:,} bytes.")
        yield line


def _delimiter(path: Path, named: str) -> str:
    return "\t" if named == "," and ".tsv" in path.name.lower() else named


def _explained(text: str, path: Path, mapping: ImportMapping) -> str:
    """Arrow's words with the column by name instead of by number, and the row."""
    match = re.fullmatch(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", text, re.DOTALL)
    if match:
        name = column_names("csv", path, mapping.delimiter)[int(match[1])]
        text = f"column {name!r}: {match[2]}"
        value = re.search("invalid value '(.*)'", match[2], re.DOTALL)
        if value:
            text += _row_of(path, mapping, name, value[1])
        if "UTF8" in text:
            text += ", expected UTF-8 text"
        elif "timestamp" in text:
            text += ", expected a time written as those before it"
        elif "conversion error" in text:
            text += ", expected a number"
    if "Expected" in text and "columns" in text:
        text += " (if quoted text contains line breaks, add --quoted-newlines)"
    return text


def _row_of(path: Path, mapping: ImportMapping, name: str, value: str) -> str:
    """The first row that holds a value, in parentheses: Arrow's threads do not count rows."""
    before = 0
    try:
        with pa.OSFile(str(path)) as raw:
            for batch in _open_csv(raw, path, mapping, [name], {name: pa.string()}):
                position = compute.index(
                    compute.utf8_trim_whitespace(batch.column(0)), value
                ).as_py()
                if position >= 0:
                    return f" (row {before + position + 1})"
                before += batch.num_rows
    except (pa.ArrowException, OSError):
        return ""
    return ""


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__

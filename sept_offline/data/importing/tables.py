"""CSV and Parquet files as rows in the common form, batch by batch, in bounded memory."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sept_offline.data.importing.mapping import FILE, ImportMapping
from sept_offline.data.importing.rows import (
    TERMINATED,
    TRUNCATED,
    Look,
    Mistaken,
    Reading,
    Rows,
    Words,
    dictionary,
    occurring,
)
from sept_offline.data.records import Bool, Float64, Int64
from sept_offline.errors import DataError

BLOCK_BYTES = 1 << 21
"""Bytes of CSV parsed at once: Arrow keeps several such blocks and is fastest in the cache."""
BATCH_ROWS = 1 << 17
WORDS = pa.dictionary(pa.int32(), pa.string())
EPISODE = "@episode"
"""The column of the episode in batches of a source that numbers them itself."""
TRUE = ("true", "t", "yes", "y", "1", "1.0")
FALSE = ("false", "f", "no", "n", "0", "0.0")
UNKNOWN = "unknown"
NOTHING = frozenset(pc.ConvertOptions().null_values) - {""}
"""NA, null, nan and the like."""
TIMES = {
    "whole": "whole numbers",
    "real": "real numbers",
    "dates": "timestamps without a time zone",
    "instants": "timestamps with a time zone",
}

Report = Callable[[float], None]
"""Called with the bytes that have been read."""


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
    return names


def holds_lists(path: Path, names: Sequence[str]) -> bool:
    """Whether some of these columns of a Parquet file hold several numbers per row."""
    schema = _parquet_schema(path)
    return any(_is_list(schema.field(name).type) for name in names)


def _parquet_schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} is not a Parquet file, or it is damaged: {_short(error)}."
        ) from error


def table_rows(reading: Reading, files: Sequence[Path], report: Report) -> Generator[Rows]:
    """The rows of CSV or Parquet files; `report` receives the bytes read."""
    before = 0.0
    for path in files:
        reading.open(path)

        def so_far(done: float, before: float = before) -> None:
            report(before + done)

        batches = _csv if reading.kind == "csv" else _parquet
        for batch in batches(path, reading.mapping, reading.look, so_far):
            if batch.num_rows:
                columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                rows = rows_of(reading, columns, path, batch.num_rows)
                if len(rows):
                    yield rows
        before += path.stat().st_size


def _csv(
    path: Path, mapping: ImportMapping, look: Look, report: Report
) -> Generator[pa.RecordBatch]:
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
        if not look.whole_times:
            columns[mapping.time] = pa.float64()
    size = path.stat().st_size
    try:
        with pa.OSFile(str(path)) as raw:
            for batch in _open_csv(raw, path, mapping, names, columns):
                report(min(raw.tell(), size))
                yield batch
    except pa.ArrowException as error:
        if "to int64" in str(error) and look.whole_times:
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


def _parquet(
    path: Path, mapping: ImportMapping, look: Look, report: Report
) -> Generator[pa.RecordBatch]:
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


def rows_of(reading: Reading, columns: Mapping[str, pa.Array], path: Path, count: int) -> Rows:
    """The rows of a batch: `columns` by the names of the mapping."""
    try:
        return _rows(reading, columns, path, count)
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def _rows(reading: Reading, columns: Mapping[str, pa.Array], path: Path, count: int) -> Rows:
    mapping, row = reading.mapping, reading.number(count)
    instance = _instances(reading, columns, path, count)
    episode = _episodes(reading, columns, path, count)
    time, timeless = _times(reading, columns, row, path)
    for name, absent in (
        (mapping.instance, instance < 0),
        (", ".join(mapping.episode), episode < 0),
        (mapping.time, timeless),
    ):
        if name is not None:
            reading.findings.lack("key", name, absent, row)

    def vectors(role: str, names: Sequence[str], kind: Any) -> NDArray[Any]:
        return _matrix(reading, columns, role, names, kind, path)

    following = None
    observations = vectors("observations", mapping.observations, np.float32)
    if mapping.next_observations:
        following = vectors("observations", mapping.next_observations, np.float32)
    chances = vectors("chances", mapping.chances, np.float64) if mapping.chances else None
    if mapping.box or mapping.bins is not None:
        action = _finite(vectors("action", mapping.action_columns, np.float64))
    else:
        action = _labels(reading, columns, path)[:, None]
    rows = Rows(
        episode=episode,
        instance=instance,
        time=time,
        row=row,
        observations=_finite(observations),
        following=None if following is None else _finite(following),
        action=action,
        reward=_finite(_floats(columns[str(mapping.reward)], str(mapping.reward), path)),
        ends=_ends(reading, columns, row),
        chances=chances,
    )
    keyed = (instance >= 0) & (episode >= 0) & ~timeless
    return rows if keyed.all() else rows.take(keyed)


def _instances(reading: Reading, columns: Mapping[str, pa.Array], path: Path, count: int) -> Int64:
    name = reading.mapping.instance
    if name is not None and name in columns:
        return reading.instances.code(*dictionary(columns[name]))
    # Without such an array in an HDF5 file, the name is the instance's own.
    word = name
    if name == FILE or (name is None and reading.kind in ("d4rl", "d3rlpy")):
        word = reading.file_words[path]
    return reading.instances.code([word or UNKNOWN], np.zeros(count, dtype=np.int64))


def _episodes(reading: Reading, columns: Mapping[str, pa.Array], path: Path, count: int) -> Int64:
    names = reading.mapping.episode or (EPISODE,)

    def coded(name: str, words: Words) -> Int64:
        if name == FILE:
            return words.code([reading.file_words[path]], np.zeros(count, dtype=np.int64))
        return words.code(*dictionary(columns[name]))

    if len(names) == 1:
        return coded(names[0], reading.episodes)
    if not reading.parts:
        reading.parts = [Words() for _ in names]
    parts = [coded(name, words) for name, words in zip(names, reading.parts, strict=True)]
    return reading.episodes.code_pairs(parts)


def _times(
    reading: Reading, columns: Mapping[str, pa.Array], row: Int64, path: Path
) -> tuple[NDArray[Any], Bool]:
    """[n], numbers that order the rows of an episode, and where there is none."""
    name = reading.mapping.time
    if name is None:
        return row, np.zeros(len(row), dtype=np.bool_)
    column = columns[name]
    kind = column.type
    absent = column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind):
        return np.zeros(len(row), dtype=np.int64), absent
    if pa.types.is_integer(kind):
        found = "whole"
    elif pa.types.is_floating(kind):
        found = "real"
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        # Times without a zone cannot be compared with times that have one.
        found = "instants" if getattr(kind, "tz", None) else "dates"
    else:
        raise DataError(
            f"The time {name!r} of {path} holds {kind}, expected numbers or timestamps; "
            "omit --time if the rows are in order."
        )
    whole = reading.look.whole_times
    if found == "real" and whole and (reading.times == "whole" or reading.times is None):
        raise Mistaken(whole_times=False)
    found = "real" if found == "whole" and not whole else found
    if reading.times not in (None, found):
        raise DataError(
            f"The time {name!r} holds {TIMES[reading.times]} in one file and {TIMES[found]} in "
            f"{path}; use one format in all files."
        )
    reading.times = found
    try:
        if found == "real":
            times = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
            return times, np.isnan(times)
        if found != "whole":
            column = _stamps(column, reading.look)
        return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), absent
    except pa.ArrowInvalid as error:
        hint = {
            "real": "integers beyond 2⁵³ mixed with floats, which cannot represent them exactly",
            "whole": "whole numbers beyond 2⁶³",
        }.get(found, "timestamps that 64 bits cannot hold")
        raise DataError(f"The time {name!r} of {path} holds {hint}; use another format.") from error


def _stamps(column: pa.Array, look: Look) -> pa.Array:
    """In microseconds or, once some have turned out finer, in nanoseconds."""
    kind = column.type
    unit = "us" if look.microseconds else "ns"
    try:
        return column.cast(pa.timestamp(unit, tz=getattr(kind, "tz", None)))
    except pa.ArrowInvalid:
        if look.microseconds and getattr(kind, "unit", "") == "ns":
            raise Mistaken(microseconds=False) from None
        raise


def _matrix(
    reading: Reading,
    columns: Mapping[str, pa.Array],
    role: str,
    names: Sequence[str],
    kind: Any,
    path: Path,
) -> NDArray[Any]:
    """[n, d], the numbers of some columns side by side; a column of lists gives several."""
    known = reading.widths.get(role, (1,) * len(names))
    parts = [
        _lists(columns[name], name, width, path) if _is_list(columns[name].type) else columns[name]
        for name, width in zip(names, known, strict=True)
    ]
    widths = tuple(1 if isinstance(part, pa.Array) else part.shape[1] for part in parts)
    if reading.widths.setdefault(role, widths) != widths:
        what = "Observations" if role == "observations" else f"Columns of {role}"
        raise DataError(
            f"{what} have {sum(known)} numbers in one row and {sum(widths)} in another "
            f"({path}); every row needs the same number."
        )
    ends = np.cumsum(widths)
    out = np.empty((len(columns[names[0]]), int(ends[-1])), dtype=kind)
    for name, part, end, width in zip(names, parts, ends.tolist(), widths, strict=True):
        with np.errstate(over="ignore"):
            if not isinstance(part, pa.Array):
                out[:, end - width : end] = part
            elif part.type == pa.from_numpy_dtype(kind):
                out[:, end - 1] = part.to_numpy(zero_copy_only=False)
            else:
                out[:, end - 1] = _floats(part, name, path)
    return out


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    )


def _lists(column: pa.Array, name: str, width: int, path: Path) -> Float64:
    """[n, width]; `width` counts where no row has a list."""
    known = ~column.is_null().to_numpy(zero_copy_only=False)
    lists = column.drop_null()
    flat = _floats(lists.flatten(), name, path)
    if len(lists):
        width, rest = divmod(len(flat), len(lists))
        if rest or (len(flat) and (np.asarray(compute.list_value_length(lists)) != width).any()):
            raise DataError(f"The lists of {name!r} in {path} do not all have the same length.")
    out = np.full((len(column), width), np.nan)
    out[known] = flat.reshape(-1, width)
    return out


def _floats(column: pa.Array, name: str, path: Path) -> Float64:
    """[n]; whole numbers that float64 does not hold are rounded."""
    try:
        floats = column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise DataError(
            f"The column {name!r} of {path} holds {column.type}, expected numbers."
        ) from error
    return np.array(floats.to_numpy(zero_copy_only=False))


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    """The same array with NaN for what is infinite."""
    infinite = np.isinf(values)
    if infinite.any():
        values[infinite] = np.nan
    return values


def _labels(reading: Reading, columns: Mapping[str, pa.Array], path: Path) -> Float64:
    """[n], the numbers of the words in the column of the action."""
    (name,) = reading.mapping.action_columns
    reading.widths["action"] = (1,)
    kind = columns[name].type
    if pa.types.is_nested(kind):
        raise DataError(
            f"The action {name!r} of {path} holds {kind}, expected one label or number per row."
        )
    strings = kind.value_type if pa.types.is_dictionary(kind) else kind
    if reading.kind == "parquet":
        reading.worded |= pa.types.is_string(strings) or pa.types.is_large_string(strings)
    words, places = dictionary(columns[name])
    if reading.look.nothing_is_missing:
        words, places = occurring(["" if word in NOTHING else word for word in words], places)
    return reading.label(words, places)


def _ends(reading: Reading, columns: Mapping[str, pa.Array], row: Int64) -> NDArray[np.uint8]:
    ends = np.zeros(len(row), dtype=np.uint8)
    mapping, findings = reading.mapping, reading.findings
    for name, bit in ((mapping.terminated, TERMINATED), (mapping.truncated, TRUNCATED)):
        if name is None:
            continue
        words, places = dictionary(columns[name])
        words, places = occurring(["" if word in NOTHING else word for word in words], places)
        known = [word.lower() for word in words]
        bits = np.asarray([bit * (word in TRUE) for word in known] + [0], dtype=np.uint8)
        odd = np.asarray([word not in (*TRUE, *FALSE) for word in known] + [False])
        if odd.any():
            bad = odd[places]
            word = words[int(places[np.argmax(bad)])]
            findings.refuse(
                "flag",
                row[bad],
                f"{{count}} end flags are neither true nor false, first {word!r} in {name!r} "
                "({place}); write true, false, 1 or 0.",
            )
        findings.counts["empty flags"] += int((places < 0).sum())
        ends |= bits[places]
    return ends


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
        text += " (if quoted text runs over lines, say --quoted-newlines)"
    return text


def _row_of(path: Path, mapping: ImportMapping, name: str, value: str) -> str:
    """The first row that holds a value, in parentheses: Arrow's threads do not count rows."""
    before = 0
    try:
        with pa.OSFile(str(path)) as raw:
            for batch in _open_csv(raw, path, mapping, [name], {name: pa.string()}):
                found = compute.index(compute.utf8_trim_whitespace(batch.column(0)), value).as_py()
                if found >= 0:
                    return f" (row {before + found + 1})"
                before += batch.num_rows
    except (pa.ArrowException, OSError):
        return ""
    return ""


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__

"""From record batches to rows in the common form."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
from numpy.typing import NDArray

from sept_offline.data.importing.findings import Findings
from sept_offline.data.importing.mapping import FILE, ImportMapping
from sept_offline.data.importing.rows import TERMINATED, TRUNCATED, Rows
from sept_offline.data.importing.tables import Look, Mistaken, Report, batches
from sept_offline.data.importing.vocabulary import Words, dictionary, occurring
from sept_offline.data.records import Float32, Float64, Int64
from sept_offline.errors import DataError

MOST_LABELS = 1000
"""Maximum number of distinct action labels."""
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


@dataclass
class Reading:
    """State of one pass over the files: the words behind the codes."""

    mapping: ImportMapping
    kind: str
    """Kind of the files: csv, parquet, d4rl or d3rlpy."""
    look: Look
    file_words: Mapping[Path, str]
    """The name of each file if files are instances or episodes."""
    findings: Findings = field(default_factory=Findings)
    instances: Words = field(default_factory=Words)
    episodes: Words = field(default_factory=Words)
    parts: list[Words] = field(default_factory=list)
    """For each column, if several identify an episode."""
    labels: Words = field(default_factory=Words)
    worded: bool = False
    """Whether labels come from a column of strings, and not of numbers or of any text."""
    widths: tuple[int, ...] | None = None
    """Numbers that each column of observations holds, where there are several that hold several."""
    rows: int = 0
    times: str | None = None
    """A key of TIMES."""

    def open(self, path: Path) -> None:
        """The rows that follow are of this file."""
        self.findings.files.append((self.rows, path))

    def number(self, count: int) -> Int64:
        """[count], the numbers of the next `count` rows."""
        self.rows += count
        return np.arange(self.rows - count, self.rows, dtype=np.int64)

    def label(self, words: Sequence[str], places: Int64) -> Float64:
        """[n], the numbers of actions, NaN where there is none."""
        codes = self.labels.code(words, places)
        if len(self.labels) > MOST_LABELS:
            raise DataError(
                f"The action {self.mapping.action!r} has more than {MOST_LABELS:,} distinct "
                "values, so it is not discrete; bin it, for example with --bins 5."
            )
        return np.where(codes < 0, np.nan, codes)

    def episode_words(self) -> list[Any]:
        """The id of every episode: a word, or a tuple of them."""
        if not self.parts:
            return self.episodes.list
        words = [part.list for part in self.parts]
        return [tuple(words[i][code] for i, code in enumerate(pair)) for pair in self.episodes.list]


def table_rows(reading: Reading, files: Sequence[Path], report: Report) -> Generator[Rows]:
    """The rows of CSV or Parquet files, batch by batch; `report` receives the bytes read."""
    before = 0.0
    for path in files:
        reading.open(path)

        def so_far(done: float, before: float = before) -> None:
            report(before + done)

        for batch in batches(reading.kind, path, reading.mapping, reading.look, so_far):
            if batch.num_rows:
                try:
                    rows = _rows(reading, batch, path)
                except pa.ArrowException as error:
                    raise DataError(f"{path} cannot be read: {error}.") from error
                if len(rows):
                    yield rows
        before += path.stat().st_size


def _rows(reading: Reading, batch: pa.RecordBatch, path: Path) -> Rows:
    mapping, findings, count = reading.mapping, reading.findings, batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    row = reading.number(count)
    instance = _instances(reading, columns, path, count)
    episode = _episodes(reading, columns, path, count)
    time, timeless = _times(reading, columns, row, path)
    for name, absent in (
        (mapping.instance, instance < 0),
        (", ".join(mapping.episode), episode < 0),
        (mapping.time, timeless),
    ):
        if name is not None:
            findings.lack("key", name, int(absent.sum()))
    rows = Rows(
        episode=episode,
        instance=instance,
        time=time,
        row=row,
        observations=_matrix(columns, mapping.observations, path),
        following=_matrix(columns, mapping.next_observations, path)
        if mapping.next_observations
        else None,
        action=_actions(reading, columns, path),
        reward=_numbers(columns, str(mapping.reward), path),
        ends=_ends(reading, columns, row),
        chances=_chances(columns, mapping, path),
    )
    keyed = (instance >= 0) & (episode >= 0) & ~timeless
    return rows if keyed.all() else rows.take(keyed)


def _instances(reading: Reading, columns: dict[str, pa.Array], path: Path, count: int) -> Int64:
    name = reading.mapping.instance
    if name is None or name == FILE:
        word = UNKNOWN if name is None else reading.file_words[path]
        return reading.instances.code([word], np.zeros(count, dtype=np.int64))
    return reading.instances.code(*dictionary(columns[name]))


def _episodes(reading: Reading, columns: dict[str, pa.Array], path: Path, count: int) -> Int64:
    names = reading.mapping.episode

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
    reading: Reading, columns: dict[str, pa.Array], row: Int64, path: Path
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
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


def _numbers(columns: dict[str, pa.Array], name: str, path: Path) -> Float64:
    """[n], NaN where a value is missing or not finite."""
    values = _floats(columns[name], name, path)
    values[np.isinf(values)] = np.nan
    return values


def _floats(column: pa.Array, name: str, path: Path) -> Float64:
    """[n]; whole numbers that float64 does not hold are rounded."""
    try:
        floats = column.cast(pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise DataError(
            f"The column {name!r} of {path} holds {column.type}, expected numbers."
        ) from error
    return np.array(floats.to_numpy(zero_copy_only=False))


def _matrix(columns: dict[str, pa.Array], names: Sequence[str], path: Path) -> Float32:
    """[n, d]; a single column of lists gives all of it."""
    first = columns[names[0]]
    if len(names) == 1 and (
        pa.types.is_fixed_size_list(first.type)
        or pa.types.is_list(first.type)
        or pa.types.is_large_list(first.type)
    ):
        return _lists(first, names[0], path)
    out = np.empty((len(first), len(names)), dtype=np.float32)
    for position, name in enumerate(names):
        column = columns[name]
        if column.type != pa.float32():
            with np.errstate(over="ignore"):
                out[:, position] = _numbers(columns, name, path)
        else:
            out[:, position] = column.to_numpy(zero_copy_only=False)
    bad = ~np.isfinite(out)
    if bad.any():
        out[bad] = np.nan
    return out


def _lists(column: pa.Array, name: str, path: Path) -> Float32:
    known = ~column.is_null().to_numpy(zero_copy_only=False)
    lists = column.drop_null()
    with np.errstate(over="ignore"):
        flat = _floats(lists.flatten(), name, path).astype(np.float32)
    width, rest = divmod(len(flat), max(int(known.sum()), 1))
    if rest or (len(flat) and (np.asarray(compute.list_value_length(lists)) != width).any()):
        raise DataError(f"The lists of {name!r} in {path} do not all have the same length.")
    out = np.full((len(column), width), np.nan, dtype=np.float32)
    out[known] = flat.reshape(-1, width)
    out[~np.isfinite(out)] = np.nan
    return out


def _actions(reading: Reading, columns: dict[str, pa.Array], path: Path) -> Float64:
    name = str(reading.mapping.action)
    if reading.mapping.bins is not None:
        return _numbers(columns, name, path)
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


def _ends(reading: Reading, columns: dict[str, pa.Array], row: Int64) -> NDArray[np.uint8]:
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
            where = findings.place(int(row[np.argmax(bad)]))
            word = words[int(np.argmax(odd))]
            findings.refuse(
                "flag",
                bad,
                f"{{count}} end flags are neither true nor false, first {word!r} in {name!r} "
                f"({where}); write true, false, 1 or 0.",
            )
        findings.counts["empty flags"] += int((places < 0).sum())
        ends |= bits[places]
    return ends


def _chances(columns: dict[str, pa.Array], mapping: ImportMapping, path: Path) -> Float64 | None:
    names = mapping.probabilities or ((mapping.probability,) if mapping.probability else ())
    if not names:
        return None
    return np.stack([_numbers(columns, name, path) for name in names], axis=1)

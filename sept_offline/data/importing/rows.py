"""Logged rows in a common form, the words behind their numbers, and the state of one pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sept_offline.data.importing.mapping import ImportMapping
from sept_offline.data.records import Bool, Float32, Float64, Int64
from sept_offline.errors import DataError

TERMINATED, TRUNCATED = 1, 2
MOST_LABELS = 1000
"""Maximum number of distinct action labels."""
MOST_REPORTED = 4
"""Maximum number of kinds of problems to report at once."""
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Rows:
    """n rows in the order they were logged; missing values are NaN."""

    episode: Int64
    """[n], numbers in the order of first appearance"""
    instance: Int64
    """[n], likewise"""
    time: NDArray[Any]
    """[n], int64 or float64"""
    row: Int64
    """[n], counted over all files"""
    observations: Float32
    """[n, d]"""
    following: Float32 | None
    """[n, d], the next observation if it is logged too"""
    action: Float64
    """[n, k], the number of a label, a value that is to be binned, or a vector"""
    reward: Float64
    """[n]"""
    ends: NDArray[np.uint8]
    """[n], bits: TERMINATED, TRUNCATED"""
    chances: Float64 | None
    """[n, 1], of the action taken, or [n, A]"""

    def __len__(self) -> int:
        return len(self.episode)

    def take(self, which: Any) -> Rows:
        """Some rows: by position, mask or slice."""
        values: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in values.items():
            values[name] = None if value is None else value[which]
        return Rows(**values)

    def packed(self) -> NDArray[Any]:
        """[n], one record per row."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        known = {name: value for name, value in values.items() if value is not None}
        kinds = [(name, value.dtype, value.shape[1:]) for name, value in known.items()]
        records = np.empty(len(self), dtype=np.dtype(kinds))
        for name, value in known.items():
            records[name] = value
        return records


def unpack(records: NDArray[Any]) -> Rows:
    """The rows that `Rows.packed` packed."""
    names = records.dtype.names or ()
    columns: dict[str, Any] = {
        f.name: np.ascontiguousarray(records[f.name]) if f.name in names else None
        for f in fields(Rows)
    }
    return Rows(**columns)


def joined(parts: list[Rows]) -> Rows:
    """All rows of some parts, in order; the list is emptied, so that no part outlives the whole."""
    if len(parts) == 1:
        return parts.pop()
    columns: dict[str, Any] = {
        f.name: [getattr(part, f.name) for part in parts] for f in fields(Rows)
    }
    parts.clear()
    for name, values in columns.items():
        # Column by column: the parts of one are gone before the next is put together.
        columns[name] = None if values[0] is None else np.concatenate(values)
    return Rows(**columns)


class Words:
    """Distinct words, numbered in the order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self.number)

    @property
    def list(self) -> list[Any]:
        """The words by number."""
        return list(self.number)

    def code(self, words: Sequence[Any], places: Int64) -> Int64:
        """[n], the number of words[places[i]]; -1 where places[i] is -1."""
        known = self.number
        found: list[int | None] = [*map(known.get, words), -1]
        if None in found:
            for place, word in enumerate(words):
                if found[place] is None:
                    found[place] = known.setdefault(word, len(known))
        return np.asarray(found, dtype=np.int64)[places]

    def code_pairs(self, parts: Sequence[Int64]) -> Int64:
        """[n], the number of (parts[0][i], parts[1][i], …); -1 where any part is -1."""
        stacked = np.stack(parts, axis=1)
        found, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
        by_appearance = np.argsort(first, kind="stable")
        rank = _inverse(by_appearance)
        words = [tuple(row) for row in found[by_appearance].tolist()]
        missing = (stacked < 0).any(axis=1)
        whole = [word for word in words if min(word) >= 0]
        place = {word: position for position, word in enumerate(whole)}
        table = np.asarray([place.get(word, -1) for word in words], dtype=np.int64)
        return self.code(whole, np.where(missing, -1, table[rank[inverse.reshape(-1)]]))


def dictionary(column: pa.Array) -> tuple[list[str], Int64]:
    """The distinct words of a column, and the index of each row's word, -1 if missing."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    try:
        words = column.dictionary.to_pylist()
    except ValueError:  # Python's datetime has no nanoseconds
        words = column.dictionary.cast(pa.string()).to_pylist()
    if not pa.types.is_string(column.dictionary.type) or column.dictionary.null_count:
        words = [_spelled(value) for value in words]
    places = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return occurring(words, places)


def occurring(words: list[str], places: Int64) -> tuple[list[str], Int64]:
    """Without the words that no row has, and without "", which is none."""
    seen = np.bincount(places + 1, minlength=len(words) + 1)[1:] > 0
    seen &= np.asarray([word != "" for word in words], dtype=np.bool_)
    if seen.all():
        return words, places
    moved = np.append(np.where(seen, np.cumsum(seen) - 1, -1), -1)
    return [word for word, kept in zip(words, seen.tolist(), strict=True) if kept], moved[places]


def _spelled(value: Any) -> str:
    """A value as a word: integers without a decimal point, NaN as an empty word."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def natural(word: Any) -> tuple[Any, ...]:
    """A sort key under which "site-2" comes before "site-10"."""
    if isinstance(word, tuple):
        return tuple(natural(part) for part in word)
    parts = _DIGITS.split(word)
    # By how many digits there are and then by the digits: Python refuses to read thousands of them.
    return tuple(
        (0, len(part.lstrip("0")), part.lstrip("0"), part) if position % 2 else (1, 0, part, "")
        for position, part in enumerate(parts)
    )


def ranks(words: Sequence[Any]) -> Int64:
    """[n], the place of each word in natural order."""
    if all(isinstance(w, str) and w.isascii() and w.isdigit() and len(w) < 19 for w in words):
        # As most ids are; keys of a million others would take hundreds of megabytes.
        text = np.asarray(words, dtype=np.str_)
        return _inverse(np.lexsort((text, text.astype(np.int64))))
    return _inverse(np.asarray(sorted(range(len(words)), key=lambda i: natural(words[i]))))


def _inverse(order: NDArray[Any]) -> Int64:
    rank = np.empty(len(order), dtype=np.int64)
    rank[order.astype(np.int64)] = np.arange(len(order))
    return rank


@dataclass
class Findings:
    """What one pass over the rows counted; errors are raised at its end, with their places."""

    counts: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    """Values filled, by column."""
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    """Values missing, by kind ("key", "value" or "start") and column."""
    first: dict[str, int] = field(default_factory=dict)
    """The first affected row, by kind."""
    refusals: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """How many rows of a kind cannot be imported, the first of them, and the message about it."""
    files: list[tuple[int, Path]] = field(default_factory=list)
    """(its first row, the file), ascending"""

    def place(self, row: int) -> str:
        """The file and row number of a row."""
        starts = [first for first, _ in self.files]
        first, path = self.files[int(np.searchsorted(starts, row, side="right")) - 1]
        return f"{path}, row {row - first + 1}"

    def lack(self, kind: str, column: str, missing: Bool, row: Int64) -> None:
        """Values of a column are missing where `missing[n]`; row[n]: the numbers of the rows."""
        if missing.any():
            self.missing.setdefault(kind, Counter())[column] += int(missing.sum())
            first = int(row[missing].min())
            self.first[kind] = min(first, self.first.get(kind, first))

    def refuse(self, kind: str, row: Int64, message: str) -> None:
        """Count bad rows, given by their numbers; the message about the first of all is kept.

        In the message "{count}" and "{place}" stand for how many there are and where the first is.
        """
        if len(row):
            count, first, text = self.refusals.get(kind, (0, int(row.min()), message))
            if int(row.min()) < first:
                first, text = int(row.min()), message
            self.refusals[kind] = count + len(row), first, text

    def raise_if_bad(self) -> None:
        """A DataError with the first refusals if there are any."""
        for kind, (problem, hint) in _LACKING.items():
            lacking = self.missing.get(kind, Counter())
            if lacking:
                columns = ", ".join(f"{count:,} in {name!r}" for name, count in lacking.items())
                message = f"{problem} ({columns}; first {{place}}); {hint}."
                self.refusals[kind] = sum(lacking.values()), self.first[kind], message
        found = [self.refusals[kind] for kind in _ORDER if kind in self.refusals]
        if not found:
            return
        lines = [
            message.replace("{count}", f"{count:,}").replace("{place}", self.place(row))
            for count, row, message in found[:MOST_REPORTED]
        ]
        if len(found) > MOST_REPORTED:
            lines.append(f"{len(found) - MOST_REPORTED} more kinds of problem.")
        # Rows without a key are dropped, which can make contiguous episodes look scattered.
        if self.counts["scattered episodes"] and "key" not in self.missing:
            lines.append(
                f"The rows of {self.counts['scattered episodes']:,} episodes are interleaved with "
                "those of others, and their order is unknown without --time: name it first."
            )
        raise DataError(" Also: ".join(lines))


_ORDER = (
    *("contradiction", "instance", "early end", "action", "flag", "key", "reward"),
    *("value", "start", "bounds", "density"),
    *("probabilities' sum", "probabilities' range", "probability taken"),
)
"""Kinds of errors, in the order in which they are reported."""
_LACKING = {
    "key": (
        "Values are missing or not finite",
        "every row needs them: complete the rows or remove them",
    ),
    "value": (
        "Values are missing or not finite",
        "choose how to fill them, as in --fill COLUMN=previous (or zero, mean, a value)",
    ),
    "start": (
        "Episodes start with missing values, so there is no previous value to repeat",
        "choose what to use instead, as in --fill COLUMN=previous,mean (or zero, a value)",
    ),
}
"""The problem and the hint for each kind of missing value."""


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
    widths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """How many numbers each column of "observations", "action" and "chances" holds."""
    rows: int = 0
    times: str | None = None
    """The kind of times."""

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
                "values, so it is not discrete; keep its numbers with --continuous, or bin it, "
                "for example with --bins 5."
            )
        return np.where(codes < 0, np.nan, codes)

    def episode_words(self) -> list[Any]:
        """The id of every episode: a word, or a tuple of them."""
        if not self.parts:
            return self.episodes.list
        words = [part.list for part in self.parts]
        return [tuple(words[i][code] for i, code in enumerate(pair)) for pair in self.episodes.list]

    def component(self, role: str, names: Sequence[str], position: int) -> str:
        """The column of a number in a vector, or a column that holds several and a place in it."""
        owner = self.owner(role, position)
        if self.widths[role][owner] == 1:
            return names[owner]
        return f"{names[owner]}[{position - sum(self.widths[role][:owner])}]"

    def owner(self, role: str, position: int) -> int:
        """Which column a number of a vector is of."""
        return int(np.searchsorted(np.cumsum(self.widths[role]), position, side="right"))

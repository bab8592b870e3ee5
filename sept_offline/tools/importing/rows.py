"""Logged rows in a common form, the words behind their numbers, and whole episodes out of rows.

Where the rows of an episode lie together, as in most logs, batches pass through and only the last
episode of each waits for the next. Where one comes back, its rows are spread over more than memory
may hold: they are dealt into buckets on disk by episode, and each bucket is read alone. A single
episode must fit in memory, two to three times over while it is put in order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sept_offline.data.records import Float32, Float64, Int64

TERMINATED, TRUNCATED = 1, 2
GATHERED_ROWS = 1 << 16
BUCKET_BYTES = 1 << 25
MOST_BUCKETS = 200
"""Files open at once; a table of more than 200 buckets has larger ones."""
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
        chosen: dict[str, Any] = {
            name: None if values is None else values[which] for name, values in vars(self).items()
        }
        return Rows(**chosen)

    def packed(self) -> NDArray[Any]:
        """[n], one record per row."""
        known = {name: value for name, value in vars(self).items() if value is not None}
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
        numbers: list[int | None] = [*map(known.get, words), -1]
        if None in numbers:
            for place, word in enumerate(words):
                if numbers[place] is None:
                    numbers[place] = known.setdefault(word, len(known))
        return np.asarray(numbers, dtype=np.int64)[places]

    def code_pairs(self, parts: Sequence[Int64]) -> Int64:
        """[n], the number of (parts[0][i], parts[1][i], …); -1 where any part is -1."""
        stacked = np.stack(parts, axis=1)
        known = (stacked >= 0).all(axis=1)
        words, first, inverse = np.unique(
            stacked[known], axis=0, return_index=True, return_inverse=True
        )
        order = np.argsort(first, kind="stable")
        codes = np.full(len(stacked), -1, dtype=np.int64)
        places = _inverse(order)[inverse.reshape(-1)]
        codes[known] = self.code([tuple(word) for word in words[order].tolist()], places)
        return codes


def dictionary(column: pa.Array, nothing: frozenset[str] = frozenset()) -> tuple[list[str], Int64]:
    """The distinct words of a column, and the index of each row's word, -1 if missing.

    "" and the words for `nothing` are missing, and a word that no row has is left out.
    """
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    try:
        words = column.dictionary.to_pylist()
    except ValueError:  # Python's datetime has no nanoseconds
        words = column.dictionary.cast(pa.string()).to_pylist()
    if not pa.types.is_string(column.dictionary.type) or column.dictionary.null_count:
        words = [_spelled(value) for value in words]
    places = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    seen = np.bincount(places + 1, minlength=len(words) + 1)[1:] > 0
    seen &= np.asarray([word != "" and word not in nothing for word in words], dtype=np.bool_)
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
        # not "replace", which makes ids of bytes, such as UUIDs, the same
        return value.decode(errors="backslashreplace")
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


class Mistaken(Exception):
    """An assumption about the rows was wrong; `changes` correct it."""

    def __init__(self, **changes: bool) -> None:
        super().__init__(changes)
        self.changes = changes


def gathered(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Small batches together: every one costs as much again as some thousand rows."""
    waiting: list[Rows] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= GATHERED_ROWS:
            yield joined(waiting)
    if waiting:
        yield joined(waiting)


def grouped(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Batches of whole episodes; raises Mistaken if the rows of an episode are scattered."""
    waiting: list[Rows] = []
    highest = -1
    for batch in batches:
        starts = np.flatnonzero(np.diff(batch.episode, prepend=-1) != 0)
        runs = batch.episode[starts]
        # Numbers are given in the order of first appearance, so a new episode has a higher one.
        fresh = int(runs[0]) != highest
        if (np.diff(runs) <= 0).any() or (fresh and runs[0] < highest):
            raise Mistaken(together=False)
        if fresh and waiting:
            yield joined(waiting)
        highest = int(runs[-1])
        if len(runs) > 1:
            waiting.append(batch.take(slice(0, starts[-1])))
            yield joined(waiting)
        waiting.append(batch.take(slice(starts[-1], None)))
    if waiting:
        yield joined(waiting)


def bucketed(
    batches: Iterable[Rows], folder: Path, size: float, counts: Counter[str]
) -> Iterator[Rows]:
    """The same from rows in any order; `size`: approximate bytes of all rows."""
    count = int(np.clip(np.ceil(size / BUCKET_BYTES), 1, MOST_BUCKETS))
    paths = [folder / f"bucket-{number}" for number in range(count)]
    kind = None
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb", buffering=1 << 18)) for path in paths]
        for batch in batches:
            bucket = (batch.episode % count).astype(np.uint8)
            order = np.argsort(bucket, kind="stable")
            records = batch.take(order).packed()
            kind = records.dtype
            edges = np.searchsorted(bucket[order], np.arange(count + 1))
            for number, file in enumerate(files):
                file.write(records[edges[number] : edges[number + 1]].tobytes())
    for path in paths:
        records = np.fromfile(path, dtype=kind or np.uint8)
        path.unlink()
        if len(records):
            # Whole records are sorted, each once, before they are taken apart into columns.
            by_time, back = order_of(records["episode"], records["time"])
            counts["unordered rows"] += back
            yield unpack(records if by_time is None else records[by_time])


def order_of(episode: Int64, time: NDArray[Any]) -> tuple[Int64 | None, int]:
    """How to sort rows by episode and time, None if they are, and how often one goes back.

    Rows of one time stay in the order they came in.
    """
    step = np.diff(episode)
    forward = np.diff(time) > 0
    if ((step > 0) | ((step == 0) & forward)).all():
        return None, 0
    back = (step < 0) | ((step == 0) & (np.diff(time) < 0))
    return np.lexsort((time, episode)), int(back.sum())

"""Words as numbers: coding ids and labels as they come, and the order a reader would give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sept_offline.data.records import Int64

_DIGITS = re.compile(r"(\d+)")


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
        rank = np.empty(len(first), dtype=np.int64)
        rank[by_appearance] = np.arange(len(first))
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
        words = [spelled(value) for value in words]
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


def spelled(value: Any) -> str:
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


def ranks(words: Sequence[Any]) -> NDArray[np.int64]:
    """[n], the place of each word in natural order."""
    if all(
        isinstance(word, str) and word.isascii() and word.isdigit() and len(word) < 19
        for word in words
    ):
        numbers = [int(word) for word in words]
        if all(str(number) == word for number, word in zip(numbers, words, strict=True)):
            order = sorted(range(len(words)), key=numbers.__getitem__)
            return _inverse(order)
    order = sorted(range(len(words)), key=lambda i: natural(words[i]))
    return _inverse(order)


def _inverse(order: list[int]) -> NDArray[np.int64]:
    rank = np.empty(len(order), dtype=np.int64)
    rank[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    return rank

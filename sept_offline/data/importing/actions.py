"""From the labels that were logged to actions: numbers where all are numbers, names otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sept_offline.data.importing.reading import NOTHING, Reading
from sept_offline.data.importing.tables import Mistaken
from sept_offline.data.importing.vocabulary import natural
from sept_offline.data.records import Float64, Int64
from sept_offline.errors import DataError

_PLAIN = re.compile(r"0|-?[1-9][0-9]{0,99}")
# No leading zeros: 01 is a code, and not the number 1.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,99})(\.[0-9]{0,99})?|-?[0-9]\.[0-9]{1,99}[eE][+-][0-9]{2}")


@dataclass(frozen=True)
class Actions:
    """The actions of a dataset, and how what was logged becomes them."""

    count: int
    names: tuple[str, ...] | None
    """[A], where they are more than 0 … A-1"""
    table: Int64 | None = None
    """From the number of a label to an action."""
    edges: Float64 | None = None
    """[A-1], between the bins of a continuous action"""


def look_at_labels(reading: Reading) -> None:
    """Mistaken if a word for nothing, as NA, was taken for a label among numbers."""
    words, declared = _words(reading), reading.mapping.actions
    odd = [word for word in words if word in NOTHING]
    others = [word for word in words if word not in NOTHING]
    if reading.kind != "csv" or not odd:
        return
    if declared:
        among = not set(odd) & set(declared)
    else:
        among = bool(others) and all(_number(word, worded=False) is not None for word in others)
    if among and not reading.look.nothing_is_missing:
        raise Mistaken(nothing_is_missing=True)
    reading.findings.counts["labels for nothing"] = len(odd)


def labelled(reading: Reading) -> Actions:
    """The actions behind the labels of a finished pass."""
    mapping, words = reading.mapping, _words(reading)
    numbers = [_number(word, reading.worded) for word in words]
    if mapping.actions:
        actions = _declared(words, numbers, mapping.actions)
    elif all(number is not None for number in numbers):
        actions = _numbered(reading, words, [number for number in numbers if number is not None])
    else:
        order = sorted(words, key=natural)
        actions = _named(words, order, mapping.probabilities)
    used = 0 if actions.table is None else len(set(actions.table.tolist()))
    reading.findings.counts["spellings merged"] = len(words) - used
    return actions


def _words(reading: Reading) -> list[str]:
    return [str(word) for word in reading.labels.list]


def _numbered(reading: Reading, words: list[str], values: list[Fraction]) -> Actions:
    mapping = reading.mapping
    broken = [word for word, value in zip(words, values, strict=True) if value.denominator > 1]
    if broken:
        raise DataError(
            f"The action {mapping.action!r} holds {len(broken):,} numbers that are not integers, "
            f"first {broken[0]}, so it is not discrete; bin it, for example with --bins 5, or "
            "list its values in order with --actions."
        )
    whole = [int(value) for value in values]
    count = len(mapping.probabilities) or len(set(whole))
    if min(whole) >= 0 and max(whole) < count:
        return Actions(count, None, np.asarray(whole, dtype=np.int64))
    order = [str(value) for value in sorted(set(whole))]
    return _named([str(value) for value in whole], order, mapping.probabilities)


def _named(words: list[str], order: list[str], columns: tuple[str, ...]) -> Actions:
    if columns:
        order = _by_columns(order, columns)
    place = {word: position for position, word in enumerate(order)}
    return Actions(len(order), tuple(order), np.asarray([place[word] for word in words]))


def _declared(
    words: list[str], numbers: list[Fraction | None], declared: tuple[str, ...]
) -> Actions:
    place: dict[str | Fraction, int] = {word: position for position, word in enumerate(declared)}
    for position, word in enumerate(declared):
        number = _number(word, worded=False)
        if number is not None:
            place.setdefault(number, position)
    table = []
    for word, number in zip(words, numbers, strict=True):
        found = place.get(word, place.get(number) if number is not None else None)
        if found is None:
            raise DataError(
                f"The action {word!r} is logged but is not among --actions {','.join(declared)}."
            )
        table.append(found)
    plain = declared == tuple(str(position) for position in range(len(declared)))
    return Actions(len(declared), None if plain else declared, np.asarray(table, dtype=np.int64))


def _by_columns(labels: list[str], columns: tuple[str, ...]) -> list[str]:
    """The labels in the order of the columns that name them."""
    order = []
    for column in columns:
        fitting = [label for label in labels if label == column]
        fitting = fitting or [label for label in labels if column.endswith(f"_{label}")]
        if len(fitting) == 1:
            order.append(fitting[0])
    if len(order) != len(columns) or set(order) != set(labels):
        raise DataError(
            f"The {len(columns)} columns of --probabilities need an order; list the actions in the "
            f"same order with --actions (logged are {', '.join(labels)})."
        )
    return order


def _number(word: str, worded: bool) -> Fraction | None:
    """Exactly; `worded`: from a column of strings, where 1.0 is another label than 1."""
    return Fraction(word) if (_PLAIN if worded else _NUMBER).fullmatch(word) else None

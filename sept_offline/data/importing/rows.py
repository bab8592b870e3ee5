"""Logged rows in a common form, from any table or file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Float32, Float64, Int64

TERMINATED, TRUNCATED = 1, 2


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
    """[n], the number of its label, or the value of an action that is to be cut into bins"""
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
        """[n], one record a row."""
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


def emptied(parts: list[Rows]) -> Rows:
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

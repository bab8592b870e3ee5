"""Whether steps follow each other at a usual interval, and how often one comes later than that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Float64, Int64

FINE = 256
"""Bins for every doubling of an interval: each is 0.3 % wide."""
OCTAVES = 64
"""Intervals from 2⁻⁶⁴ to 2⁶⁴ are distinguished."""
NEAR = 0.1
"""Tolerance for multiples of the usual interval, as a share of it."""
COMMON = 0.25
"""The least share of intervals that are the usual one."""
REGULAR = 0.8
"""The least share of intervals that are whole multiples of it."""
LONGEST = 10.0
"""Usual intervals beyond which multiples are not checked: a break may have any length."""
LATE = 1.5
"""Usual intervals after which a step is late."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Beat:
    """A usual interval, and how many are longer than they should be."""

    interval: float
    late: int

    def spelled(self, per_second: float | None) -> str:
        """The interval for people; `per_second`: units of a timestamp, None for numbers."""
        if per_second is None:
            return f"{self.interval:.4g}"
        seconds = self.interval / per_second
        for size, unit in _UNITS:
            if seconds >= size:
                return f"{seconds / size:.4g} {unit}"
        return f"{seconds:.4g} s"


class Clock:
    """Takes the intervals between steps; keeps how many there were, and their sum, by length.

    Memory does not grow with the steps, and no order of theirs shows.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(2 * OCTAVES * FINE + 1, dtype=np.int64)
        self._sums = np.zeros(len(self._counts))

    def add(self, intervals: NDArray[Any]) -> None:
        """Some more; what is not positive is none."""
        lengths = intervals[intervals > 0].astype(np.float64)
        if not len(lengths):
            return
        bins = np.rint(np.log2(lengths) * FINE) + OCTAVES * FINE
        places = np.clip(bins, 0, len(self._counts) - 1).astype(np.int64)
        low = int(places.min())
        counts = np.bincount(places - low)
        self._counts[low : low + len(counts)] += counts
        self._sums[low : low + len(counts)] += np.bincount(places - low, weights=lengths)

    def beat(self) -> Beat | None:
        """The usual interval; None if there is none, and then no step is late."""
        counts = self._counts
        total = int(counts.sum())
        if not total:
            return None
        lengths = self._sums / np.maximum(counts, 1)
        usual = _commonest(counts, lengths)
        multiple = np.maximum(np.rint(lengths / usual), 1)
        near = np.abs(lengths / usual - multiple) <= NEAR
        asked = (counts > 0) & (lengths <= LONGEST * usual)
        common = counts[near & asked & (multiple == 1)].sum() / total
        regular = counts[near & asked].sum() / counts[asked].sum()
        if common < COMMON or regular < REGULAR:
            return None
        return Beat(usual, int(counts[lengths >= LATE * usual].sum()))


def _commonest(counts: Int64, lengths: Float64) -> float:
    """The median of the fullest window of a tenth to either side, the shortest where several are.

    Not the median of all: where half of the rows are missing, that is a multiple of what is usual.
    """
    reach = int(np.log2(1 + NEAR) * FINE)
    before = np.concatenate([np.zeros(reach + 1, dtype=np.int64), np.cumsum(counts)])
    after = np.append(before[reach + 1 :], np.full(reach, before[-1]))[reach:]
    within = after - before[: len(counts)]
    middle = int(np.argmax(within))
    window = slice(max(middle - reach, 0), middle + reach + 1)
    inside = np.cumsum(counts[window])
    place = window.start + int(np.searchsorted(inside, (inside[-1] + 1) // 2))
    return float(lengths[place])

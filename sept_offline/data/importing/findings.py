"""Problems met by an import: counted, located, and reported at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import DataError

ORDER = (
    "contradiction",
    "instance",
    "early end",
    "action",
    "flag",
    "key",
    "reward",
    "value",
    "start",
    "probabilities' sum",
    "probabilities' range",
    "probability taken",
)
"""Kinds of errors, in the order in which they are reported."""
MOST_REPORTED = 4
"""Maximum number of kinds to report at once."""


@dataclass
class Refusal:
    """One kind of thing that cannot be imported."""

    count: int
    message: str


@dataclass
class Findings:
    """Counts of one pass over the rows; errors are raised at its end."""

    counts: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    """Values filled, by column."""
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    """Values missing, by kind ("key", "value" or "start") and column."""
    first: dict[str, int] = field(default_factory=dict)
    """The first affected row, by kind, if known."""
    refusals: dict[str, Refusal] = field(default_factory=dict)
    files: list[tuple[int, Path]] = field(default_factory=list)
    """(its first row, the file), ascending"""

    def place(self, row: int) -> str:
        """The file and row number of a row."""
        starts = [first for first, _ in self.files]
        first, path = self.files[int(np.searchsorted(starts, row, side="right")) - 1]
        return f"{path}, row {row - first + 1}"

    def lack(self, kind: str, column: str, count: int, row: int | None = None) -> None:
        """`count` values of a column are missing, the first in `row`."""
        if count:
            self.missing.setdefault(kind, Counter())[column] += count
            if row is not None:
                self.first[kind] = min(row, self.first.get(kind, row))

    def refuse(self, kind: str, bad: NDArray[np.bool_], message: str) -> None:
        """Count `bad` rows; the first message of a kind is kept."""
        count = int(bad.sum())
        if count:
            self.refusals.setdefault(kind, Refusal(0, message)).count += count

    def raise_if_bad(self) -> None:
        """A DataError with the first refusals, a line each, if there are any."""
        for kind, said, hint in (
            (
                "key",
                "Values are missing or not finite",
                "every row needs them: complete the rows or remove them",
            ),
            (
                "value",
                "Values are missing or not finite",
                "choose how to fill them, as in --fill COLUMN=previous (or zero, mean, a value)",
            ),
            (
                "start",
                "Episodes start with missing values, so there is no previous value to repeat",
                "choose what to use instead, as in --fill COLUMN=previous,mean (or zero, a value)",
            ),
        ):
            lacking = self.missing.get(kind, Counter())
            if lacking:
                columns = ", ".join(f"{count:,} in {name!r}" for name, count in lacking.items())
                place = f"; first {self.place(self.first[kind])}" if kind in self.first else ""
                message = f"{said} ({columns}{place}); {hint}."
                self.refusals[kind] = Refusal(sum(lacking.values()), message)
        found = [self.refusals[kind] for kind in ORDER if kind in self.refusals]
        if not found:
            return
        lines = [
            refusal.message.replace("{count}", f"{refusal.count:,}")
            for refusal in found[:MOST_REPORTED]
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

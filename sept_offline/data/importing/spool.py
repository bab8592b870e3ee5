"""Whole episodes on disk as raw columns, and what can only be settled when all have been seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.mapped_column import MappedColumn
from sept_offline.data.records import Float64, Int64
from sept_offline.data.source import BLOCK_ROWS, DTYPES

RAW = {**{name: DTYPES[name] for name in DTYPES}, "actions": np.dtype("<f8")}
"""Actions are numbers of labels, or values, until all of them are known."""


class EpisodeSpool:
    """Columns of E episodes end to end, in the order they came."""

    def __init__(self, folder: Path, dim: int) -> None:
        self.folder, self.dim = folder, dim
        self._files: dict[str, BinaryIO] = {
            name: (folder / name).open("wb", buffering=1 << 20) for name in (*RAW, "chances")
        }
        self._episodes: list[Int64] = []
        self.steps = 0
        self.chances = 0
        """How many probabilities a step has: 0, 1 for the action taken, or A."""

    def append(self, episodes: Int64, columns: dict[str, NDArray[Any]]) -> None:
        """Some episodes: [e, 3] of episode, instance and length, and their columns."""
        self._episodes.append(episodes)
        self.steps += int(episodes[:, 2].sum())
        for name, values in columns.items():
            kind = RAW.get(name, np.dtype("<f8"))
            self._files[name].write(np.ascontiguousarray(values, dtype=kind).data)
            if name == "chances":
                self.chances = values.shape[1]

    def close(self) -> Int64:
        """All are there: [E, 3] of episode, instance and length."""
        for file in self._files.values():
            file.close()
        if not self._episodes:
            return np.zeros((0, 3), dtype=np.int64)
        return np.concatenate(self._episodes)

    def column(self, name: str, dtype: Any, width: int = 0) -> MappedColumn:
        """A column on disk, [rows] or [rows, width], open for change."""
        rows = self.steps
        if name == "observations":
            rows += sum(len(part) for part in self._episodes)
        shape = (rows, width) if width else (rows,)
        return MappedColumn(self.folder / name, dtype, shape, writable=True)

    def settle_actions(self, table: Int64 | None, edges: Float64 | None) -> None:
        """Turn the numbers of labels into actions by `table`, or values by the `edges` of bins."""
        raw, settled = self.column("actions", "<f8"), self.column("actions", "<i8")
        for low, high in self.blocks():
            values = raw.array[low:high]
            if edges is not None:
                settled.array[low:high] = np.searchsorted(edges, values, side="right")
            elif table is not None:
                settled.array[low:high] = table[values.astype(np.int64)]
            raw.used(values.nbytes)
            settled.used(values.nbytes)

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, int]]:
        """Ranges of rows, bounded."""
        count = self.steps if rows is None else rows
        for low in range(0, count, BLOCK_ROWS):
            yield low, min(low + BLOCK_ROWS, count)

    def settle_mean(self, name: str, position: int, mean: float) -> None:
        """Put a mean where a value is still missing."""
        width = self.dim if name == "observations" else 0
        column = self.column(name, DTYPES[name], width)
        for low, high in self.blocks(len(column.array)):
            block = column.array[low:high]
            values = block[:, position] if width else block
            missing = np.isnan(values)
            if missing.any():
                values[missing] = mean
            column.used(block.nbytes)

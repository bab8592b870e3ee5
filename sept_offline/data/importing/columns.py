"""Columns of an import on disk, and the ranges of their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.mapped_column import MappedColumn
from sept_offline.data.records import Float64, Int64
from sept_offline.data.source import DTYPES


class Ranges:
    """Least, largest and mean value of each column of vectors [n, d], without what is missing."""

    def __init__(self, dim: int) -> None:
        self.low, self.high = np.full(dim, np.inf), np.full(dim, -np.inf)
        self.total, self.known = np.zeros(dim), np.zeros(dim, dtype=np.int64)

    def add(self, vectors: NDArray[Any]) -> None:
        """Some more."""
        # Column by column: numpy reduces long rows many times faster than short ones.
        for position, values in enumerate(np.ascontiguousarray(vectors.T)):
            if np.isnan(values.sum()):
                values = values[~np.isnan(values)]
            if len(values):
                self.total[position] += values.sum(dtype=np.float64)
                self.known[position] += len(values)
                self.low[position] = min(self.low[position], values.min())
                self.high[position] = max(self.high[position], values.max())

    @property
    def mean(self) -> Float64:
        """[d]"""
        return np.asarray(self.total / np.maximum(self.known, 1))


class Columns:
    """Columns of E episodes on disk, end to end, in the order they came.

    Until all rows are known, the actions of a finite set are numbers of labels or values, and
    probabilities are as they were logged; `actions.settle` turns them into what a dataset holds.
    """

    def __init__(self, folder: Path, box: bool) -> None:
        self.folder = folder
        self.types: dict[str, np.dtype[Any]] = {
            **DTYPES,
            "actions": np.dtype("<f4" if box else "<f8"),
            "chances": np.dtype("<f8"),
            "row": np.dtype("<i8"),
        }
        self.shapes: dict[str, tuple[int, ...]] = {}
        """The shape of one row of each column that has been written."""
        self.steps = 0
        self._episodes: list[Int64] = []
        self._files: dict[str, BinaryIO] = {
            name: (folder / name).open("wb", buffering=1 << 20) for name in self.types
        }

    def append(self, episodes: Int64, columns: dict[str, NDArray[Any]]) -> None:
        """Some episodes: [e, 3] of episode, instance and length, and their columns."""
        self._episodes.append(episodes)
        self.steps += int(episodes[:, 2].sum())
        for name, values in columns.items():
            self.shapes[name] = values.shape[1:]
            self._files[name].write(np.ascontiguousarray(values, dtype=self.types[name]).data)

    def close(self) -> Int64:
        """All are there: [E, 3] of episode, instance and length."""
        for file in self._files.values():
            file.close()
        return np.concatenate([np.zeros((0, 3), dtype=np.int64), *self._episodes])

    def column(
        self, name: str, dtype: Any = None, shape: tuple[int, ...] | None = None
    ) -> MappedColumn:
        """A column on disk, open for change, of the type and shape it was written in or another."""
        rows = self.steps
        if name == "observations":
            rows += sum(len(part) for part in self._episodes)
        row = self.shapes[name] if shape is None else shape
        kind = self.types[name] if dtype is None else dtype
        return MappedColumn(self.folder / name, kind, (rows, *row), writable=True)

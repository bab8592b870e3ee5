"""Columns on disk in the order they are appended, and read in the order of a sorted index."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import EpisodeIndex, Int64
from sept_offline.data.source import BLOCK_ROWS, Header, Source

RESIDENT_BYTES = 1 << 24
"""Maximum bytes of a column in memory: the kernel counts mapped pages as used."""

GATHERED_ROWS = 1 << 14


class MappedColumn:
    """`array` is the whole file; its pages are released after enough of it was used."""

    def __init__(
        self, path: Path, dtype: Any, shape: tuple[int, ...], writable: bool = False
    ) -> None:
        kind = np.dtype(dtype)
        size = int(np.prod(shape)) * kind.itemsize
        with path.open("r+b" if writable else "rb") as file:
            if writable and path.stat().st_size < size:
                # Not a sparse file: a page that the disk has no room for would kill the process.
                os.posix_fallocate(file.fileno(), 0, size)
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(file.fileno(), size, access=access)
        self.array: NDArray[Any] = np.frombuffer(self._map, dtype=kind).reshape(shape)
        self._used = 0

    def gather(self, rows: Int64) -> NDArray[Any]:
        """Rows in any order, a piece at a time: each may pull in many times its own size."""
        out = np.empty((len(rows), *self.array.shape[1:]), dtype=self.array.dtype)
        for low in range(0, len(rows), GATHERED_ROWS):
            piece = slice(low, low + GATHERED_ROWS)
            np.take(self.array, rows[piece], axis=0, out=out[piece], mode="clip")
            self.used(RESIDENT_BYTES)
        return out

    def used(self, size: int) -> None:
        """`size` more bytes have been read or written."""
        self._used += size
        if self._used >= RESIDENT_BYTES:
            # The map is shared with the file: what was written stays in it.
            self._map.madvise(mmap.MADV_DONTNEED)
            self._used = 0


def in_blocks(*columns: MappedColumn) -> Iterator[slice]:
    """Blocks of rows of bounded size; each is released from memory when the next is read."""
    for low in range(0, len(columns[0].array), BLOCK_ROWS):
        yield slice(low, low + BLOCK_ROWS)
        for column in columns:
            column.used(RESIDENT_BYTES)


class Spool:
    """Columns of episodes, end to end, one file each in `folder`."""

    def __init__(self, folder: Path, types: Mapping[str, np.dtype[Any]]) -> None:
        self.folder, self.types = folder, types
        self.shapes: dict[str, tuple[int, ...]] = {}
        """The shape of one row of each column that has been written."""
        self.steps = self.count = 0
        self._episodes: list[Int64] = []
        self._files: dict[str, BinaryIO] = {}
        for name in types:
            self._files[name] = (folder / name).open("wb", buffering=1 << 20)

    def append(self, episodes: Int64, columns: Mapping[str, NDArray[Any]]) -> None:
        """Some episodes: [e, …] of their lengths and other numbers, and their columns."""
        for name, values in columns.items():
            self.shapes[name] = values.shape[1:]
            self._files[name].write(np.ascontiguousarray(values, dtype=self.types[name]).data)
        self._episodes.append(episodes)
        self.steps += int(episodes[:, 0].sum())
        self.count += len(episodes)

    def finish(self) -> Int64:
        """End the spool; the records of all episodes, [E, …]."""
        for file in self._files.values():
            file.close()
        return np.concatenate(self._episodes) if self.count else np.zeros((0, 1), dtype=np.int64)

    def discard(self) -> None:
        """Close the files and discard their content."""
        for file in self._files.values():
            # On a full disk the last flush fails too; what it held is being thrown away.
            with contextlib.suppress(OSError):
                file.close()

    def column(
        self, name: str, dtype: Any = None, shape: tuple[int, ...] | None = None
    ) -> MappedColumn:
        """A column on disk, open for change, of the type and shape it was written in or another."""
        rows = self.steps + (self.count if name == "observations" else 0)
        row = self.shapes[name] if shape is None else shape
        kind = self.types[name] if dtype is None else dtype
        return MappedColumn(self.folder / name, kind, (rows, *row), writable=True)


class SortedSpool(Source):
    """The columns of a spool in the order of an index."""

    def __init__(
        self,
        folder: Path,
        header: Header,
        index: EpisodeIndex,
        order: Int64,
        *,
        knows_propensities: bool,
    ) -> None:
        """`order[E]`: the number in the spool of each episode of the index."""
        self.path, self.header, self.index = folder, header, index
        appended = np.empty_like(index.length)
        appended[order] = index.length
        written = (np.cumsum(appended) - appended)[order]
        self._places = {
            "steps": (index.offset, written),
            "observations": (index.first_row, written + order),
        }
        self.columns = header.columns_of(index)
        if not knows_propensities:
            del self.columns["propensities"]
        self._raw = {
            name: MappedColumn(folder / name, dtype, shape)
            for name, (dtype, shape) in self.columns.items()
        }

    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """The given rows of the sorted column."""
        raw = self._raw[name]
        if not len(rows):
            return raw.array[:0]
        starts, written = self._places["observations" if name == "observations" else "steps"]
        low, high = int(rows[0]), int(rows[-1]) + 1
        if high - low != len(rows):
            episode = np.searchsorted(starts, rows, side="right") - 1
            return raw.gather(written[episode] + rows - starts[episode])
        # Rows without a gap, as every pass over a column asks for, are found by their episodes.
        first = int(np.searchsorted(starts, low, side="right")) - 1
        last = int(np.searchsorted(starts, high - 1, side="right"))
        moved = written[first:last] - starts[first:last]
        if (moved == moved[0]).all():
            values = np.array(raw.array[low + moved[0] : high + moved[0]])
            raw.used(values.nbytes)
            return values
        counts = np.diff(np.append(np.maximum(starts[first:last], low), high))
        return raw.gather(rows + np.repeat(moved, counts))

    def close(self) -> None:
        """Close the memory maps."""
        self._raw.clear()

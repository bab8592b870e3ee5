"""Raw columns on disk as arrays, whose pages are let go as a pass moves on."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
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

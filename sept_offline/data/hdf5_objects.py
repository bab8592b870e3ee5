"""Guards that HDF5 lacks: against links that leave a file, and against failed writes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py

from sept_offline.errors import DataError

BUILT_IN = {1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset"}
LZF = 32000
"""A filter that h5py brings along; any other would be looked for among the system's plugins."""


def open_hdf5(path: Path, content: bytes | None = None, **options: Any) -> h5py.File:
    """An HDF5 file, or the `content` of one, for reading; or a DataError."""
    try:
        return h5py.File(path if content is None else io.BytesIO(content), "r", **options)
    except (OSError, RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())
        raise DataError(f"{path} is not an HDF5 file, or it is damaged: {words:.200}.") from error


def names_of(file: h5py.File) -> list[str]:
    """The names of what a file holds at its top, links that lead nowhere included."""
    try:
        return sorted(str(name) for name in file)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        words = " ".join(str(error).split())
        raise DataError(f"{file.filename} is damaged: {words:.200}.") from error


def has(file: h5py.File, name: str) -> bool:
    """Whether anything of that name is there, without following it anywhere."""
    group: Any = file
    *parents, last = name.split("/")
    for part in parents:
        if not isinstance(_link(group, part), h5py.HardLink):
            return False
        group = group[part]
        if not isinstance(group, h5py.Group):
            return False
    return _link(group, last) is not None


def stored_array(file: h5py.File, name: str, path: Path, rank: int | None = None) -> h5py.Dataset:
    """The array `name`, whose values must lie in the file itself."""
    where: Any = file
    for part in name.split("/"):
        if not isinstance(where, h5py.Group):
            raise DataError(f"{path} contains an array instead of the group of {name!r}.")
        link = _link(where, part)
        if link is None:
            known = ", ".join(names_of(file)[:12])
            raise DataError(f"{path} has no dataset {name!r}; it has {known}.")
        if not isinstance(link, h5py.HardLink):
            raise DataError(
                f"{path} contains a link instead of {name!r}, which may point to another file; "
                "store the values in the file itself."
            )
        try:
            where = where[part]
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise _damaged(path, name, error) from error
    if not isinstance(where, h5py.Dataset):
        raise DataError(f"{path} contains a group instead of the array {name!r}; it is damaged.")
    try:
        _check(where, name, path, rank)
    except (OSError, TypeError, ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        raise _damaged(path, name, error) from error
    return where


def _link(group: Any, name: str) -> Any:
    try:
        return group.get(name, getlink=True)
    except (KeyError, ValueError, TypeError, RuntimeError):
        return None


def _check(found: h5py.Dataset, name: str, path: Path, rank: int | None) -> None:
    if found.is_virtual or found.external:
        raise DataError(
            f"{path} stores the values of {name!r} in other files, which are not opened; store "
            "them in the file itself."
        )
    if found.shape is None or found.dtype.kind not in "biufSO" or h5py.check_ref_dtype(found.dtype):
        raise DataError(f"{path} holds {found.dtype} in {name!r}, expected numbers or text.")
    if rank is not None and found.ndim != rank:
        raise DataError(f"{name!r} of {path} has {found.ndim} dimensions, expected {rank}.")
    for code in _filters(found):
        if code not in BUILT_IN and code != LZF:
            raise DataError(f"{name!r} of {path} needs the filter {code}, which is not available.")


def _filters(found: h5py.Dataset) -> Iterator[int]:
    created = found.id.get_create_plist()
    for position in range(created.get_nfilters()):
        yield int(created.get_filter(position)[0])


def array_bytes(found: h5py.Dataset) -> int:
    """The memory of an array, as the file declares it."""
    size = int(found.dtype.itemsize)
    for length in found.shape:
        size *= int(length)
    chunk = int(found.dtype.itemsize)
    for length in found.chunks or ():
        chunk *= int(length)
    # A chunk is always decompressed whole.
    return max(size, chunk if found.chunks else 0)


def _damaged(path: Path, name: str, error: BaseException) -> DataError:
    words = " ".join(str(error).split())
    return DataError(f"{name!r} of {path} cannot be read: it is damaged ({words:.200}).")


class PatientFile:
    """A new file for HDF5 to write to, which accepts every write.

    HDF5 crashes the process if it cannot write what it holds while it closes, as on a full disk.
    Here the first failure is kept for `check` to raise; from then on nothing more goes to disk, and
    what HDF5 reads back of it comes from memory.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self._at = 0
        self._size = 0
        self._late: list[tuple[int, bytes]] = []
        self.error: OSError | None = None

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def write(self, data: Any) -> int:
        """All of it, to disk or, after a failure, to memory."""
        content = bytes(data)
        if self.error is None:
            try:
                self._file.seek(self._at)
                done = 0
                while done < len(content):
                    done += self._file.write(content[done:]) or 0
            except OSError as problem:
                self.error = problem
        if self.error is not None:
            self._late.append((self._at, content))
        self._at += len(content)
        self._size = max(self._size, self._at)
        return len(content)

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        self._file.seek(self._at)
        found = self._file.read(count) or b""
        view[:count] = found.ljust(count, b"\0")
        for start, content in self._late:
            low, high = max(start, self._at), min(start + len(content), self._at + count)
            if low < high:
                view[low - self._at : high - self._at] = content[low - start : high - start]
        self._at += count
        return count

    def read(self, count: int) -> bytes:
        """See `io.RawIOBase`."""
        buffer = bytearray(count)
        return bytes(buffer[: self.readinto(buffer)])

    def truncate(self, size: int | None = None) -> int:
        """See `io.RawIOBase`; errors are kept for later."""
        self._size = self._at if size is None else size
        if self.error is None:
            try:
                self._file.truncate(self._size)
            except OSError as problem:
                self.error = problem
        return self._size

    def flush(self) -> None:
        """Nothing is held back."""

    def __enter__(self) -> PatientFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if kind is None:
            self.check()

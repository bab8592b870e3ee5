"""Datasets as HDF5: one array per column, chunked and compressed, its digest in the user block.

With the guards that HDF5 lacks: against links that leave a file, and against failed writes.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import INDEX_FIELDS, EpisodeIndex, HiddenTable, Int64
from sept_offline.data.source import (
    DTYPES,
    Header,
    MemorySource,
    RowCounter,
    Source,
    blocks,
    damaged,
    parse_header,
)
from sept_offline.errors import DataError, one_line
from sept_offline.limits import check_claim, check_regular

CHUNK_BYTES = 1 << 15
"""Measured in benchmarks/dataset.py; docs/dataset.md says why."""
GZIP_LEVEL = 1
SLAB_ROWS = 1 << 14
"""Rows read at once if only some are needed: bounds the memory besides the result."""
USER_BLOCK = 512
"""HDF5 reserves these first bytes for the application; they contain the digest of the rest."""
_MAGIC = b"sept-offline dataset, HDF5 from byte 512 on, sha256 of the rest:\n"
FILTERS = frozenset((1, 2, 3, 4, 5, 6, 32000))
"""gzip, shuffle, fletcher32, szip, nbit, scaleoffset and h5py's lzf; any other would be looked for
among the system's plugins."""
UNREADABLE = (OSError, RuntimeError, TypeError, ValueError)
"""Errors that h5py raises for damaged values."""


class Hdf5Source(Source):
    """An HDF5 dataset open for reading; `content` is that of the file, if it was read already."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        check_regular(path, DataError)
        try:
            if content is None and not h5py.is_hdf5(path):
                raise DataError(
                    f"{path} is not an HDF5 file, or its header is damaged; expected a .h5 file "
                    "written by sept-offline."
                )
        except OSError as error:
            raise damaged(path, error) from error
        self._file = open_hdf5(path, content, rdcc_nbytes=1 << 20)
        try:
            if not has(self._file, "header"):
                raise DataError(
                    f"{path} is HDF5 but not a sept-offline dataset (it has no 'header'); convert "
                    "it with sept-offline import, or write one with sept_offline.DatasetWriter."
                )
            header = stored_array(self._file, "header", path, rank=0)
            fields = [
                stored_array(self._file, f"episodes/{name}", path, rank=1) for name in INDEX_FIELDS
            ]
            self._columns = {
                name: stored_array(self._file, name, path)
                for name in DTYPES
                if has(self._file, name)
            }
            claimed = sum(map(array_bytes, [header, *fields, *self._columns.values()]))
            check_claim(path, "arrays", claimed, path.stat().st_size, DataError)
            self.header = parse_header(_text(header), path)
            for name, field in zip(INDEX_FIELDS, fields, strict=True):
                if field.dtype.kind not in "iu" or field.shape != fields[0].shape:
                    raise damaged(path, f"'episodes/{name}' is not a row of {fields[0].shape} ids")
            self.index = EpisodeIndex(*(np.asarray(field[()], dtype=np.int64) for field in fields))
        except (*UNREADABLE, KeyError, AttributeError) as error:
            self._file.close()
            raise damaged(path, error) from error
        except DataError:
            self._file.close()
            raise
        self.columns = {name: (c.dtype, tuple(c.shape)) for name, c in self._columns.items()}

    def take(self, name: str, rows: Int64) -> NDArray[Any]:
        """The given ascending rows of a column; rows in one or adjacent chunks are read at once."""
        column = self._columns[name]
        out = np.empty((len(rows), *column.shape[1:]), dtype=self.header.columns[name][0])
        chunk = column.chunks[0] if column.chunks else 1
        try:
            for first, last in _slabs(rows, chunk):
                low, high = int(rows[first]), int(rows[last - 1]) + 1
                slab = column[low:high]
                whole = high - low == last - first
                out[first:last] = slab if whole else slab[rows[first:last] - low]
        except UNREADABLE as error:
            raise self._unreadable(name, error) from error
        return out

    def in_memory(self) -> MemorySource:
        """See Source."""
        arrays = {
            name: np.empty(column.shape, dtype=self.header.columns[name][0])
            for name, column in self._columns.items()
        }
        for name, column in self._columns.items():
            try:
                column.read_direct(arrays[name])
            except UNREADABLE as error:
                raise self._unreadable(name, error) from error
        return MemorySource(self.path, self.header, self.index, arrays)

    def _unreadable(self, name: str, error: BaseException) -> DataError:
        return damaged(self.path, f"rows of {name!r} cannot be read: {error}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(array: h5py.Dataset) -> bytes:
    """The text of a dataset that holds one piece of it."""
    if array.dtype.kind != "S":
        raise TypeError(f"{array.name} holds {array.dtype}, expected text")
    return bytes(array[()])


def _slabs(rows: Int64, chunk: int) -> list[tuple[int, int]]:
    """Split ascending rows into runs that can be read as one slab of adjoining chunks."""
    if not len(rows):
        return []
    groups = rows // SLAB_ROWS
    gaps = np.diff(rows // chunk) > 1
    cuts = np.flatnonzero(gaps | (np.diff(groups) > 0)) + 1
    edges = [0, *cuts.tolist(), len(rows)]
    return list(itertools.pairwise(edges))


def read_hdf5_hidden(
    path: Path, instances: int, content: bytes | None = None
) -> HiddenTable | None:
    """The privileged group of a file, apart from its source."""
    try:
        with open_hdf5(path, content) as file:
            if not has(file, "privileged"):
                return None
            listed = stored_array(file, "privileged/names", path, rank=0)
            table = stored_array(file, "privileged/values", path, rank=2)
            claimed = array_bytes(listed) + array_bytes(table)
            check_claim(path, "hidden values", claimed, path.stat().st_size, DataError)
            names = json.loads(_text(listed))
            if not isinstance(names, list) or table.dtype.kind != "f":
                raise ValueError("the hidden parameters are not a table of numbers")
            values = np.asarray(table[()], dtype=np.float64)
    except (*UNREADABLE, KeyError, RecursionError) as error:
        raise damaged(path, error) from error
    if values.shape != (instances, len(names)):
        raise damaged(
            path, f"hidden values have shape {values.shape}, expected {(instances, len(names))}"
        )
    return HiddenTable(tuple(str(name) for name in names), values)


def write_hdf5(
    path: Path,
    source: Source,
    header: Header,
    hidden: HiddenTable | None,
    progress: RowCounter | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    compression: str | None = "gzip",
) -> None:
    """Write all that `source` holds as one HDF5 file; equal content gives equal bytes."""
    # v110 objects carry checksums and no times; fletcher32 guards the chunks.
    with (
        PatientFile(path) as sink,
        h5py.File(
            sink, "w", libver=("v110", "v110"), userblock_size=USER_BLOCK, track_order=False
        ) as file,
    ):
        file.create_dataset("header", data=np.bytes_(header.to_json().encode()), track_times=False)
        for name, (dtype, _) in header.columns.items():
            if name not in source.columns:
                continue
            shape = source.columns[name][1]
            row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
            rows = max(1, min(shape[0], chunk_bytes // row_bytes))
            column = file.create_dataset(
                name,
                shape=shape,
                dtype=dtype,
                chunks=(rows, *shape[1:]),
                shuffle=compression is not None,
                compression=compression,
                compression_opts=GZIP_LEVEL if compression == "gzip" else None,
                fletcher32=True,
                track_times=False,
            )
            start = 0
            # Cut at chunk borders, so that no chunk is compressed twice.
            for block in blocks(source, name, multiple=rows):
                column[start : start + len(block)] = block
                sink.check()
                start += len(block)
                if progress is not None:
                    progress(name, len(block))
        group = file.create_group("episodes")
        for name in INDEX_FIELDS:
            values = getattr(source.index, name)
            group.create_dataset(
                name,
                data=values,
                chunks=(max(1, min(len(values), 1 << 16)),),
                shuffle=True,
                compression="gzip",
                compression_opts=GZIP_LEVEL,
                fletcher32=True,
                track_times=False,
            )
        if hidden is not None:
            group = file.create_group("privileged")
            names = np.bytes_(json.dumps(list(hidden.names)).encode())
            group.create_dataset("names", data=names, track_times=False)
            group.create_dataset("values", data=hidden.values, track_times=False)
    sink.check()
    digest = _digest(path)
    with path.open("r+b") as raw:
        raw.write(_user_block(digest))


def _digest(path: Path) -> str:
    with path.open("rb") as raw:
        raw.seek(USER_BLOCK)
        digest = sha256()
        while piece := raw.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _user_block(digest: str) -> bytes:
    return (_MAGIC + digest.encode() + b"\n").ljust(USER_BLOCK, b"\0")


def hdf5_bytes_intact(path: Path, content: bytes | None = None) -> bool:
    """Whether every byte of a file, or of its `content`, is the one that was written."""
    if content is not None:
        block, digest = content[:USER_BLOCK], sha256(memoryview(content)[USER_BLOCK:]).hexdigest()
    else:
        with path.open("rb") as raw:
            block = raw.read(USER_BLOCK)
        digest = _digest(path)
    return block.startswith(_MAGIC) and block == _user_block(digest)


def open_hdf5(path: Path, content: bytes | None = None, **options: Any) -> h5py.File:
    """An HDF5 file, or the `content` of one, for reading; or a DataError."""
    try:
        return h5py.File(path if content is None else io.BytesIO(content), "r", **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{path} is not an HDF5 file, or it is damaged: {one_line(error):.200}."
        ) from error


def names_of(file: h5py.File) -> list[str]:
    """The names at the top level of a file, including broken links."""
    try:
        return sorted(str(name) for name in file)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise DataError(f"{file.filename} is damaged: {one_line(error):.200}.") from error


def has(file: h5py.File, name: str) -> bool:
    """Whether the name exists; links are not followed."""
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
    """The array `name`, whose values must be stored in the file itself."""
    try:
        array: Any = file
        for part in name.split("/"):
            array = _member(array, part, name, path)
        if not isinstance(array, h5py.Dataset):
            raise DataError(
                f"{path} contains a group instead of the array {name!r}; it is damaged."
            )
        _check(array, name, path, rank)
    except (OSError, TypeError, ValueError, RuntimeError, KeyError) as error:
        raise DataError(
            f"{name!r} of {path} cannot be read: it is damaged ({one_line(error):.200})."
        ) from error
    return array


def _member(group: Any, part: str, name: str, path: Path) -> Any:
    """The member of a group on the path to the array `name`."""
    if not isinstance(group, h5py.Group):
        raise DataError(f"{path} contains an array instead of the group of {name!r}.")
    link = _link(group, part)
    if link is None:
        known = ", ".join(names_of(group.file)[:12])
        raise DataError(f"{path} has no dataset {name!r}; it has {known}.")
    if not isinstance(link, h5py.HardLink):
        raise DataError(
            f"{path} contains a link instead of {name!r}, which may point to another file; "
            "store the values in the file itself."
        )
    return group[part]


def _link(group: Any, name: str) -> Any:
    try:
        return group.get(name, getlink=True)
    except (KeyError, ValueError, TypeError, RuntimeError):
        return None


def _check(array: h5py.Dataset, name: str, path: Path, rank: int | None) -> None:
    if array.is_virtual or array.external:
        raise DataError(
            f"{path} stores the values of {name!r} in other files, which are not opened; store "
            "them in the file itself."
        )
    if array.shape is None or array.dtype.kind not in "biufSO" or h5py.check_ref_dtype(array.dtype):
        raise DataError(f"{path} holds {array.dtype} in {name!r}, expected numbers or text.")
    if rank is not None and array.ndim != rank:
        raise DataError(f"{name!r} of {path} has {array.ndim} dimensions, expected {rank}.")
    created = array.id.get_create_plist()
    for position in range(created.get_nfilters()):
        code = int(created.get_filter(position)[0])
        if code not in FILTERS:
            raise DataError(f"{name!r} of {path} needs the filter {code}, which is not available.")


def array_bytes(array: h5py.Dataset) -> int:
    """The memory of an array, as the file declares it; a chunk is always decompressed whole."""
    chunk = math.prod(array.chunks) if array.chunks else 0
    return int(array.dtype.itemsize * max(math.prod(array.shape), chunk))


class PatientFile(io.RawIOBase):
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
        """Raise the stored error, if there is one."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
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
        stored = self._file.read(count) or b""
        view[:count] = stored.ljust(count, b"\0")
        for start, content in self._late:
            low, high = max(start, self._at), min(start + len(content), self._at + count)
            if low < high:
                view[low - self._at : high - self._at] = content[low - start : high - start]
        self._at += count
        return count

    def truncate(self, size: int | None = None) -> int:
        """See `io.RawIOBase`; errors are kept for later."""
        self._size = self._at if size is None else size
        if self.error is None:
            try:
                self._file.truncate(self._size)
            except OSError as problem:
                self.error = problem
        return self._size

    def close(self) -> None:
        """See `io.RawIOBase`."""
        self._file.close()
        super().close()

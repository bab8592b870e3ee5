"""Locations of datasets: a local path, or any filesystem that pyarrow supports."""

from __future__ import annotations

import contextlib
import functools
import re
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from sept_offline.errors import DataError, one_line
from sept_offline.files import write_atomically
from sept_offline.limits import check_regular, limit_bytes, read_whole

HDF5_SUFFIXES = (".h5", ".hdf5")
PARQUET_SUFFIXES = (".parquet",)
TABLES = (".csv", ".tsv")
PACKED = (".gz", ".bz2", ".zst")
"""Suffixes that may follow those of a table."""
SMALL = 64 << 20
"""Maximum size of a manifest or a plan, unless the limit for files is higher."""
# A Path squeezes the two slashes of a URI into one; two letters at least, for a drive has one.
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)", re.DOTALL)


@dataclass(frozen=True)
class Remote:
    """A file or directory that no local path leads to: s3://bucket/logs, gs://…, hdfs://…"""

    uri: str = field(repr=False)
    """The URI for pyarrow.fs.FileSystem.from_uri; it may contain a password."""

    def __str__(self) -> str:
        """The URI without credentials and connection options."""
        parts = urllib.parse.urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def suffix(self) -> str:
        """Like `Path.suffix`."""
        return PurePosixPath(urllib.parse.urlsplit(self.uri).path).suffix

    @property
    def stem(self) -> str:
        """Like `Path.stem`; the bucket's name if there is nothing else."""
        parts = urllib.parse.urlsplit(self.uri)
        return PurePosixPath(parts.path).stem or parts.netloc.rpartition("@")[2]


Place = Path | Remote


def locate(place: str | Place) -> Place:
    """A path for local files, including `file:///…`; a `Remote` for any other URI."""
    if isinstance(place, Remote):
        return place
    if not str(place):
        raise DataError("The path of the dataset is empty; give a file or a folder.")
    match = _URI.fullmatch(str(place))
    if match is None:
        return Path(place)
    if match["scheme"].lower() == "file":
        return Path("/" + urllib.parse.unquote(match["rest"]))
    return Remote(f"{match['scheme'].lower()}://{match['rest']}")


def filesystem(place: Place) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a place, and its name there."""
    if isinstance(place, Path):
        return pafs.LocalFileSystem(), str(place)
    with _reaching(place):
        return _from_uri(place.uri)


@functools.lru_cache(maxsize=16)
def _from_uri(uri: str) -> tuple[pafs.FileSystem, str]:
    system, path = pafs.FileSystem.from_uri(uri)
    return system, path.rstrip("/")


@contextlib.contextmanager
def _reaching(place: Place) -> Iterator[None]:
    """Turn the errors of a filesystem that does not answer, or answers no, into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"Cannot reach {place}: {one_line(error)}; check the address and the credentials."
        ) from error


def place_kind(place: Place) -> str:
    """'file', 'directory' or 'nothing'."""
    if isinstance(place, Path):
        try:
            return "directory" if place.is_dir() else "file" if place.exists() else "nothing"
        except ValueError:  # a name that no file can have, as with a null byte in it
            return "nothing"
    system, name = filesystem(place)
    with _reaching(place):
        what = system.get_file_info(name).type
    names = {pafs.FileType.File: "file", pafs.FileType.Directory: "directory"}
    return names.get(what, "nothing")


class Folder:
    """A local or remote directory whose files are written atomically."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.filesystem, self.path = filesystem(place)

    def name(self, name: str) -> str:
        """The filesystem's path of a file in this directory."""
        return f"{self.path}/{name}"

    def sizes(self) -> dict[str, int | None]:
        """The files of this directory with their bytes, and the directories in it with None."""
        selector = pafs.FileSelector(self.path, allow_not_found=True)
        with _reaching(self.place):
            entries = self.filesystem.get_file_info(selector)
        return {info.base_name: int(info.size) if info.is_file else None for info in entries}

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is no file of that name.

        It is one of the small files of a dataset: a larger one, a pipe or a device is refused.
        """
        if isinstance(self.place, Path):
            path = self.place / name
            return read_whole(path, DataError, SMALL) if path.exists() else None
        with _reaching(self.place):
            try:
                with self.filesystem.open_input_file(self.name(name)) as file:
                    if file.size() > max(SMALL, limit_bytes()):
                        raise DataError(f"{self.place} holds a {name} of {file.size():,} bytes.")
                    return bytes(file.read())
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, fill: Callable[[Path], Any]) -> None:
        """Let `fill` write a local file, and store it here as `name`, atomically."""
        if isinstance(self.place, Path):
            write_atomically(self.place / name, fill)
            return
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / "file"
            fill(made)
            data = made.read_bytes()
        # In one piece: an upload that was begun and not finished leaves nothing behind.
        with (
            _reaching(self.place),
            self.filesystem.open_output_stream(self.name(name)) as file,
        ):
            file.write(data)

    def write_text(self, name: str, text: str) -> None:
        """Put a text here, whole or not at all."""
        self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def delete(self, name: str) -> None:
        """Remove a file that is there."""
        with _reaching(self.place):
            self.filesystem.delete_file(self.name(name))


def kind_of(path: Path) -> str:
    """ "hdf5" or "parquet", by the suffix of a file to be written."""
    suffix = path.suffix.lower()
    if suffix in HDF5_SUFFIXES:
        return "hdf5"
    if suffix in PARQUET_SUFFIXES:
        return "parquet"
    raise DataError(f"Unknown format of {path}; choose a name that ends in .h5 or .parquet.")


def check_place(path: str | Place) -> Place:
    """The location of a dataset; a DataError if there is none, or something else."""
    place = locate(path)
    what = place_kind(place)
    if what == "nothing":
        raise DataError(f"There is no dataset at {place}; check the path, or collect one.")
    if what == "directory":
        if isinstance(place, Path):
            _check_folder(place)
        return place
    if isinstance(place, Path):
        check_regular(place, DataError)
    name = str(place).lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    if name.endswith(TABLES):
        raise DataError(
            f"{place} is a {name[-3:].upper()} file, not a dataset; convert it with sept-offline "
            "import."
        )
    if place.suffix.lower() not in HDF5_SUFFIXES + PARQUET_SUFFIXES:
        raise DataError(
            f"Unknown format of {place}; expected a .h5 file, a .parquet file or a directory."
        )
    return place


def _check_folder(folder: Path) -> None:
    if (folder / "run.json").is_file() or (folder / "agent.json").is_file():
        raise DataError(
            f"{folder} is a run of fit, not a dataset; name the logs it was trained on."
        )
    if (folder / "manifest.json").is_file() and not any(folder.rglob("*.parquet")):
        raise DataError(f"{folder} is an exported agent, not a dataset; name logs.")

"""From any source to a finished file in either format, at once or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sept_offline.data.hashing import content_hash
from sept_offline.data.hdf5 import write_hdf5
from sept_offline.data.parquet_writer import write_parquet
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import Source
from sept_offline.errors import DataError
from sept_offline.files import Workspace, writing

HDF5_SUFFIXES = (".h5", ".hdf5")
PARQUET_SUFFIXES = (".parquet",)


def kind_of(path: Path) -> str:
    """ "hdf5" or "parquet", by the suffix of a file to be written."""
    suffix = path.suffix.lower()
    if suffix in HDF5_SUFFIXES:
        return "hdf5"
    if suffix in PARQUET_SUFFIXES:
        return "parquet"
    raise DataError(f"Unknown format of {path}; choose a name that ends in .h5 or .parquet.")


def publish(
    work: Workspace,
    source: Source,
    hidden: HiddenTable | None,
    progress: Callable[[str, int], None] | None = None,
) -> str:
    """Write `source` next to the workspace's path, move it there, and return its content hash."""
    digest = content_hash(source, hidden)
    header = source.header.with_hash(digest)
    finished = work.directory / "finished"
    write = write_hdf5 if kind_of(work.path) == "hdf5" else write_parquet
    with writing(work.path):
        write(finished, source, header, hidden, progress)
        work.publish(finished)
    return digest

"""From any source to a finished file, and from one format to the other with the same hash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sept_offline.data.checks import check_structure
from sept_offline.data.dataset import Dataset, open_source
from sept_offline.data.filesystems import Place, kind_of
from sept_offline.data.hashing import content_hash
from sept_offline.data.hdf5 import write_hdf5
from sept_offline.data.parquet_writer import write_parquet
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import Source
from sept_offline.errors import DataError
from sept_offline.files import Workspace, writing


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


def convert(
    source: str | Place, target: str | Path, progress: Callable[[str, int], None] | None = None
) -> str:
    """Write the dataset at `source` to `target` (.h5 or .parquet); return its content hash.

    A source whose content does not match its hash is an error: a copy would look valid.
    """
    target = Path(target)
    kind_of(target)
    columns, hidden = open_source(source)
    try:
        check_structure(columns)
        _check_hash(source, columns, hidden)
        with Workspace(target) as work:
            return publish(work, columns, hidden, progress)
    finally:
        columns.close()


def check_content(data: Dataset) -> None:
    """Refuse a dataset whose content is not what its hash says."""
    _check_hash(data.path, data._source, data.hidden)


def _check_hash(path: object, columns: Source, hidden: HiddenTable | None) -> None:
    stored = columns.header.content_hash
    if stored is not None and content_hash(columns, hidden) != stored:
        raise DataError(
            f"The content of {path} does not match its hash: it is damaged or was edited; "
            "run `sept-offline validate` on it, then restore it or write it again."
        )

"""Writing partitioned datasets: parts by the workers, then the manifest by one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sept_offline.data.checks import CheckedEpisode
from sept_offline.data.filesystems import Folder
from sept_offline.data.hashing import content_hash
from sept_offline.data.manifest import Manifest, Part, unpack_index, write_manifest
from sept_offline.data.parquet import (
    INDEX_KEY,
    ParquetSource,
    group_rows,
    parquet_bytes_intact,
)
from sept_offline.data.parquet_writer import write_parquet
from sept_offline.data.records import EpisodeIndex, HiddenTable, Int64
from sept_offline.data.source import DTYPES, Header, MemorySource


@dataclass(frozen=True)
class WrittenPart:
    """A part that is whole, and the steps of its episodes."""

    part: Part
    length: Int64
    """[E]"""


def write_part(
    folder: Folder,
    name: str,
    header: Header,
    episodes: Sequence[CheckedEpisode],
    *,
    number: Int64,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> WrittenPart:
    """Write some successive episodes of a dataset as one of its parts.

    number, instance, behaviour, seed: [E], as in `EpisodeIndex`; equal episodes give equal bytes.
    """
    columns = {
        column: np.concatenate([episode.columns[column] for episode in episodes])
        for column in DTYPES
    }
    length = np.array([len(episode.columns["actions"]) for episode in episodes], dtype=np.int64)
    index = EpisodeIndex(number, np.cumsum(length) - length, length, instance, behaviour, seed)
    source = MemorySource(folder.place, header, index, columns)
    parts: list[Part] = []

    def fill(path: Path) -> None:
        write_parquet(path, source, header, None)
        parts.append(Part(name, path.stat().st_size, group_rows(pq.read_metadata(path))))

    folder.write(name, fill)
    return WrittenPart(parts[0], length)


def read_part(folder: Folder, name: str) -> WrittenPart | None:
    """The footer's data about a part; None if the part is damaged."""
    path = folder.name(name)
    try:
        if not parquet_bytes_intact(folder.place, path):
            return None
        with folder.filesystem.open_input_file(path) as raw:
            size, metadata = int(raw.size()), pq.read_metadata(raw)
        index = unpack_index(json.loads(metadata.metadata[INDEX_KEY])["columns"])
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None
    return WrittenPart(Part(name, size, group_rows(metadata)), index.length)


def join_parts(
    header: Header,
    written: Sequence[WrittenPart],
    *,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> Manifest:
    """The manifest of all parts; instance, behaviour, seed: [E], of all episodes in order."""
    length = np.concatenate([one.length for one in written])
    index = EpisodeIndex(
        number=np.arange(len(length), dtype=np.int64),
        offset=np.cumsum(length) - length,
        length=length,
        instance=instance,
        behaviour=behaviour,
        seed=seed,
    )
    return Manifest(header, index, tuple(one.part for one in written))


def publish_parts(
    folder: Folder, manifest: Manifest, hidden: HiddenTable | None, check: Callable[[], None]
) -> str:
    """Hash all parts as the one dataset they are, and write its manifest; return the hash.

    check: called once they are hashed, raises if nothing may be written any more.
    """
    source = ParquetSource(folder.place, manifest=manifest)
    try:
        digest = content_hash(source, hidden)
    finally:
        source.close()
    complete = replace(manifest, header=manifest.header.with_hash(digest))
    check()
    write_manifest(folder, complete, hidden)
    return digest

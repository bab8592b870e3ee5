"""Partitioned datasets: parts written by workers, then a manifest, without which there is none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sept_offline.data.filesystems import Folder
from sept_offline.data.parquet import (
    INDEX_KEY,
    UNREADABLE,
    group_sizes,
    hidden_json,
    pack_index,
    parquet_bytes_intact,
    parse_hidden,
    unpack_index,
    write_parquet,
)
from sept_offline.data.records import EpisodeIndex, HiddenTable, Int64
from sept_offline.data.source import (
    DTYPES,
    Header,
    MemorySource,
    canonical_json,
    damaged,
    parse_header,
)
from sept_offline.errors import DataError
from sept_offline.seals import warn_unsealed

MANIFEST = "_manifest.json"
PRIVILEGED = "_privileged.json"
PLAN = "_plan.json"
"""File with the plan of the collection: written before the first part and kept."""


@dataclass(frozen=True)
class Part:
    """One Parquet file of a partitioned dataset, whole episodes in the order of the dataset."""

    name: str
    bytes: int
    groups: tuple[int, ...]
    """Rows of each row group."""


@dataclass(frozen=True)
class Manifest:
    """All that is needed to read any row without opening the parts that do not hold it."""

    header: Header
    index: EpisodeIndex
    parts: tuple[Part, ...]
    privileged: str | None = None
    """The SHA-256 of the hidden parameters next to it; "" if there are none."""


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
    episodes: Sequence[Mapping[str, NDArray[Any]]],
    *,
    number: Int64,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> WrittenPart:
    """Write some successive episodes of a dataset as one of its parts.

    episodes: the columns of each, as `check_episode` gives them; number, instance, behaviour, seed:
    [E], as in `EpisodeIndex`. Equal episodes give equal bytes.
    """
    columns = {
        column: np.concatenate([episode[column] for episode in episodes]) for column in DTYPES
    }
    length = np.array([len(episode["actions"]) for episode in episodes], dtype=np.int64)
    index = EpisodeIndex.end_to_end(length, instance, behaviour, seed, number)
    source = MemorySource(folder.place, header, index, columns)
    parts: list[Part] = []

    def fill(path: Path) -> None:
        write_parquet(path, source, header, None)
        parts.append(Part(name, path.stat().st_size, group_sizes(pq.read_metadata(path))))

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
    except UNREADABLE:
        return None
    return WrittenPart(Part(name, size, group_sizes(metadata)), index.length)


def join_parts(
    header: Header,
    written: Sequence[WrittenPart],
    *,
    instance: Int64,
    behaviour: Int64,
    seed: Int64,
) -> Manifest:
    """The manifest of all parts; instance, behaviour, seed: [E], of all episodes in order."""
    length = np.concatenate([part.length for part in written])
    index = EpisodeIndex.end_to_end(length, instance, behaviour, seed)
    return Manifest(header, index, tuple(part.part for part in written))


def write_manifest(folder: Folder, manifest: Manifest, hidden: HiddenTable | None) -> None:
    """Bring the dataset into being: from here on it can be read."""
    text = "" if hidden is None else hidden_json(hidden)
    if text:
        folder.write_text(PRIVILEGED, text)
    body = {
        "privileged": hashlib.sha256(text.encode()).hexdigest() if text else "",
        "header": json.loads(manifest.header.to_json()),
        "episodes": pack_index(manifest.index),
        "parts": [[part.name, part.bytes, list(part.groups)] for part in manifest.parts],
    }
    folder.write_text(MANIFEST, canonical_json({**body, "sha256": _digest(body)}))


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body).encode()).hexdigest()


def find_manifest(folder: Folder) -> Manifest | None:
    """The manifest of a directory; None if it has none."""
    text = folder.read(MANIFEST)
    if text is None:
        return None
    try:
        stored = json.loads(text)
        if not isinstance(stored, dict) or "sha256" not in stored:
            raise ValueError("it has no checksum")
        if _digest({key: stored[key] for key in stored if key != "sha256"}) != stored["sha256"]:
            raise ValueError("the manifest is not the one that was written")
        return Manifest(
            header=parse_header(canonical_json(stored["header"]), folder.place),
            index=unpack_index(stored["episodes"]),
            parts=tuple(
                Part(str(name), int(size), tuple(int(rows) for rows in groups))
                for name, size, groups in stored["parts"]
            ),
            privileged=stored.get("privileged"),
        )
    except UNREADABLE as error:
        raise damaged(folder.place, error) from error


def read_manifest(folder: Folder) -> Manifest | None:
    """The manifest of a directory, checked against the files there; None where it has none."""
    manifest = find_manifest(folder)
    if manifest is None:
        if folder.read(PLAN) is not None:
            raise DataError(
                f"{folder.place} contains an unfinished collection, not a dataset; continue it "
                "with sept-offline collect --resume."
            )
        return None
    sizes = folder.sizes()
    if not manifest.parts:
        raise damaged(folder.place, "its manifest names no parts")
    for part in manifest.parts:
        if sizes.get(part.name) != part.bytes:
            found = f"has {sizes[part.name]}" if part.name in sizes else "is missing, which has"
            raise damaged(folder.place, f"{part.name} {found} of {part.bytes} bytes")
    return manifest


def read_privileged(folder: Folder, manifest: Manifest) -> HiddenTable | None:
    """The hidden parameters next to a manifest, stored separately."""
    text, digest = folder.read(PRIVILEGED), manifest.privileged
    if digest is None and text is not None and isinstance(folder.place, Path):
        warn_unsealed(folder.place / PRIVILEGED)
    elif digest is not None and digest != (hashlib.sha256(text).hexdigest() if text else ""):
        raise damaged(folder.place, f"{PRIVILEGED} does not match its checksum in the manifest")
    if not text:
        return None
    try:
        return parse_hidden(text, len(manifest.header.instances))
    except UNREADABLE as error:
        raise damaged(folder.place, error) from error

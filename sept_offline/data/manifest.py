"""The manifest of a partitioned dataset: written last; without it there is no dataset."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.data.filesystems import Folder
from sept_offline.data.records import EpisodeIndex, HiddenTable
from sept_offline.data.source import INDEX_FIELDS, Header, canonical_json, damaged, parse_header
from sept_offline.errors import DataError
from sept_offline.limits import RATIO, VARIABLE, limit_bytes
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


def pack_index(index: EpisodeIndex) -> str:
    """An index as text: its columns as bytes, compressed."""
    columns = np.stack([getattr(index, name) for name in INDEX_FIELDS]).astype("<i8")
    return base64.b64encode(zlib.compress(columns.tobytes(), 1)).decode()


def unpack_index(text: str) -> EpisodeIndex:
    """The index that `pack_index` packed."""
    packed = base64.b64decode(text, validate=True)
    unpacking, most = zlib.decompressobj(), max(limit_bytes(), RATIO * len(packed))
    content = unpacking.decompress(packed, most)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError(
            f"its index of {len(packed):,} bytes is cut short, or unpacks to more than {most:,}; "
            f"if it is right, raise {VARIABLE}"
        )
    values = np.frombuffer(content, dtype="<i8")
    columns = values.reshape(len(INDEX_FIELDS), -1)
    return EpisodeIndex(*(row.astype(np.int64) for row in columns))


def hidden_json(hidden: HiddenTable) -> str:
    """A table of hidden parameters as canonical JSON; unknown ones are null."""
    values = [[None if np.isnan(v) else v for v in row] for row in hidden.values.tolist()]
    return canonical_json({"names": list(hidden.names), "values": values})


def parse_hidden(text: str | bytes, instances: int) -> HiddenTable:
    """The table that `hidden_json` wrote; a ValueError, KeyError or TypeError on anything else."""
    stored = json.loads(text)
    names = tuple(str(name) for name in stored["names"])
    rows = [[np.nan if v is None else float(v) for v in row] for row in stored["values"]]
    values = np.asarray(rows, dtype=np.float64).reshape(instances, len(names))
    return HiddenTable(names, values)


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
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
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
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise damaged(folder.place, error) from error

"""The content hash, independent of format, chunks, compression and versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

import numpy as np

from sept_offline.data.records import HiddenTable
from sept_offline.data.source import INDEX_FIELDS, Source, blocks, canonical_json

NOT_CONTENT = ("content_hash", "versions", "plan")


def content_hash(
    source: Source,
    hidden: HiddenTable | None,
    progress: Callable[[str, int], None] | None = None,
) -> str:
    """Hex SHA-256 over the header, every column in canonical type and order, and the hidden table.

    `progress(column, rows)` is called after every block.
    """
    parts: dict[str, str] = {}
    for name, (dtype, _) in source.header.columns.items():
        if name not in source.columns:
            continue
        digest = hashlib.sha256()
        for block in blocks(source, name):
            digest.update(np.ascontiguousarray(block, dtype=dtype).data)
            if progress is not None:
                progress(name, len(block))
        parts[name] = digest.hexdigest()
    for name in INDEX_FIELDS:
        values = np.ascontiguousarray(getattr(source.index, name), dtype="<i8")
        parts[f"episodes/{name}"] = hashlib.sha256(values.data).hexdigest()
    if hidden is not None:
        values = np.ascontiguousarray(hidden.values, dtype="<f8")
        parts["hidden"] = hashlib.sha256(values.data).hexdigest()
        parts["hidden/names"] = canonical_json(list(hidden.names))
    header: Mapping[str, object] = json.loads(source.header.to_json())
    kept = {key: value for key, value in header.items() if key not in NOT_CONTENT}
    return hashlib.sha256(canonical_json({"header": kept, "columns": parts}).encode()).hexdigest()

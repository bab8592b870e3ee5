"""Checksums stored in the files themselves, so that damage is detected.

A JSON object has the SHA-256 of all else it says under "checksum". Safetensors and Parquet files
have the SHA-256 of their bytes, taken with zeros in its own place, in their metadata. Files from
before this open with one warning for each folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sept_offline.errors import DataError, SeptError, one_line
from sept_offline.files import write_bytes
from sept_offline.limits import check_claim, read_whole
from sept_offline.stage import StageState

if TYPE_CHECKING:
    import pyarrow as pa

CHECKSUM = "checksum"
ZEROS = b"0" * 64
SEAL = "sha256:"
PARQUET_KEY = b"sept_offline.file_sha256"
UNSEALED = {PARQUET_KEY: SEAL.encode() + ZEROS}
"""Entry of a Parquet file's metadata that `seal_parquet` completes."""
_IN_TENSORS = re.compile(rb'"values":"sha256:([0-9a-f]{64}) ')
"""One key for both: safetensors writes several in an order that changes from run to run."""
_IN_PARQUET = re.compile(re.escape(PARQUET_KEY) + rb"[^s]{1,6}sha256:([0-9a-f]{64})", re.DOTALL)
_FOLDERS = ("checkpoints", "agent", "cells", "datasets")
"""Folders inside a run or a bench, which share its one warning."""
JSON_BYTES = 64 << 20
"""No JSON file of ours is larger, but for results with every step."""


class UnsealedWarning(UserWarning):
    """A file was written before checksums: damage cannot be detected."""


_warned: set[Path] = set()


def warn_unsealed(path: Path) -> None:
    """Say once for each run, bench or folder that its files carry no checksums."""
    folder = path.absolute().parent
    if folder.name in _FOLDERS:
        folder = folder.parent
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"{path} has no checksum (early versions wrote none), so damage cannot be detected.",
            UnsealedWarning,
            stacklevel=3,
        )


def _sha256(*pieces: bytes) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest().encode()


# JSON


def parse_json(content: bytes | str, where: object, error: type[SeptError]) -> Any:
    """Parse JSON, or raise `error` with one sentence that names the file."""
    try:
        value = json.loads(content)
        if (b"\\ud" if isinstance(content, bytes) else "\\ud") in content.lower():  # type: ignore[operator]
            # Half of a character can be escaped in JSON and written nowhere.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError as problem:
        raise error(f"{where} is damaged: it is nested too deeply.") from problem
    except ValueError as problem:
        words = one_line(problem)
        raise error(f"{where} is damaged: it is not valid JSON ({words}).") from problem


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, indent=2).encode()).hexdigest()


def sealed_json(body: Mapping[str, Any], sort_keys: bool = False) -> str:
    """A JSON object with the checksum of itself; keys keep their order, or are sorted."""
    # As they will be read: a tuple becomes a list, a number as a key becomes text.
    plain = json.loads(json.dumps(body, sort_keys=sort_keys))
    whole = {**plain, CHECKSUM: _checksum(plain)}
    return json.dumps(whole, indent=2, sort_keys=sort_keys) + "\n"


def write_json(path: Path, body: Mapping[str, Any]) -> None:
    """Write a whole JSON object with its checksum, or nothing."""
    write_bytes(path, sealed_json(body).encode())


def read_json(path: Path, error: type[SeptError], most: int = JSON_BYTES) -> Any:
    """The content of any JSON file, or `error` with a sentence that names the file."""
    return parse_json(read_whole(path, error, most), path, error)


def read_sealed(path: Path, error: type[SeptError]) -> dict[str, Any]:
    """The object that `write_json` wrote, without its checksum; anything else is refused."""
    return unsealed(read_json(path, error), path, error)


def unsealed(
    content: Any, path: Path, error: type[SeptError], required: bool = False
) -> dict[str, Any]:
    """The body of a sealed object that has been parsed.

    One from before checksums opens with a warning, unless there never were any such: `required`.
    """
    if not isinstance(content, dict):
        raise error(f"{path} is damaged: expected a JSON object.")
    if CHECKSUM not in content and not required:
        warn_unsealed(path)
        return content
    body = {name: value for name, value in content.items() if name != CHECKSUM}
    if content.get(CHECKSUM) != _checksum(body):
        raise error(
            f"{path} does not match its own checksum: it is damaged or was edited; restore it, or "
            "write it again."
        )
    return body


# Safetensors


def save_state(path: Path, state: StageState) -> None:
    """Write a snapshot as one safetensors file, its values as JSON in the header."""
    import safetensors.torch

    tensors = {name: tensor.contiguous() for name, tensor in state.tensors.items()}
    content = safetensors.torch.save(tensors, _unsealed_values(state.values))
    write_bytes(path, _seal_tensors(content))


def load_state(path: Path, error: type[SeptError]) -> StageState:
    """A snapshot that `save_state` wrote, or `error` with a sentence that names the file."""
    import safetensors.torch
    from safetensors import SafetensorError

    content, text = _read_tensors(path, error)
    try:
        values = json.loads(text)
        tensors = dict(safetensors.torch.load(content))
        if not isinstance(values, dict):
            raise ValueError("its values are not an object")
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as problem:
        raise _damaged(path, problem, error) from problem
    return StageState(tensors=tensors, values=values)


def _unsealed_values(values: Mapping[str, Any]) -> dict[str, str]:
    """Metadata with `values` and a place for the checksum."""
    return {"values": f"{SEAL}{ZEROS.decode()} {json.dumps(values)}"}


def _seal_tensors(content: bytes) -> bytes:
    field = _IN_TENSORS.search(content, 8, 8 + int.from_bytes(content[:8], "little"))
    if field is None or field[1] != ZEROS:
        raise DataError("The checkpoint has no field for its checksum.")
    return content[: field.start(1)] + _sha256(content) + content[field.end(1) :]


def _read_tensors(path: Path, error: type[SeptError]) -> tuple[bytes, str]:
    """The bytes of a safetensors file that match their checksum, and its values as JSON."""
    content = read_whole(path, error)
    length = int.from_bytes(content[:8], "little")
    try:
        if not 2 <= length <= len(content) - 8:
            raise ValueError(f"its header declares {length:,} bytes of {len(content):,}")
        metadata = json.loads(content[8 : 8 + length]).get("__metadata__", {})
        if not set(metadata) <= {"values"}:
            raise ValueError("its metadata are not those that were written")
        text = metadata.get("values", "{}")
        if not text.startswith(("{", SEAL)):
            raise ValueError("its values are not those that were written")
    except (ValueError, AttributeError, TypeError, RecursionError) as problem:
        raise _damaged(path, problem, error) from problem
    if not text.startswith(SEAL):
        warn_unsealed(path)
        return content, text
    field = _IN_TENSORS.search(content, 8, 8 + length)
    if field is None or field[1] != _sha256(
        content[: field.start(1)], ZEROS, content[field.end(1) :]
    ):
        raise _damaged(path, "it does not match its own checksum", error)
    return content, text.partition(" ")[2]


def _damaged(path: Path, problem: object, error: type[SeptError]) -> SeptError:
    words = one_line(problem)
    return error(f"The snapshot {path} is damaged ({words}); restore it, or delete it.")


# Parquet


def write_table(path: Path, table: pa.Table, compression: str = "snappy") -> None:
    """Write a whole Parquet file with its checksum, or nothing."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression=compression) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(UNSEALED)
    seal_parquet(sink)
    write_bytes(path, sink.getvalue())


def read_table(path: Path, error: type[SeptError]) -> pa.Table:
    """The table that `write_table` wrote, checked before it is decoded; or `error`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = read_whole(path, error)
    try:
        intact = is_intact(io.BytesIO(content))
        if intact is False:
            raise error(f"{path} does not match its own checksum: it is damaged or was edited.")
        file = pq.ParquetFile(pa.BufferReader(content))
        if intact is None:
            _check_rows(path, file.metadata, len(content), error)
            warn_unsealed(path)
        return file.read(use_threads=False)
    except SeptError:
        raise
    except (pa.ArrowException, OSError, ValueError) as problem:
        words = one_line(problem)
        raise error(f"{path} is damaged: it cannot be read as Parquet ({words:.200}).") from problem


def seal_parquet(raw: Any) -> None:
    """Put the checksum into a Parquet file that is open to read and write and has `UNSEALED`."""
    place = _seal_place(*_footer(raw))
    if place is None:
        raise DataError("The Parquet file has no field for its checksum.")
    checksum = _checksum_around(raw, place)
    raw.seek(place)
    raw.write(checksum)


def is_intact(raw: Any) -> bool | None:
    """Whether the bytes of an open Parquet file match its checksum; None if it has none."""
    start, footer = _footer(raw)
    if PARQUET_KEY not in footer:
        return None
    place = _seal_place(start, footer)
    if place is None:
        return False
    raw.seek(place)
    return bytes(raw.read(len(ZEROS))) == _checksum_around(raw, place)


def _footer(raw: Any) -> tuple[int, bytes]:
    """Where the footer of a Parquet file starts, and its bytes up to the end of the file."""
    size = raw.seek(0, io.SEEK_END)
    raw.seek(max(0, size - 8))
    end = bytes(raw.read())
    start = size - 8 - int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or start < 0:
        raise ValueError("it does not end as a Parquet file")
    raw.seek(start)
    return start, bytes(raw.read())


def _seal_place(start: int, footer: bytes) -> int | None:
    """The position in the file of the checksum in its footer, which is at `start`."""
    places = [start + match.start(1) for match in _IN_PARQUET.finditer(footer)]
    return places[-1] if places else None


def _checksum_around(raw: Any, place: int) -> bytes:
    """The checksum of an open file, with zeros in its own place."""
    digest = hashlib.sha256()
    raw.seek(0)
    while (left := place - raw.tell()) > 0:
        digest.update(raw.read(min(1 << 20, left)))
    digest.update(ZEROS)
    raw.seek(place + len(ZEROS))
    while piece := raw.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest().encode()


def _check_rows(path: Path, metadata: Any, stored: int, error: type[SeptError]) -> None:
    """Refuse a table that would take far more memory than the file that holds it."""
    groups = range(metadata.num_row_groups)
    claimed = sum(metadata.row_group(group).total_byte_size for group in groups)
    check_claim(path, "rows", max(claimed, 8 * metadata.num_rows), stored, error)

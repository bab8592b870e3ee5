"""Mutations of files: of their bytes, or of what their format means."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.fuzzing.json_mutations import mutate_json, mutate_manifest, mutate_tensors
from benchmarks.fuzzing.kinds import Kind
from benchmarks.fuzzing.table_mutations import mutate_hdf5, mutate_npz, mutate_parquet, mutate_table


def mutate(kind: Kind, content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """Another content, and whether it was edited so that its checksums are right."""
    meaning = MEANINGS.get(kind.form)
    if meaning is not None and rng.random() < 0.5:
        try:
            return meaning(content, rng, scratch)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, pa.ArrowException):
            pass  # an edit that the writing library refuses
    for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 5)):
        content = _bytes(content, rng)
    return content, False


def _bytes(content: bytes, rng: random.Random) -> bytes:
    size = len(content)
    if not size:
        return rng.randbytes(rng.randint(1, 64))
    low = rng.randrange(size)
    high = min(size, low + rng.choice((1, 1, 2, 4, 8, 64, 1024)))
    made = rng.randrange(9)
    if made == 0:
        return content[:low] + bytes([content[low] ^ (1 << rng.randrange(8))]) + content[low + 1 :]
    if made == 1:
        return content[:low] + rng.randbytes(high - low) + content[high:]
    if made == 2:
        return content[:low] + content[high:]
    if made == 3:
        return content[:low] + rng.randbytes(rng.choice((1, 4, 100))) + content[low:]
    if made == 4:
        return content[:low]
    if made == 5:
        return content[:low] + bytes(high - low) + content[high:]
    if made == 6:
        return content[:high] + content[low:]
    if made == 7:
        extreme = rng.choice((2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 1 << 40))
        return content[:low] + extreme.to_bytes(8, "little") + content[low + 8 :]
    other = rng.randrange(size)
    return content[:low] + content[other : other + high - low] + content[high:]


def _mutate_toml(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    lines = content.decode().splitlines()
    place = rng.randrange(len(lines))
    name = lines[place].partition("=")[0]
    value = rng.choice(
        (
            "9" * 5000,
            "[" * 5000,
            "1e999",
            "nan",
            "inf",
            "-1",
            '"x"',
            "[[1]]",
            "1979-05-27",
            "true",
            "{a=" * 2000,
            str(10**400),
            '"evil:family"',
        )
    )
    lines[place] = f"{name}= {value}"
    return "\n".join(lines).encode(), False


def _mutate_text(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    made = rng.randrange(5)
    if made == 0:
        del lines[place]
    elif made == 1:
        lines.insert(place, lines[rng.randrange(len(lines))])
    elif made == 2:
        lines[place] = lines[place].replace(b",", b";", 1)
    elif made == 3:
        cells = lines[place].split(b",")
        strange = (b"", b"nan", b"-1", b"9" * 5000, b"1e999", b"\xff", b'"', b"x", b"2020-01-01")
        cells[rng.randrange(len(cells))] = rng.choice(strange)
        lines[place] = b",".join(cells)
    else:
        lines = lines[: place + 1]
    return b"\n".join(lines), False


MEANINGS: dict[str, Callable[[bytes, random.Random, Path], tuple[bytes, bool]]] = {
    "json": mutate_json,
    "manifest": mutate_manifest,
    "tensors": mutate_tensors,
    "table": mutate_table,
    "parquet": mutate_parquet,
    "hdf5": mutate_hdf5,
    "toml": _mutate_toml,
    "text": _mutate_text,
    "npz": mutate_npz,
}

"""Mutations of JSON: in a file, in a manifest, in the header of safetensors."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**9,
    10**12,
    10**18,
    10**400,
    -(10**18),
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "evil:family",
    "evil.module:thing",
    "../../../../etc/passwd",
    "/dev/zero",
    "s3://bucket/x?endpoint_override=127.0.0.1:9",
    "a\0b",
    "\ud800",
    "٣",
    [],
    {},
    [[]],
    [None],
    {"": ""},
    ["x"] * 100,
    [1e308, 1e-308],
    [float("nan"), float("nan")],
    [2.0, -2.0],
)


def edit_json(value: Any, rng: random.Random) -> Any:
    """One value somewhere replaced, removed, renamed or added."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, inner in items:
            places.append((node, key))
            if isinstance(inner, dict | list):
                walk(inner)

    if not isinstance(value, dict | list) or rng.random() < 0.02:
        return rng.choice(HOSTILE)
    walk(value)
    if not places:
        return rng.choice(HOSTILE)
    node, key = rng.choice(places)
    made = rng.randrange(5)
    if made == 0:
        del node[key]
    elif made == 1 and isinstance(node, dict):
        node[rng.choice(("", "x", "checksum", "graphs", "files"))] = node.pop(key)
    elif made == 2 and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = rng.choice(HOSTILE)
    return value


def strange_json(text: str, rng: random.Random) -> str:
    """Text that a parser of JSON stumbles over."""
    number = rng.choice(("9" * 5000, "1e999", "NaN", "-Infinity", "[" * 100_000, '{"a":' * 50_000))
    numbers = [place for place, letter in enumerate(text) if letter.isdigit()]
    if not numbers or rng.random() < 0.2:
        return number
    place = rng.choice(numbers)
    return text[:place] + number + text[place + 1 :]


def mutate_json(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    """A value edited, with the old checksum or a right one."""
    from sept_offline.seals import sealed_json

    value = json.loads(content)
    if rng.random() < 0.1:
        return strange_json(content.decode(), rng).encode(), False
    if rng.random() < 0.5:
        return json.dumps(edit_json(value, rng), indent=2).encode(), False
    value.pop("checksum", None)
    edited = edit_json(value, rng)
    if not isinstance(edited, dict):
        return json.dumps(edited).encode(), True
    return sealed_json(edited, sort_keys="weights_sha256" in edited).encode(), True


def mutate_manifest(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    """The same of the manifest of a partitioned dataset."""
    from sept_offline.data.source import canonical_json

    value = json.loads(content)
    if rng.random() < 0.3:
        return strange_json(content.decode(), rng).encode(), False
    if rng.random() < 0.4:
        return json.dumps(edit_json(value, rng)).encode(), False
    value.pop("sha256", None)
    edited = edit_json(value, rng)
    text = canonical_json(edited)
    if isinstance(edited, dict):
        edited["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        text = canonical_json(edited)
    return text.encode(), True


def mutate_tensors(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    """The header of a safetensors file edited, its length made right."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(edit_json(header, rng)).encode()
    if rng.random() < 0.2:
        text = strange_json(text.decode(), rng).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :], False

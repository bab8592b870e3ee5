"""What becomes of an input, and how outcomes are counted."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass

WRONG = (
    "different",
    "traceback",
    "hang",
    "memory",
    "crash",
    "executed",
    "contacted",
)
"""Outcomes that are never right, in the order of the table."""
RIGHT = ("refused", "same", "edited", "warned", "no checksum")
Counts = Mapping[str, collections.Counter[str]]


@dataclass(frozen=True)
class Finding:
    """What became of one input with one reader."""

    number: int
    kind: str
    outcome: str
    words: str = ""


def tabulate(counts: Counts) -> str:
    """Kinds down, outcomes across."""
    outcomes = [
        name
        for name in (*RIGHT, *WRONG)
        if any(own[name] for own in counts.values()) or name in WRONG
    ]
    lines = [f"{'kind':42}" + "".join(f"{name:>12}" for name in outcomes)]
    total: collections.Counter[str] = collections.Counter()
    for kind, own in sorted(counts.items()):
        lines.append(f"{kind:42}" + "".join(f"{own[name]:>12,}" for name in outcomes))
        total.update(own)
    lines.append(f"{'all':42}" + "".join(f"{total[name]:>12,}" for name in outcomes))
    return "\n".join(lines)

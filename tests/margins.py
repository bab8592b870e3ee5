"""Keeps how far each learned quantity of a test stays from its bound."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

SIGNS = {"below": "<", "above": ">", "at_most": "<=", "at_least": ">="}


@dataclass(frozen=True)
class Record:
    """One quantity of one test."""

    name: str
    value: float
    sign: str
    """`<`, `>`, `<=` or `>=`."""
    bound: float

    @property
    def holds(self) -> bool:
        return {
            "<": self.value < self.bound,
            ">": self.value > self.bound,
            "<=": self.value <= self.bound,
            ">=": self.value >= self.bound,
        }[self.sign]

    @property
    def room(self) -> float:
        """The distance to the bound as a share of it, negative on the wrong side."""
        distance = self.value - self.bound
        if self.sign in ("<", "<="):
            distance = -distance
        return distance / (abs(self.bound) or 1.0)

    def __str__(self) -> str:
        return f"{self.name} is {self.value:.5g}, expected {self.sign} {self.bound:.5g}"


@dataclass
class Margins:
    """What a learning test calls instead of `assert`: the quantity is kept, then the test decided.

    A quantity whose bound is missed is kept as well, and every one before it.
    """

    records: list[Record] = field(default_factory=list)

    def __call__(
        self,
        name: str,
        value: float,
        *,
        below: float | None = None,
        above: float | None = None,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        bounds = {"below": below, "above": above, "at_most": at_most, "at_least": at_least}
        asked = [
            Record(name, float(value), SIGNS[kind], float(bound))
            for kind, bound in bounds.items()
            if bound is not None
        ]
        assert asked, f"{name} has no bound"
        self.records += asked
        for record in asked:
            assert record.holds, str(record)


def append(
    path: Path, *, test: str, seed: int, outcome: str, seconds: float, records: list[Record]
) -> None:
    """Add one line for one test."""
    line = {
        "test": test,
        "seed": seed,
        "outcome": outcome,
        "seconds": round(seconds, 2),
        "margins": [
            [r.name, float(f"{r.value:.6g}"), r.sign, r.bound, float(f"{r.room:.3g}")]
            for r in records
        ],
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")

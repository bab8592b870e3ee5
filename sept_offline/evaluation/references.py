"""Normalised returns per instance: between random actions and the best known return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sept_offline.errors import FamilyError
from sept_offline.family import Family, Hidden
from sept_offline.seals import read_json

LEAST_DIFFERENCE = 0.05
"""Share of |reference|: instances in which skill changes the return by less are not scored."""


@dataclass(frozen=True)
class Reference:
    """Two returns of one instance, of episodes of the family's test limit."""

    random: float
    random_se: float
    reference: float
    source: str
    """The policy behind `reference`: double_dqn, double_dqn:episode or constant:<action>."""


@dataclass(frozen=True)
class References:
    """The references of a family, found by an instance's hidden parameters."""

    steps: int
    """The limit they were made with; they say nothing of other ones."""
    table: Mapping[tuple[tuple[str, float], ...], Reference]

    def of(self, hidden: Hidden) -> Reference | None:
        """The reference of the instance with exactly these parameters, if there is one."""
        return self.table.get(_key(hidden))


def load_references(family: Family) -> References | None:
    """The references that `family` ships; None if it ships none."""
    if family.references is None:
        return None
    path = family.references
    content = read_json(path, FamilyError)
    if not isinstance(content, dict) or not isinstance(content.get("steps"), int):
        raise FamilyError(f"{path} is damaged: expected an object with an integer 'steps'.")
    table = {}
    for split, entries in content.items():
        if not isinstance(entries, list):
            continue
        for index, entry in enumerate(entries):
            if entry is None:  # not yet made
                continue
            try:
                hidden, reference = _read(entry)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                raise FamilyError(
                    f"{path} is damaged: instance {split}-{index} needs hidden, random, random_se, "
                    f"reference and source ({problem})."
                ) from problem
            table[_key(hidden)] = reference
    return References(content["steps"], table)


def normalise(value: float, random: float, reference: float) -> float | None:
    """(value − random)/(reference − random); None where the two differ by less than 5 %."""
    difference = reference - random
    if difference == 0 or abs(difference) < LEAST_DIFFERENCE * abs(reference):
        return None
    return (value - random) / difference


def _key(hidden: Hidden) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((name, float(value)) for name, value in hidden.items()))


def _read(entry: Any) -> tuple[Hidden, Reference]:
    numbers = {name: float(entry[name]) for name in ("random", "random_se", "reference")}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"found {numbers}")
    hidden = {str(name): float(value) for name, value in entry["hidden"].items()}
    return hidden, Reference(
        random=numbers["random"],
        random_se=numbers["random_se"],
        reference=numbers["reference"],
        source=str(entry["source"]),
    )

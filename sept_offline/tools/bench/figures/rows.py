"""The tables of a bench as figures take them: by family, and at the variant that is its base."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sept_offline.tools.bench.plan import BASE, COMMA
from sept_offline.tools.bench.store import TABLES, grouped, read_table

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """The rows of the four tables."""

    results: list[Row]
    cells: list[Row]
    training: list[Row]
    latents: list[Row]

    def part(self, **wanted: str) -> Bench:
        """The rows whose columns are as wanted, in every table."""
        tables = (getattr(self, name) for name in TABLES)
        return Bench(*([row for row in rows if wanted.items() <= row.items()] for rows in tables))


@dataclass(frozen=True)
class Study:
    """One family of a bench with one preset: the rows, and which variant is the base."""

    family: str
    preset: str
    base: str
    rows: Bench
    first: bool = True
    """Whether the family's other presets come after this one."""

    def at(self, variant: str) -> Bench:
        """The rows of a variant."""
        return Bench(*(rows.get((variant,), []) for rows in self._by_variant))

    @cached_property
    def _by_variant(self) -> list[dict[tuple[Any, ...], list[Row]]]:
        """The tables, gone through once: they have many rows, and there are many figures."""
        return [grouped(getattr(self.rows, name), "variant") for name in TABLES]

    @property
    def name(self) -> str:
        """What its files are named after."""
        return self.family if self.first else f"{self.family}-{self.preset}"

    @property
    def title(self) -> str:
        """The family, with the preset and the base where they are not the usual ones."""
        more = [self.preset] if self.preset != "default" else []
        more += [self.base] if self.base != BASE else []
        return f"{self.family} ({', '.join(more)})" if more else self.family


def read_bench(out: Path) -> Bench:
    """The four tables in `out`."""
    return Bench(*(list[Row](read_table(out, name)) for name in TABLES))


def settings_of(variant: str) -> tuple[str, ...]:
    """The settings that make a variant, in order; the base has none."""
    return () if variant == BASE else tuple(COMMA.split(variant))


def studies(bench: Bench) -> list[Study]:
    """A study per family and preset; its base is the variant with the fewest settings."""
    studies = []
    for family in sorted({row["family"] for row in bench.cells}):
        whole = bench.part(family=family)
        presets = {row["preset"] for row in whole.cells}
        for place, preset in enumerate(sorted(presets, key=lambda name: (name != "default", name))):
            rows = whole.part(preset=preset)
            variants = {row["variant"] for row in rows.cells}
            base = min(variants, key=lambda name: (len(settings_of(name)), name))
            studies.append(Study(family, preset, base, rows, first=place == 0))
    return studies


def by_method(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each method."""
    return {method: group for (method,), group in grouped(rows, "method").items()}

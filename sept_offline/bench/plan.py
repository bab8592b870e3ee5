"""Which cells a bench has: family × method × preset × variant × seed, in the order they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sept_offline.bench.store import file_name
from sept_offline.bench.variants import AXES, Variant, make_variants
from sept_offline.collect.recipe import parse_behaviour
from sept_offline.config import build, merge
from sept_offline.errors import ConfigError
from sept_offline.family import Family, family_names, load_family, suggest
from sept_offline.methods import METHODS, FitConfig
from sept_offline.methods.config import preset_values


@dataclass(frozen=True)
class Cell:
    """One training seed of one method: what is fitted, on which logs."""

    spec: str
    """The family as it was named: registered, or package.module:object."""
    family: str
    method: str
    preset: str
    variant: Variant
    seed: int
    data_seed: int

    @property
    def name(self) -> str:
        """What tells it from all others; its file's name."""
        return file_name(self.family, self.method, self.preset, self.variant.name, self.seed)

    def row(self) -> dict[str, Any]:
        """The columns by which every table names it."""
        return {
            "family": self.family,
            "method": self.method,
            "preset": self.preset,
            "variant": self.variant.name,
            "data_seed": self.data_seed,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Plan:
    """All cells of a bench, and how their agents are tested."""

    cells: tuple[Cell, ...]
    split: str = "test"
    episodes: int | None = None
    """Test episodes of a cell, at least; one an instance where None."""


def make_plan(
    families: Sequence[str] = (),
    methods: Sequence[str] = (),
    *,
    seeds: int = 5,
    preset: str = "default",
    vary: Iterable[str] = (),
    settings: Iterable[str] = (),
    quick: bool = False,
    data_seeds: int = 2,
    split: str = "test",
    episodes: int | None = None,
) -> Plan:
    """The cells of all that is named; all registered families and all methods where none is.

    Seed s learns from logs of collection seed s mod `data_seeds`: more seeds later leave the cells
    of the first ones as they are, and methods with few seeds still pair with those that have many.
    Seeds come outermost, so that a bench that is stopped has compared everything equally often.
    """
    for name, value in (("seeds", seeds), ("data_seeds", data_seeds)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; expected at least 1.")
    specs = list(dict.fromkeys(families)) or family_names()
    records = [load_family(spec) for spec in specs]
    names = [record.name for record in records]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two of the families are named {name!r}; run one of them at a time.")
    chosen = list(dict.fromkeys(methods)) or list(METHODS)
    for method in chosen:
        if method not in METHODS:
            raise ConfigError(
                f"There is no method {method!r}{suggest(method, METHODS)}; known are "
                f"{', '.join(sorted(METHODS))}."
            )
    variants = make_variants(vary, settings, quick)
    for record in records:
        record.instances(split)
        for variant in variants:
            _check(record, preset, variant)
    cells = [
        Cell(spec, record.name, method, preset, variant, seed, seed % data_seeds)
        for seed in range(seeds)
        for variant in variants
        for spec, record in zip(specs, records, strict=True)
        for method in chosen
    ]
    return Plan(tuple(cells), split, episodes)


def _check(family: Family, preset: str, variant: Variant) -> None:
    """Refuse a setting that does not exist before hours are spent on others."""
    known = [*AXES, *(field.name for field in fields(FitConfig))]
    for key in variant.settings:
        if key not in known:
            raise ConfigError(
                f"There is no axis or setting {key!r}{suggest(key, known)}; known are "
                f"{', '.join(sorted(known))}."
            )
    said = {"probe_steps": family.probe_steps}
    build(FitConfig, merge(said, preset_values(family.name, preset), variant.settings))
    if variant.data.behaviour is not None:
        parse_behaviour(variant.data.behaviour)
    count, wanted = len(family.instances("train")), variant.data.instances
    if wanted is not None and wanted > count:
        raise ConfigError(
            f"Family {family.name!r} has {count} training instances; {wanted} were asked for."
        )

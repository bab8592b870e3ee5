"""The plan of a bench: variants of settings, and cells in the order they run.

A cell is a family × method × preset × variant × seed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from sept_offline.collect.recipe import parse_behaviour
from sept_offline.data import Dataset, load_dataset
from sept_offline.errors import ConfigError, FamilyError
from sept_offline.family import Family, family_names, load_family, registered_family, suggest
from sept_offline.methods import METHODS
from sept_offline.methods.preset import preset_values
from sept_offline.settings import FitConfig, build, merge, parse_settings, read_toml
from sept_offline.tools.bench.store import file_name

BASE = "base"
"""The variant without changed settings."""
QUICK = Path(__file__).with_name("quick.toml")
AXES = ("behaviour", "episodes", "instances", "propensities")
"""Axes of the data; every setting of `fit` is an axis too, `probe_steps` of both."""
BEHAVIOURS = {"mixed": "random:0.5,replay:0.5"}
"""Short names of mixtures; others are written with a plus: random:0.3+expert:0.7."""
# A comma inside brackets belongs to a value, such as control.hidden=[32,32].
COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class DataSettings:
    """Settings of the logs: how they are collected, and which part of them a fit reads."""

    behaviour: str | None = None
    """The recipe's where None; so too `total` (episodes in all) and `probe_steps`."""
    total: int | None = None
    probe_steps: int | None = None
    """Random first steps of an episode, where the recipe has fewer."""
    episodes: int | None = None
    """Episodes per instance; all where None."""
    instances: int | None = None
    """Training instances, spread evenly over the list; all where None."""
    propensities: Literal["exact", "estimated"] = "exact"

    def __post_init__(self) -> None:
        """Raise for a value out of range."""
        least = {"total": 1, "probe_steps": 1, "episodes": 2, "instances": 2}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is {value}; expected at least {low}.")


@dataclass(frozen=True)
class Variant:
    """Settings that override those of the preset and the recipe, under one name."""

    name: str = BASE
    data: DataSettings = field(default_factory=DataSettings)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the fit, nested as in `FitConfig`."""
    test_instances: int | None = None
    """Number of test instances, from the start of the split; all where None."""

    def but(self, setting: str) -> Variant:
        """This variant with one more `key=value`, which is added to its name."""
        values = parse_settings([setting])
        key, value = next(iter(values.items()))
        data, settings = self.data, self.settings
        if key == "behaviour":
            text = str(value).replace("+", ",")
            data = replace(data, behaviour=BEHAVIOURS.get(text, text))
        elif key in AXES or key == "probe_steps":
            data = build(DataSettings, vars(data) | {key: value})
        if key not in AXES:
            settings = merge(settings, values)
        shown = setting.replace(" ", "")
        name = shown if self.name == BASE else f"{self.name},{shown}"
        return replace(self, name=name, data=data, settings=settings)


def quick_variant() -> Variant:
    """Budgets so small that everything can be tried in minutes; its figures mean nothing."""
    values = read_toml(QUICK)
    return Variant(
        "quick", build(DataSettings, values["data"]), values["settings"], values["instances"]
    )


def make_variants(
    vary: Iterable[str] = (), settings: Iterable[str] = (), quick: bool = False
) -> list[Variant]:
    """The base updated by `settings`, then a variant for each value of each axis of `vary`."""
    base = quick_variant() if quick else Variant()
    for setting in settings:
        base = base.but(setting)
    variants = [base]
    for axis in vary:
        key, sign, values = axis.partition("=")
        if not sign or not key.strip() or not values.strip():
            raise ConfigError(f"{axis!r} is not of the form name=value1,value2.")
        for value in COMMA.split(values):
            variants.append(base.but(f"{key.strip()}={value.strip()}"))
    names = [variant.name for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"The variant {name!r} is given twice.")
    return variants


@dataclass(frozen=True)
class Cell:
    """One training seed of one method on one dataset."""

    spec: str
    """The family as it was named: registered, or package.module:object."""
    family: str
    method: str
    preset: str
    variant: Variant
    seed: int
    data_seed: int
    dataset: Path | None = None
    """Logs that were given; collected by recipe where None."""

    @property
    def name(self) -> str:
        """Its unique name, which is also the name of its file."""
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
    """Minimum test episodes per cell; one per instance where None."""


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
    datasets: Sequence[str | Path] = (),
) -> Plan:
    """The cells of the named families and methods; of all registered ones by default.

    `datasets` are logs to learn from in place of collected ones, each a path, or `family=path`
    where the logs do not name their family. Without families, those of the datasets are used, if
    they are registered: a name in a file is never imported.

    Seed s learns from logs of collection seed s mod `data_seeds`: more seeds later leave the cells
    of the first ones as they are, and methods with few seeds still pair with those that have many.
    Seeds come outermost, so that a bench that is stopped has compared everything equally often.
    """
    for name, value in (("seeds", seeds), ("data_seeds", data_seeds)):
        if value < 1:
            raise ConfigError(f"{name} is {value}; expected at least 1.")
    vary, settings = list(vary), list(settings)
    given = _given_logs(datasets)
    if given and any(text.partition("=")[0].strip() == "behaviour" for text in [*vary, *settings]):
        raise ConfigError(
            "The behaviour of given logs cannot be chosen; leave out behaviour, or the dataset."
        )
    usual = [name for name in family_names() if registered_family(name).benched]
    specs = list(dict.fromkeys(families)) or list(given) or usual
    records = [load_family(spec) if families else registered_family(spec) for spec in specs]
    names = [record.name for record in records]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two of the families are named {name!r}; run one of them at a time.")
    for name, path in given.items():
        if name not in names:
            raise ConfigError(
                f"{path} holds logs of {name!r}, which is not one of the families "
                f"{', '.join(names)}; add it to --families, or give family=path if the logs "
                "are of another family."
            )
    chosen = list(dict.fromkeys(methods)) or list(METHODS)
    for method in chosen:
        if method not in METHODS:
            raise ConfigError(
                f"There is no method {method!r}{suggest(method, METHODS)}; expected one of "
                f"{', '.join(sorted(METHODS))}."
            )
    variants = make_variants(vary, settings, quick)
    for record in records:
        if not record.instances(split):
            raise FamilyError(f"Split {split!r} of family {record.name!r} has no instances.")
        for variant in variants:
            _check(record, preset, variant, given.get(record.name))
    cells = [
        Cell(
            *(spec, record.name, method, preset, variant, seed),
            data_seed=0 if record.name in given else seed % data_seeds,
            dataset=given.get(record.name),
        )
        for seed in range(seeds)
        for variant in variants
        for spec, record in zip(specs, records, strict=True)
        for method in chosen
    ]
    return Plan(tuple(cells), split, episodes)


def _given_logs(datasets: Sequence[str | Path]) -> dict[str, Path]:
    """The given logs by their family's name."""
    paths: dict[str, Path] = {}
    for dataset in datasets:
        name, sign, rest = str(dataset).partition("=")
        # A path may hold the sign too; one that is there is a path.
        named = bool(sign) and not Path(dataset).exists()
        path = Path(rest if named else dataset).absolute()
        with load_dataset(path) as data:
            family = name.strip() if named else data.metadata.family
        if not family:
            raise ConfigError(
                f"{path} does not say which family its logs are of; give it as family={dataset}."
            )
        if family in paths:
            raise ConfigError(
                f"Two datasets are given for {family!r}, {paths[family]} and {path}; run one at a "
                "time, each with its own --out."
            )
        paths[family] = path
    return paths


def _check(family: Family, preset: str, variant: Variant, given: Path | None) -> None:
    """Raise for an unknown setting before any cell is run."""
    known = [*AXES, *(setting.name for setting in fields(FitConfig))]
    for key in variant.settings:
        if key not in known:
            raise ConfigError(
                f"There is no axis or setting {key!r}{suggest(key, known)}; expected one of "
                f"{', '.join(sorted(known))}."
            )
    usual = {"probe_steps": family.probe_steps}
    build(FitConfig, merge(usual, preset_values(family.name, preset), variant.settings))
    if variant.data.behaviour is not None:
        parse_behaviour(variant.data.behaviour)
    if given is not None:
        with load_dataset(given) as data:
            _check_given(data, given, variant)
        return
    count, wanted = len(family.instances("train")), variant.data.instances
    if wanted is not None and wanted > count:
        raise ConfigError(
            f"Family {family.name!r} has {count} training instances, fewer than the {wanted} "
            "requested."
        )


def _check_given(data: Dataset, path: Path, variant: Variant) -> None:
    """Raise if a variant needs more logs than are given."""
    wanted = vars(variant.data)
    fewest = min(len(data.episodes(name)) for name in data.instances)
    for axis, there in (("instances", len(data.instances)), ("episodes", fewest)):
        if wanted[axis] is not None and wanted[axis] > there:
            of = " in its smallest instance" if axis == "episodes" else ""
            raise ConfigError(
                f"{path} has {there} {axis}{of}, fewer than the {wanted[axis]} requested."
            )

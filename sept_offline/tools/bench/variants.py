"""Variants of a cell: settings of the data and of the fit under one name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sept_offline.errors import ConfigError
from sept_offline.settings import build, merge, parse_settings, read_toml

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
    """What the logs are: how they are collected, and what is left of them before a fit."""

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
        elif key in AXES:
            data = merge_data(data, {key: value})
        else:
            settings = merge(settings, values)
            if key == "probe_steps":
                data = merge_data(data, {key: value})
        shown = setting.replace(" ", "")
        name = shown if self.name == BASE else f"{self.name},{shown}"
        return replace(self, name=name, data=data, settings=settings)


def merge_data(data: DataSettings, values: Mapping[str, Any]) -> DataSettings:
    """`data` updated by `values`; a wrong type or range is an error that names it."""
    return build(DataSettings, vars(data) | dict(values))


def quick_variant() -> Variant:
    """Budgets so small that everything can be tried in minutes; its figures mean nothing."""
    values = read_toml(QUICK)
    return Variant(
        "quick", merge_data(DataSettings(), values["data"]), values["settings"], values["instances"]
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

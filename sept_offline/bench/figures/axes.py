"""What a bench varied, value by value, with the base at the value that it has itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sept_offline.bench.figures.look import ordered
from sept_offline.bench.figures.rows import Bench, Study, by_method, settings_of
from sept_offline.bench.statistics import complete, crossed_interval, grid
from sept_offline.bench.variants import quick_variant
from sept_offline.collect import load_recipe
from sept_offline.errors import SeptError
from sept_offline.family import known_family

UNKNOWN = "the recipe's"


@dataclass(frozen=True)
class Point:
    """A method at a value of an axis: its mean, and its interval over its seeds; one has none."""

    method: str
    value: str
    base: bool
    mean: float
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True)
class Axis:
    """A setting that was varied, its values in the order they are shown, and the points."""

    name: str
    values: tuple[str, ...]
    base: str
    points: tuple[Point, ...]

    @property
    def numeric(self) -> bool:
        """Whether the values have places of their own on a scale."""
        return all(number(value) is not None for value in self.values)

    def of(self, method: str) -> list[Point]:
        """The points of a method, along the axis."""
        own = [point for point in self.points if point.method == method]
        return sorted(own, key=lambda point: self.values.index(point.value))

    @property
    def methods(self) -> list[str]:
        """The methods that were varied."""
        return ordered(point.method for point in self.points)


def varied(study: Study) -> dict[str, dict[str, str]]:
    """The variants that are the base with one setting more: by axis, then by value."""
    base, found = settings_of(study.base), dict[str, dict[str, str]]()
    for variant in sorted({row["variant"] for row in study.rows.cells}):
        settings = settings_of(variant)
        if len(settings) == len(base) + 1 and settings[:-1] == base and "=" in settings[-1]:
            name, _, value = settings[-1].partition("=")
            found.setdefault(name, {}).setdefault(plain(value), variant)
    return found


def make_axis(study: Study, name: str, column: str) -> Axis | None:
    """`column` of the test episodes along the axis; None where there is nothing to compare."""
    variants, base = varied(study).get(name, {}), base_value(study, name)
    points = [
        point
        for value, variant in variants.items()
        for point in _points(study.at(variant), value, column, base=False)
    ]
    methods = {point.method for point in points}
    for own in _points(study.at(study.base), base, column, base=True):
        twin = next((p for p in points if (p.method, p.value) == (own.method, base)), None)
        if own.method not in methods or (twin is not None and twin.seeds > own.seeds):
            continue
        points = [point for point in points if point is not twin] + [own]
    values = _in_order({point.value for point in points}, base)
    if len(values) < 2:
        return None
    return Axis(name, values, base, tuple(points))


def score_of(study: Study) -> str:
    """The column that compares instances best: the share of what is achievable, where known."""
    known = any(row["normalised"] is not None for row in study.at(study.base).results)
    return "normalised" if known else "return"


def base_value(study: Study, name: str) -> str:
    """The value that the base has of an axis itself, as one would write it to vary it."""
    said = dict(text.split("=", 1) for text in settings_of(study.base) if "=" in text)
    if name in said:
        return plain(said[name])
    rows = study.at(study.base)
    if name == "behaviour":
        return _behaviour(study)
    if name == "propensities":
        return "estimated" if any(row["behaviour_estimated"] for row in rows.cells) else "exact"
    if name == "instances":
        return str(_instances(study) or UNKNOWN)
    if name == "episodes":
        instances, episodes = _instances(study), _episodes(study)
        return f"{episodes / instances:g}" if instances and episodes else UNKNOWN
    return _setting(rows, name)


def number(text: str) -> float | None:
    """The number that a value is; None where it is a word."""
    try:
        return float(text)
    except ValueError:
        return None


def plain(text: str) -> str:
    """A value as all figures write it: 1.0 and 1 are one place on an axis."""
    value = number(text)
    return text if value is None else f"{value:g}"


def _points(rows: Bench, value: str, column: str, *, base: bool) -> list[Point]:
    found = []
    for method, own in by_method(rows.results).items():
        there = complete(grid(own, column)[2])
        if there.size:
            low, high = crossed_interval(there) or (None, None)
            found.append(Point(method, value, base, float(there.mean()), low, high, len(there)))
    return found


def _in_order(values: set[str], base: str) -> tuple[str, ...]:
    """Numbers by size, words by name and the base's first where it is one."""
    if all(number(value) is not None for value in values):
        return tuple(sorted(values, key=float))
    return tuple(sorted(values, key=lambda value: (value != base, number(value) or 0.0, value)))


def _behaviour(study: Study) -> str:
    quick = quick_variant()
    if quick.name in settings_of(study.base) and quick.data.behaviour:
        return quick.data.behaviour
    try:
        return load_recipe(known_family(study.family)).behaviour.replace(",", "+")
    except SeptError:
        return UNKNOWN


def _instances(study: Study) -> int | None:
    """How many the base learns from: all that have latents, else all that the family has."""
    encoded = {row["instance"] for row in study.at(study.base).latents}
    if encoded:
        return len(encoded)
    try:
        family = known_family(study.family)
        return len(family.instances(load_recipe(family).instances))
    except SeptError:
        return None


def _episodes(study: Study) -> int | None:
    """How many the base learns from in all, by what its agents recorded, else by the recipe."""
    for cell in study.at(study.base).cells:
        ranges: Sequence[Any] = json.loads(cell["record"]).get("fitted_on", {}).get("episodes", ())
        if ranges:
            return sum(int(end) - int(first) for first, end in ranges)
    try:
        return load_recipe(known_family(study.family)).episodes
    except SeptError:
        return None


def _setting(rows: Bench, name: str) -> str:
    """A setting of the fit, from what the cells resolved."""
    value: Any = json.loads(rows.cells[0]["config"]) if rows.cells else {}
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, int | float) else json.dumps(value).replace(" ", "")

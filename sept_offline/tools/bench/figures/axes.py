"""Figures of settings that a bench varied: the score at each value, the base among them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sept_offline.collect import load_recipe
from sept_offline.errors import SeptError
from sept_offline.family import known_family
from sept_offline.tools.bench.figures.figure import (
    RESAMPLED,
    Figure,
    Intervals,
    Missing,
    Panel,
    Picture,
    Scale,
    ordered,
    seeds_caption,
    short,
    style_of,
)
from sept_offline.tools.bench.figures.rows import Bench, Study, by_method, settings_of
from sept_offline.tools.bench.plan import quick_variant
from sept_offline.tools.bench.statistics import complete, crossed_interval, grid

AXES = {
    "probe_steps": "Tₚ, steps of the probe",
    "latent.dim": "dim(z)",
    "behaviour": "behaviour that was logged",
    "episodes": "episodes of each instance",
    "instances": "training instances",
    "propensities": "propensities",
}
"""Axes that every bench should vary, and their labels; others are drawn if varied."""
OTHERS = {"latent.beta": "β"}
RETURNS = ("probe_steps", "latent.dim")
"""Axes along which the paper shows the cumulative reward."""
COLUMNS = {"return": "cumulative reward", "normalised": "share of the achievable"}
UNKNOWN = "the recipe's"
WIDE = 25.0
"""Ratio of the largest value to the smallest above which an axis is logarithmic."""
DODGE = 0.07
"""Offset between methods at the same word, as a share of the distance of two words."""


@dataclass(frozen=True)
class Point:
    """A method at a value of an axis: its mean and its interval, None for a single seed."""

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
        """Whether all values are numbers on a scale."""
        return all(number(value) is not None for value in self.values)

    def of(self, method: str) -> list[Point]:
        """The points of a method, along the axis."""
        points = [point for point in self.points if point.method == method]
        return sorted(points, key=lambda point: self.values.index(point.value))

    @property
    def methods(self) -> list[str]:
        """The methods that were varied."""
        return ordered(point.method for point in self.points)


def axis_pictures(study: Study) -> Iterator[Picture | Missing]:
    """A figure per axis: those that every bench should vary, then the others that were."""
    variants = varied(study)
    for name in [*AXES, *sorted(set(variants) - set(AXES))]:
        column = "return" if name in RETURNS else score_of(study)
        axis = make_axis(study, name, column) if name in variants else None
        kind = f"against-{name.replace('_', '-').replace('.', '-')}"
        if axis is None:
            yield Missing(kind, study.family, f"variants {name}=…")
            continue
        highest = []
        for method in axis.methods:
            top = max(axis.of(method), key=lambda point: point.mean)
            highest.append(f"{style_of(method).title} at {top.value} ({short(top.mean)})")
        seeds = seeds_caption((point.method, point.seeds) for point in axis.points)
        across, label = (AXES | OTHERS).get(name, name), COLUMNS[column]
        yield Picture(
            f"{kind}-{study.name}",
            f"{study.title}: {label} against {across}. Highest: {', '.join(highest)}. The hollow "
            f"points are the base, at {axis.base}; bars are {RESAMPLED}. {seeds}",
            axis_figure(study.title, axis, label, across),
        )


def varied(study: Study) -> dict[str, dict[str, str]]:
    """The variants that are the base with one setting more: by axis, then by value."""
    base = settings_of(study.base)
    variants: dict[str, dict[str, str]] = {}
    for variant in sorted({row["variant"] for row in study.rows.cells}):
        settings = settings_of(variant)
        if len(settings) == len(base) + 1 and settings[:-1] == base and "=" in settings[-1]:
            name, _, value = settings[-1].partition("=")
            variants.setdefault(name, {}).setdefault(plain(value), variant)
    return variants


def make_axis(study: Study, name: str, column: str) -> Axis | None:
    """`column` of the test episodes along the axis; None where there is nothing to compare."""
    variants, base = varied(study).get(name, {}), base_value(study, name)
    points = [
        point
        for value, variant in variants.items()
        for point in _points(study.at(variant), value, column, base=False)
    ]
    methods = {point.method for point in points}
    for at_base in _points(study.at(study.base), base, column, base=True):
        twin = next((p for p in points if (p.method, p.value) == (at_base.method, base)), None)
        if at_base.method not in methods or (twin is not None and twin.seeds > at_base.seeds):
            continue
        points = [point for point in points if point is not twin] + [at_base]
    values = _in_order({point.value for point in points}, base)
    if len(values) < 2:
        return None
    return Axis(name, values, base, tuple(points))


def axis_figure(title: str, axis: Axis, label: str, across: str) -> Figure:
    """A line per method along the axis, with intervals; the points of the base are hollow."""
    places = {value: float(place) for place, value in enumerate(axis.values)}
    limits: tuple[float, float] | None = (-0.5, len(places) - 0.5)
    log = False
    if axis.numeric:
        places, limits = {value: float(value) for value in axis.values}, None
        smallest, largest = places[axis.values[0]], places[axis.values[-1]]
        log = smallest > 0 and largest > WIDE * smallest
    marks = []
    for rank, method in enumerate(axis.methods):
        style, points = style_of(method), axis.of(method)
        aside = 0.0 if axis.numeric else DODGE * (rank - (len(axis.methods) - 1) / 2)
        bounds = [(point.low, point.high) for point in points]
        low, high = np.array(bounds, dtype=np.float64).T  # None becomes NaN
        marks.append(
            Intervals(
                style.title,
                np.array([places[point.value] + aside for point in points]),
                np.array([point.mean for point in points]),
                low,
                high,
                hollow=[point.base for point in points],
                notes=[f"{point.value}, {point.seeds} seeds" for point in points],
                colour=style.colour,
                dash=style.dash,
                method=method,
                joined=axis.numeric,
            )
        )
    ticks = [(place, value) for value, place in places.items()]
    panel = Panel(marks, Scale(across, ticks, limits, log), Scale(label))
    return Figure(title, [panel], legend=[mark.name for mark in marks])


def score_of(study: Study) -> str:
    """The column to compare instances by: the share of the achievable return, if known."""
    known = any(row["normalised"] is not None for row in study.at(study.base).results)
    return "normalised" if known else "return"


def base_value(study: Study, name: str) -> str:
    """The value that the base has of an axis itself, as one would write it to vary it."""
    settings = dict(text.split("=", 1) for text in settings_of(study.base) if "=" in text)
    if name in settings:
        return plain(settings[name])
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
    points = []
    for method, episodes in by_method(rows.results).items():
        scores = complete(grid(episodes, column)[2])
        if scores.size:
            low, high = crossed_interval(scores) or (None, None)
            points.append(Point(method, value, base, float(scores.mean()), low, high, len(scores)))
    return points


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
    """The number of training instances of the base: those with latents, else the family's."""
    encoded = {row["instance"] for row in study.at(study.base).latents}
    if encoded:
        return len(encoded)
    try:
        family = known_family(study.family)
        return len(family.instances(load_recipe(family).instances))
    except SeptError:
        return None


def _episodes(study: Study) -> int | None:
    """The number of training episodes of the base, from its agents' records or the recipe."""
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
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}"
    return json.dumps(value).replace(" ", "")

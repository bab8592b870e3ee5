"""Test episodes as curves over their steps: means, and bands that resample seeds and instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sept_offline.tools.bench.figures.figure import Array, Figure, Line, Panel, Scale
from sept_offline.tools.bench.figures.rows import Row
from sept_offline.tools.bench.figures.styles import ordered, style_of
from sept_offline.tools.bench.statistics import crossed_band


@dataclass(frozen=True)
class Curve:
    """Mean and band of a method: x, mean, low and high `[T]`; a single seed may have no band."""

    method: str
    x: Array
    mean: Array
    low: Array | None
    high: Array | None
    seeds: int


def in_order(curves: Iterable[Curve]) -> list[Curve]:
    """The curves in the order in which all figures name the methods."""
    by_method = {curve.method: curve for curve in curves}
    return [by_method[method] for method in ordered(by_method)]


def curves_figure(
    title: str,
    panels: Sequence[tuple[str, Sequence[Curve]]],
    across: str,
    *,
    legend: bool = True,
    panel_height: float = 5.0,
) -> Figure:
    """One panel below another, each a label and its curves; `across` is under the last."""
    shown = ordered(curve.method for _, curves in panels for curve in curves)
    last = len(panels) - 1
    return Figure(
        title,
        [
            Panel(
                [_line(curve) for curve in in_order(curves)],
                Scale(across if place == last else ""),
                Scale(label),
            )
            for place, (label, curves) in enumerate(panels)
        ],
        legend=[style_of(method).title for method in shown] if legend else (),
        panel_height=panel_height,
    )


def _line(curve: Curve) -> Line:
    style = style_of(curve.method)
    return Line(
        style.title,
        curve.x,
        curve.mean,
        curve.low,
        curve.high,
        style.colour,
        style.dash,
        curve.method,
        strong=curve.method == "sept",
    )


def cumulative_reward(row: Row, limit: int) -> Array:
    """`[limit + 1]`: the reward after each step; an ended episode keeps its last value."""
    sums = np.cumsum([0.0, *row["reward"]], dtype=np.float64)[: limit + 1]
    return np.pad(sums, (0, limit + 1 - len(sums)), mode="edge")


def percent_solved(row: Row, limit: int) -> Array:
    """`[limit + 1]`: 100 from the step on that solves the episode, 0 before."""
    solved = np.zeros(limit + 1)
    if row["solved"]:
        solved[row["steps_to_solve"] :] = 100.0
    return solved


def step_curve(
    method: str, rows: Sequence[Row], limit: int, value: Callable[[Row, int], Array]
) -> Curve | None:
    """The mean of `value` over seeds and instances at each step; None where they share none."""
    paths = step_paths(rows, limit, value)
    if not paths.size:
        return None
    low, high = crossed_band(paths) or (None, None)
    mean = paths.mean(axis=(0, 1))
    return Curve(method, np.arange(limit + 1, dtype=np.float64), mean, low, high, len(paths))


def step_paths(rows: Sequence[Row], limit: int, value: Callable[[Row, int], Array]) -> Array:
    """`[S, I, limit + 1]` of the instances that every seed has, episodes of one averaged first."""
    paths: dict[tuple[int, str], list[Array]] = {}
    for row in rows:
        paths.setdefault((row["seed"], row["instance"]), []).append(value(row, limit))
    seeds = sorted({seed for seed, _ in paths})
    instances = sorted({instance for _, instance in paths})
    shared = [name for name in instances if all((seed, name) in paths for seed in seeds)]
    if not shared:
        return np.empty((len(seeds), 0, limit + 1))
    return np.array(
        [[np.mean(paths[seed, name], axis=0) for name in shared] for seed in seeds],
        dtype=np.float64,
    )

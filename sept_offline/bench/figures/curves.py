"""Test episodes as curves over their steps: means, and bands that resample seeds and instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sept_offline.bench.figures.look import ordered
from sept_offline.bench.figures.rows import Row
from sept_offline.bench.statistics import crossed_band

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A line and its band: x, mean, low and high `[T]`, over so many seeds; one may have none."""

    method: str
    x: Array
    mean: Array
    low: Array | None
    high: Array | None
    seeds: int


def in_order(curves: Iterable[Curve]) -> list[Curve]:
    """As all figures name the methods."""
    found = {curve.method: curve for curve in curves}
    return [found[method] for method in ordered(found)]


def cumulative_reward(row: Row, limit: int) -> Array:
    """`[limit + 1]`, after so many steps; an episode that has ended keeps its last value."""
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
    found: dict[tuple[int, str], list[Array]] = {}
    for row in rows:
        found.setdefault((row["seed"], row["instance"]), []).append(value(row, limit))
    seeds = sorted({seed for seed, _ in found})
    instances = sorted({instance for _, instance in found})
    shared = [name for name in instances if all((seed, name) in found for seed in seeds)]
    if not shared:
        return np.empty((len(seeds), 0, limit + 1))
    return np.array(
        [[np.mean(found[seed, name], axis=0) for name in shared] for seed in seeds],
        dtype=np.float64,
    )

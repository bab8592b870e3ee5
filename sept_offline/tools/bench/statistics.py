"""Figures of a method over seeds and instances: means, interquartile means, crossed bootstraps.

All take a grid `[S, I]`, one value per training seed and test instance. Episodes of one seed share
a model, and all seeds play the same instances: the spread within a row or a column says little
about other seeds or other instances. So intervals resample the seeds, and the instances once for
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.seeding import generator

Grid = NDArray[np.float64]
Estimate = Callable[[Grid], Grid]
"""From samples `[B, n]` to one figure each, `[B]`."""
Draws = NDArray[np.int64]

RESAMPLES = 2000
LEVEL = 0.95


def grid(rows: Iterable[Mapping[str, Any]], column: str) -> tuple[list[int], list[str], Grid]:
    """The seeds, the instances and `[S, I]` of a column, episodes of an instance averaged first.

    NaN where a value is missing.
    """
    episodes: dict[tuple[int, str], list[float]] = {}
    seeds: dict[int, None] = {}
    instances: dict[str, None] = {}
    for row in rows:
        seeds[row["seed"]] = None
        instances[row["instance"]] = None
        if row[column] is not None:
            episodes.setdefault((row["seed"], row["instance"]), []).append(float(row[column]))
    values = np.full((len(seeds), len(instances)), np.nan)
    for i, seed in enumerate(sorted(seeds)):
        for j, instance in enumerate(instances):
            played = episodes.get((seed, instance))
            if played:
                values[i, j] = math.fsum(played) / len(played)
    return sorted(seeds), list(instances), values


def complete(values: Grid) -> Grid:
    """The instances `[S, J]` that every seed has a value of."""
    kept: Grid = values[:, ~np.isnan(values).any(axis=0)]
    return kept


def means(samples: Grid) -> Grid:
    """The mean of each row of `[B, n]`."""
    averages: Grid = samples.mean(axis=1)
    return averages


def interquartile_means(samples: Grid) -> Grid:
    """The mean of the middle half of each row of `[B, n]`; values at its edges count in part."""
    count = samples.shape[1]
    ranks = np.arange(count)
    # How much of each value's place [rank, rank + 1] lies between n/4 and 3n/4.
    weights = np.minimum(ranks + 1, 0.75 * count) - np.maximum(ranks, 0.25 * count)
    weights = np.maximum(weights, 0)
    averages: Grid = np.sort(samples, axis=1) @ weights / weights.sum()
    return averages


def standard_error(values: Grid) -> float | None:
    """Standard error of the mean over seeds; None with a single seed."""
    by_seed = values.mean(axis=1)
    return float(by_seed.std(ddof=1) / math.sqrt(len(by_seed))) if len(by_seed) > 1 else None


def resample(seeds: int, instances: int, count: int = RESAMPLES) -> tuple[Draws, Draws]:
    """The seeds `[B, S]` and the instances `[B, I]` of each resample, with replacement."""
    rng = generator(0, "bench", "bootstrap", seeds, instances)
    chosen = rng.integers(seeds, size=(count, seeds))
    return chosen, rng.integers(instances, size=(count, instances))


def quantiles(estimates: Grid) -> Grid:
    """The ends `[2, …]` of the percentile interval, from resamples `[B, …]`."""
    tail = (1 - LEVEL) / 2
    ends: Grid = np.quantile(estimates, [tail, 1 - tail], axis=0)
    return ends


def crossed_interval(
    values: Grid, estimate: Estimate = means, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """The 95 % percentile interval of `estimate` over seeds and instances; None for one seed."""
    seeds, instances = values.shape
    if seeds < 2:
        return None
    chosen, played = resample(seeds, instances, resamples)
    samples = values[chosen[:, :, None], played[:, None, :]].reshape(resamples, -1)
    low, high = quantiles(estimate(samples)).tolist()
    return low, high


def crossed_band(paths: Grid) -> tuple[Grid, Grid] | None:
    """The same interval of the mean at every step of `[S, I, T]`; None for one seed.

    A mean depends only on how often a resample drew each seed and each instance.
    """
    seeds, instances, steps = paths.shape
    if seeds < 2:
        return None
    by_seed, by_instance = map(_counts, resample(seeds, instances), (seeds, instances))
    cells = seeds * instances
    counts = (by_seed[:, :, None] * by_instance[:, None, :]).reshape(-1, cells)
    low, high = quantiles(counts @ paths.reshape(cells, steps) / cells)
    return low, high


def _counts(draws: Draws, kinds: int) -> Draws:
    """How often each of `kinds` was drawn in each resample, `[B, kinds]`."""
    rows = np.arange(len(draws))[:, None] * kinds
    return np.bincount((draws + rows).ravel(), minlength=len(draws) * kinds).reshape(-1, kinds)


def summarise(values: Grid) -> dict[str, Any] | None:
    """Mean, its standard error, IQM and its interval; None where no instance has all seeds.

    A single seed has neither error nor interval.
    """
    shared = complete(values)
    if not shared.size:
        return None
    low, high = crossed_interval(shared, interquartile_means) or (None, None)
    return {
        "mean": float(shared.mean()),
        "se": standard_error(shared),
        "iqm": float(interquartile_means(shared.reshape(1, -1))[0]),
        "low": low,
        "high": high,
        "least": float(shared.mean(axis=1).min()),
        "most": float(shared.mean(axis=1).max()),
        "count": int(shared.size),
    }


def paired(
    rows: list[Mapping[str, Any]], others: list[Mapping[str, Any]], column: str
) -> dict[str, Any] | None:
    """Mean difference by seed and instance, with its interval; None where they share none."""
    seeds, instances, values = grid(rows, column)
    other_seeds, other_instances, theirs = grid(others, column)
    common = [seed for seed in seeds if seed in other_seeds]
    shared = [name for name in instances if name in other_instances]
    if not common or not shared:
        return None
    places = np.ix_([seeds.index(s) for s in common], [instances.index(n) for n in shared])
    other_places = np.ix_(
        [other_seeds.index(s) for s in common], [other_instances.index(n) for n in shared]
    )
    gaps = complete(values[places] - theirs[other_places])
    if not gaps.size:
        return None
    low, high = crossed_interval(gaps) or (None, None)
    return {"mean": float(gaps.mean()), "low": low, "high": high, "seeds": len(common)}

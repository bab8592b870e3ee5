"""Figures of a method over seeds and instances: means, interquartile means, clustered bootstraps.

All take a grid `[S, I]`, one value a training seed and test instance. Episodes of one seed share a
model: their spread says little of what another seed would do, so intervals resample the seeds, and
then the instances within each.
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

RESAMPLES = 2000
LEVEL = 0.95


def grid(rows: Iterable[Mapping[str, Any]], column: str) -> tuple[list[int], list[str], Grid]:
    """The seeds, the instances and `[S, I]` of a column, episodes of an instance averaged first.

    NaN where a value is missing.
    """
    found: dict[tuple[int, str], list[float]] = {}
    seeds: dict[int, None] = {}
    instances: dict[str, None] = {}
    for row in rows:
        seeds[row["seed"]] = None
        instances[row["instance"]] = None
        if row[column] is not None:
            found.setdefault((row["seed"], row["instance"]), []).append(float(row[column]))
    values = np.full((len(seeds), len(instances)), np.nan)
    for i, seed in enumerate(sorted(seeds)):
        for j, instance in enumerate(instances):
            own = found.get((seed, instance))
            if own:
                values[i, j] = math.fsum(own) / len(own)
    return sorted(seeds), list(instances), values


def complete(values: Grid) -> Grid:
    """The instances `[S, J]` that every seed has a value of."""
    kept: Grid = values[:, ~np.isnan(values).any(axis=0)]
    return kept


def means(samples: Grid) -> Grid:
    """The mean of each row of `[B, n]`."""
    found: Grid = samples.mean(axis=1)
    return found


def interquartile_means(samples: Grid) -> Grid:
    """The mean of the middle half of each row of `[B, n]`; values at its edges count in part."""
    count = samples.shape[1]
    ranks = np.arange(count)
    # How much of each value's place [rank, rank + 1] lies between n/4 and 3n/4.
    weights = np.minimum(ranks + 1, 0.75 * count) - np.maximum(ranks, 0.25 * count)
    weights = np.maximum(weights, 0)
    found: Grid = np.sort(samples, axis=1) @ weights / weights.sum()
    return found


def standard_error(values: Grid) -> float | None:
    """Of the mean, from the spread of the seeds' means; None with a single seed."""
    own = values.mean(axis=1)
    return float(own.std(ddof=1) / math.sqrt(len(own))) if len(own) > 1 else None


def clustered_interval(
    values: Grid, estimate: Estimate = means, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """The 95 % percentile interval of `estimate` over seeds, and instances within them."""
    seeds, instances = values.shape
    rng = generator(0, "bench", "bootstrap", seeds, instances)
    chosen = rng.integers(seeds, size=(resamples, seeds, 1))
    within = rng.integers(instances, size=(resamples, seeds, instances))
    samples = values[chosen, within].reshape(resamples, seeds * instances)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(estimate(samples), [tail, 1 - tail])
    return float(low), float(high)


def summarise(values: Grid) -> dict[str, Any] | None:
    """Mean, its standard error, IQM and its interval; None where no instance has all seeds."""
    there = complete(values)
    if not there.size:
        return None
    low, high = clustered_interval(there, interquartile_means)
    return {
        "mean": float(there.mean()),
        "se": standard_error(there),
        "iqm": float(interquartile_means(there.reshape(1, -1))[0]),
        "low": low,
        "high": high,
        "least": float(there.mean(axis=1).min()),
        "most": float(there.mean(axis=1).max()),
        "count": int(there.size),
    }


def paired(
    own: list[Mapping[str, Any]], others: list[Mapping[str, Any]], column: str
) -> dict[str, Any] | None:
    """Mean of own − other by seed and instance, with its interval; None where they share none."""
    seeds, instances, values = grid(own, column)
    other_seeds, other_instances, theirs = grid(others, column)
    common = [seed for seed in seeds if seed in other_seeds]
    shared = [name for name in instances if name in other_instances]
    if not common or not shared:
        return None
    rows = np.ix_([seeds.index(s) for s in common], [instances.index(n) for n in shared])
    other_rows = np.ix_(
        [other_seeds.index(s) for s in common], [other_instances.index(n) for n in shared]
    )
    gaps = complete(values[rows] - theirs[other_rows])
    if not gaps.size:
        return None
    low, high = clustered_interval(gaps)
    return {"mean": float(gaps.mean()), "low": low, "high": high, "seeds": len(common)}

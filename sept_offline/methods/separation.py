"""How well a fitted latent identifies and separates instances on fresh episodes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data import Dataset, Segments
from sept_offline.latent import LatentModel, identify
from sept_offline.latent.identification import Separation, measure_separation
from sept_offline.methods.knowledge import Knowledge
from sept_offline.probe.weights import balance
from sept_offline.seeding import generator
from sept_offline.settings import FitConfig

SEPARATION_SAMPLE = 4000
"""Segments of each kind, at most, on which the separation of instances is measured."""


def identification(
    latent: LatentModel, segments: Segments, fresh: NDArray[np.bool_]
) -> dict[str, Any]:
    """Identification on fresh segments, for the record; empty if there are none."""
    if not fresh.any():
        return {}
    shares = identify(latent, segments.select(~fresh), segments.select(fresh))
    return {"identification": asdict(shares)}


def separation(
    known: Knowledge, segments: Segments, fresh: NDArray[np.bool_], seed: int
) -> Separation | None:
    """Separation of the instances on fresh segments, weighted by the probe; None without any."""
    rng = generator(seed, "separation")
    asked = rng.permutation(np.flatnonzero(fresh))[:SEPARATION_SAMPLE]
    reference = rng.permutation(np.flatnonzero(~fresh))[:SEPARATION_SAMPLE]
    if not len(asked):
        return None
    known_weights = known.weights
    if known.likely is not None:
        known_weights = known.likely
        chances = np.where(fresh, 0.0, known.likely)
        drawn = rng.choice(len(fresh), SEPARATION_SAMPLE, p=chances / chances.sum())
        reference = np.unique(drawn)
    rows = np.zeros(len(fresh), dtype=bool)
    rows[asked] = rows[reference] = True
    mean, log_variance = known.latent.encode(segments.select(rows))
    new, instance = fresh[rows], segments.instance[rows]
    weights = known_weights[rows][new]
    if not weights.sum() > 0:
        weights = np.ones(len(weights))
    return measure_separation(
        mean[~new],
        instance[~new],
        mean[new],
        np.exp(0.5 * log_variance[new]),
        instance[new],
        weights,
        rng,
    )


def later_steps(data: Dataset, config: FitConfig) -> int:
    """Steps after which a refined latent is measured: what three quarters of the episodes reach."""
    reached = int(np.quantile(data.episode_index.length, 0.25))
    return max(config.probe_steps, min(config.latent.refine_steps, reached))


def separation_in_time(
    first: Separation,
    known: Knowledge,
    data: Dataset,
    unfitted: NDArray[np.bool_],
    config: FitConfig,
    seed: int,
) -> Separation:
    """The same with the separation that the latent reaches later, when it has been refined.

    unfitted `[E]`: the episodes that the latent was not fitted to.
    """
    steps = later_steps(data, config)
    segments = data.segments(steps)
    fresh = np.isin(segments.episode, data.episode_index.number[unfitted])
    longer = replace(known, latent=known.latent.reading(steps), weights=balance(segments.instance))
    later = separation(longer, segments, fresh, seed)
    if later is None or later.apart < first.apart:
        return first
    return replace(first, apart=later.apart, low=later.low, high=later.high)

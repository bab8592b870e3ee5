"""How well the latents of fresh segments separate the instances, and how sure they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sept_offline.training.inputs import Doubles, Floats, Integers

CONFIDENCE = 0.99
"""Confidence level: a latent without information passes once in 200 fits."""
LEAST = 0.53
"""Share of comparisons below which a latent counts as uninformative, even with certainty."""
DRAWS = 1000
"""Bootstrap samples behind the interval."""
MANY = 10
"""From this number of instances on, the bootstrap draws instances; below, segments."""
REGIONS = (0.5, 0.8, 0.95)
"""Levels for which a region is kept."""


@dataclass(frozen=True)
class Separation:
    """How well fresh segments are separated by instance.

    A comparison asks whether a segment's latent lies nearer to the centre of its own instance than
    to that of another one: half of them by chance, however many instances there are.
    """

    apart: float
    """Share of comparisons that their own instance wins."""
    low: float
    """Lower end of the interval of `apart`."""
    high: float
    """Upper end of the interval of `apart`."""
    scale: float
    """What turns the mean of a posterior's standard deviations into units of the spread of
    instances, as large as the errors on these segments were."""
    uncertainty: float
    """Uncertainty of these segments, in those units: near 0 if the instance is identified, near 1
    if nothing is known."""
    radii: tuple[float, ...]
    """Distances, in means of the posterior's standard deviations, within which the share `REGIONS`
    of these segments have their instance's centre."""

    @property
    def better_than_chance(self) -> bool:
        """Whether the latent separates the instances better than chance."""
        return self.low > 0.5 and self.apart >= LEAST


def measure_separation(
    known: Floats,
    known_instance: Integers,
    asked: Floats,
    asked_deviation: Floats,
    asked_instance: Integers,
    weights: Doubles,
    rng: np.random.Generator,
) -> Separation:
    """Compare latents `asked[n, k]` with the centres of their instances in `known[m, k]`.

    asked_deviation `[n, k]`: the posteriors' standard deviations; weights `[n]`: how much each
    asked segment counts. Instances without a row in `known` are left out.
    """
    present, place = np.unique(known_instance, return_inverse=True)
    inside = np.isin(asked_instance, present)
    values, deviation = asked[inside].astype(np.float64), asked_deviation[inside]
    row = np.searchsorted(present, asked_instance[inside])
    weights = weights[inside] / max(weights[inside].sum(), 1e-300)
    centres = np.stack([known[place == code].mean(axis=0) for code in range(len(present))])
    within = np.sqrt(((known - centres[place]) ** 2).mean(axis=0)) + 1e-6 * (known.std() + 1e-12)

    away = (((values[:, None] - centres) / within) ** 2).sum(axis=2)
    mine = away[np.arange(len(row)), row]
    wins = (away > mine[:, None]) + 0.5 * (away == mine[:, None])
    won = (wins.sum(axis=1) - 0.5) / max(len(present) - 1, 1)
    low, high = _interval(won, row, weights, rng)

    errors = ((values - centres[row]) ** 2).sum(axis=1)
    stated = deviation.astype(np.float64).mean(axis=1) ** 2
    spread = weights @ ((values - weights @ values) ** 2).sum(axis=1)
    error = float(weights @ errors)
    stated_mean = max(float(weights @ stated), 1e-300)
    total = max(float(spread), error, 1e-300)
    scale = max(float(np.sqrt(error / stated_mean / total)), 1e-12)
    distance = np.sqrt(errors / np.maximum(stated, 1e-300))
    return Separation(
        apart=float(weights @ won),
        low=low,
        high=high,
        scale=scale,
        uncertainty=float(np.sqrt(error / total)),
        radii=tuple(_quantile(distance, weights, level) for level in REGIONS),
    )


def _interval(
    won: Doubles, own: Integers, weights: Doubles, rng: np.random.Generator
) -> tuple[float, float]:
    """Bootstrap interval of the weighted mean of `won[n]`: over instances, or over segments if
    there are few instances."""
    codes = own if len(np.unique(own)) >= MANY else np.arange(len(own))
    groups = np.unique(codes, return_inverse=True)[1]
    mass = np.bincount(groups, weights=weights)
    total = np.bincount(groups, weights=weights * won)
    drawn = rng.multinomial(len(mass), np.full(len(mass), 1 / len(mass)), size=DRAWS)
    means = (drawn @ total) / np.maximum(drawn @ mass, 1e-300)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _quantile(values: Doubles, weights: Doubles, level: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][min(np.searchsorted(reached, level * reached[-1]), len(order) - 1)])

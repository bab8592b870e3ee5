"""How well the latent of a segment predicts its instance, and how well it separates instances.

The figure of identification that is shown everywhere is `neighbour_share`: the share of segments
that were kept from the latent whose five nearest training segments, in z scaled by its spread, vote
for their instance. Chance is one over the number of instances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from sept_offline.data.records import Segments
from sept_offline.errors import TrainingError
from sept_offline.latent.model import LatentModel
from sept_offline.training.inputs import Doubles, Floats, Integers

RIDGE = 1e-3
"""Ridge of the linear classifier and of the regression, relative to the inputs' variance."""


@dataclass(frozen=True)
class Identification:
    """Shares of fresh segments whose instance is read off their latent."""

    nearest: float
    """Share predicted by the most likely instance mean under the segment's posterior."""
    neighbours: float
    """Share predicted by a vote of the nearest reference segments: the identification figure."""
    linear: float
    """Share predicted by a linear classifier fitted on reference segments."""
    chance: float
    """One over the number of instances."""


def identify(model: LatentModel, reference: Segments, fresh: Segments) -> Identification:
    """Identification of `fresh` segments; `reference` are the training ones."""
    if not len(fresh.instance):
        raise TrainingError("Identification needs held-out segments, but there are none.")
    known, _ = model.encode(reference)
    asked, log_variance = model.encode(fresh)
    present = np.unique(reference.instance)
    away = (asked[:, None] - model.instance_mean[present]) ** 2 * np.exp(-log_variance)[:, None]
    nearest = present[away.sum(axis=2).argmin(axis=1)]
    truth = fresh.instance
    return Identification(
        nearest=float((nearest == truth).mean()),
        neighbours=neighbour_share(known, reference.instance, asked, truth),
        linear=float((linear(known, reference.instance, asked) == truth).mean()),
        chance=1 / len(present),
    )


def neighbour_share(known: Floats, labels: Integers, asked: Floats, truth: Integers) -> float:
    """Share of the rows of `asked` whose nearest rows of `known` vote for their instance."""
    spread = np.maximum(known.std(axis=0), 1e-6)
    return float((vote(known / spread, labels, asked / spread) == truth).mean())


def vote(known: Floats, labels: Integers, asked: Floats, neighbours: int = 5) -> Integers:
    """The commonest label among the nearest rows of `known`; [n] labels."""
    neighbours = min(neighbours, len(known))
    near = np.asarray(cKDTree(known).query(asked, k=range(1, neighbours + 1))[1])
    counts = np.zeros((len(near), int(labels.max()) + 1))
    for column in range(neighbours):
        counts[np.arange(len(near)), labels[near[:, column]]] += 1
    result: Integers = counts.argmax(axis=1)
    return result


def linear(known: Floats, labels: Integers, asked: Floats) -> Integers:
    """Labels by linear discriminant analysis with a shared, slightly ridged covariance; [n]."""
    present = np.unique(labels)
    centres = np.stack([known[labels == label].mean(axis=0) for label in present])
    residual = known - centres[np.searchsorted(present, labels)]
    covariance = residual.T.astype(np.float64) @ residual / len(known)
    scale = max(float(np.trace(covariance)) / known.shape[1], 1e-12)
    precision = np.linalg.inv(covariance + RIDGE * scale * np.eye(known.shape[1]))
    score = asked @ precision @ centres.T - 0.5 * np.einsum(
        "ij,jk,ik->i", centres, precision, centres
    )
    likeliest: Integers = present[score.argmax(axis=1)]
    return likeliest


def explained(known: Floats, targets: Doubles, asked: Floats, truth: Doubles) -> Doubles:
    """R² of a ridge regression from latents to each column of `targets`; an analysis, [h]."""
    spread = np.maximum(known.std(axis=0), 1e-6)
    centre, middle = known.mean(axis=0), targets.mean(axis=0)
    inputs = (known - centre) / spread
    gram = inputs.T.astype(np.float64) @ inputs + RIDGE * len(inputs) * np.eye(inputs.shape[1])
    weights = np.linalg.solve(gram, inputs.T @ (targets - middle))
    error = truth - middle - ((asked - centre) / spread) @ weights
    total = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    result: Doubles = 1 - (error**2).sum(axis=0) / np.maximum(total, 1e-12)
    return result


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

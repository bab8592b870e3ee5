"""Identification: how well the latent of a segment predicts its instance.

The figure that is shown everywhere is `neighbour_share`: the share of segments that were kept from
the latent whose five nearest training segments, in z scaled by its spread, vote for their instance.
Chance is one over the number of instances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sept_offline.data.records import Segments
from sept_offline.errors import TrainingError
from sept_offline.latent.model import LatentModel
from sept_offline.training.inputs import Floats, Integers

Doubles = NDArray[np.float64]
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
        raise TrainingError("Identification needs fresh segments, but there are none.")
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

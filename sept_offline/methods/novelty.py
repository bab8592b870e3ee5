"""Fits novelty: the ELBOs that segments of known instances have when the agent acts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import InstancePrior, Novelty, segment_elbo
from sept_offline.data import Segments
from sept_offline.latent import LatentModel
from sept_offline.settings import FitConfig

LEVELS = (np.arange(2000) + 0.5) / 2000
"""Where the distribution of ELBOs is read: these quantiles are what an agent keeps."""
TAIL = 0.2
"""Share of the distribution, at most, that is smoothed."""
TAIL_SHAPE = -0.1
"""Shape of the generalised Pareto tail: between an exponential (0) and a normal one (−0.2)."""
TAIL_SEGMENTS = 40
"""Effective segments that the smoothed part needs; with enough of them little is smoothed."""


def novelty_of(
    latent: LatentModel,
    weights: NDArray[np.float64],
    segments: Segments,
    fresh: NDArray[np.bool_],
    config: FitConfig,
) -> Novelty | None:
    """The ELBOs that segments of known instances have, to compare with.

    weights `[N]`: how likely each segment is under the policy that acts first; fresh `[N]`: those
    that the latent was not fitted to.
    """
    decoder = latent.decoder
    if decoder is None or not fresh.any():
        return None
    prior = None
    if config.novelty_prior == "instances":
        prior = instance_prior(latent, segments, ~fresh)
    taken = latent.space.encode(segments.actions)
    elbos = segment_elbo(latent.encoder, decoder, segments.observations, taken, prior)
    return Novelty(decoder, smoothed_quantiles(as_if_fresh(elbos, fresh), weights), prior=prior)


def as_if_fresh(elbos: NDArray[np.float64], fresh: NDArray[np.bool_]) -> NDArray[np.float64]:
    """ELBOs `[N]`, with those of the fitted segments shifted to the distribution of fresh ones.

    Few of the fresh segments resemble those of the probe. The others are used too, less likely
    and wider spread by what fitting has gained on average over all segments.
    """
    unfitted, others = elbos[fresh], elbos[~fresh]
    if not len(others):
        return elbos
    gain = max(others.mean() - unfitted.mean(), 0.0)
    wider = max(unfitted.std() / others.std(), 1.0) if others.std() > 0 else 1.0
    moved = others.mean() - gain + wider * (others - others.mean())
    return np.where(fresh, elbos, moved[np.cumsum(~fresh) - 1])


def smoothed_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles of weighted values `[N]` at `LEVELS`, with a generalised Pareto lower tail.

    The first percentile of a hundred effective segments is one or two of them: noise. The mean
    depth of the lowest fifth is not, and says how far a tail of known shape reaches.
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order] / weights.sum()
    edges = np.cumsum(weights)
    quantiles = values[np.minimum(np.searchsorted(edges, LEVELS), len(values) - 1)]
    share = min(TAIL, TAIL_SEGMENTS * float(np.square(weights).sum()))
    start = values[np.searchsorted(edges, share)]
    depth = float((weights * np.maximum(start - values, 0.0)).sum()) / share
    tail = share > LEVELS
    reach = ((share / LEVELS[tail]) ** TAIL_SHAPE - 1) / TAIL_SHAPE
    quantiles[tail] = start - depth * (1 - TAIL_SHAPE) * reach
    return quantiles


def instance_prior(
    latent: LatentModel, segments: Segments, fitted: NDArray[np.bool_]
) -> InstancePrior:
    """Mean and spread of each instance's fitted segments in latent space."""
    mean, log_variance = latent.encode(segments)
    variance = np.exp(log_variance)
    rows = [fitted & (segments.instance == code) for code in np.unique(segments.instance[fitted])]
    return InstancePrior(
        np.stack([mean[part].mean(axis=0) for part in rows]),
        np.stack([mean[part].var(axis=0) + variance[part].mean(axis=0) for part in rows]),
    )

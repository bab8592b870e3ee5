"""Novelty: a segment's ELBO compared with those of held-out training segments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .decoder import TransitionDecoder
from .encoders import SegmentEncoder
from .fields import number
from .networks import Array, Arrays, take
from .records import Part, Record, Value, Weights

FLAGGED_BELOW = 0.01
"""An instance is flagged when its segment is less likely than the first percentile."""

ROUNDING = 1e-3
"""ELBOs this close count as equal. A segment that was logged again and again holds much of the
distribution at one point, and rounding must not decide on which side of it that very segment is."""

LOG_TWO_PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class InstancePrior:
    """The training instances' latents as a prior: an even mixture of Gaussians.

    For a family of a few separate modes N(0, I) is too broad: a latent between two modes is as
    likely as one at either. mean `[m, k]`, variance `[m, k]`.
    """

    mean: Array
    variance: Array

    def log_density(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[n]` at `points[n, k]`."""
        apart = points[:, None, :] - self.mean[None].astype(np.float64)
        variance = self.variance[None].astype(np.float64)
        each = -0.5 * (apart**2 / variance + np.log(variance) + LOG_TWO_PI).sum(axis=2)
        top = each.max(axis=1)
        density: NDArray[np.float64] = top + np.log(np.exp(each - top[:, None]).mean(axis=1))
        return density

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Means and variances, under `prefix`."""
        return {f"{prefix}.mean": self.mean, f"{prefix}.variance": self.variance}

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> InstancePrior:
        """The prior that `to_arrays(prefix)` wrote."""
        return cls(take(arrays, f"{prefix}.mean", 2), take(arrays, f"{prefix}.variance", 2))


def posterior_elbo(
    decoder: TransitionDecoder,
    observations: NDArray[Any],
    taken: NDArray[Any],
    mean: Array,
    log_var: Array,
    prior: InstancePrior | None = None,
) -> NDArray[np.float64]:
    """E_q Σ log p(s′ | s, a, z) − KL(q ‖ prior), `[n]`, without a random draw.

    The expectation is the mean over the 2k points m ± √k·sd_j·e_j, exact for polynomials of third
    degree: one segment has one ELBO, whatever the seed. The prior is N(0, I) by default. Shapes:
    `observations[n, T+1, d]`, encoded actions `taken[n, T, w]`, `mean[n, k]`, `log_var[n, k]`.
    """
    count, size = mean.shape
    reach = np.sqrt(size) * np.exp(0.5 * log_var.astype(np.float64))
    offsets = reach[:, None, :] * np.eye(size)[None]
    points = mean[:, None, :] + np.concatenate([offsets, -offsets], axis=1)
    repeated = 2 * size
    likelihood = decoder.log_prob(
        np.repeat(observations, repeated, axis=0),
        np.repeat(taken, repeated, axis=0),
        points.reshape(count * repeated, size),
    ).reshape(count, repeated)
    wide = log_var.astype(np.float64)
    if prior is None:
        divergence = 0.5 * (np.exp(wide) + mean.astype(np.float64) ** 2 - 1 - wide).sum(axis=1)
    else:
        entropy = 0.5 * (wide + LOG_TWO_PI + 1).sum(axis=1)
        density = prior.log_density(points.reshape(count * repeated, size))
        divergence = -entropy - density.reshape(count, repeated).mean(axis=1)
    elbo: NDArray[np.float64] = likelihood.mean(axis=1) - divergence
    return elbo


def segment_elbo(
    encoder: SegmentEncoder,
    decoder: TransitionDecoder,
    observations: NDArray[Any],
    taken: NDArray[Any],
    prior: InstancePrior | None = None,
) -> NDArray[np.float64]:
    """The ELBO `[n]` of segments `observations[n, T+1, d]`, `taken[n, T, w]`."""
    elbos = [
        posterior_elbo(
            decoder,
            observations[part],
            taken[part],
            *encoder.encode(observations[part], taken[part]),
            prior,
        )
        # in blocks: 2k points per segment would otherwise fill the memory
        for part in (slice(start, start + 256) for start in range(0, len(taken), 256))
    ]
    return np.concatenate(elbos) if elbos else np.empty(0)


class Novelty(Record):
    """A decoder, and the sorted ELBOs `[m]` of segments it was not fitted to."""

    stored = (
        Part("decoder", TransitionDecoder.from_arrays),
        Weights("held_out", partial(take, ndim=1, dtype=np.float64)),
        Value("flagged_below", number),
        Weights("prior", InstancePrior.from_arrays, flag="prior", says=("normal", "instances")),
    )

    def __init__(
        self,
        decoder: TransitionDecoder,
        held_out: NDArray[Any],
        flagged_below: float = FLAGGED_BELOW,
        prior: InstancePrior | None = None,
    ) -> None:
        self.decoder, self.flagged_below, self.prior = decoder, flagged_below, prior
        self.held_out = np.sort(np.asarray(held_out, dtype=np.float64))
        if self.held_out.ndim != 1 or not len(self.held_out):
            raise AgentError("Novelty needs the ELBO of at least one held-out segment.")
        if not np.isfinite(self.held_out).all():
            raise AgentError("The ELBOs of the held-out segments are not all finite.")
        if prior is not None:
            shape = (len(prior.mean), decoder.latent_dim)
            fits = prior.mean.shape == prior.variance.shape == shape and shape[0] > 0
            if not fits or not (prior.variance > 0).all():
                raise AgentError("The agent's prior of instances does not fit its latent.")

    def quantile(
        self, observations: NDArray[Any], taken: NDArray[Any], mean: Array, log_var: Array
    ) -> NDArray[np.float64]:
        """The share `[n]` of held-out segments that are at most as likely; near 0 means new."""
        elbo = posterior_elbo(self.decoder, observations, taken, mean, log_var, self.prior)
        below = np.searchsorted(self.held_out, elbo + ROUNDING, side="right")
        share: NDArray[np.float64] = below / len(self.held_out)
        return share

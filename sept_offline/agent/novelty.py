"""Novelty: how likely a segment is under the decoder, compared with held-out training segments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .encoders import DELTA, OBSERVATION, SegmentEncoder
from .networks import MLP, Array, Arrays, Standardiser, take
from .records import Part, Record, Value, Weights, action_count, count, number, pair

FLAGGED_BELOW = 0.01
"""An instance is flagged when its segment is less likely than the first percentile."""

ROUNDING = 1e-3
"""ELBOs this close count as equal. A segment that was logged again and again holds much of the
distribution at one point, and rounding must not decide on which side of it that very segment is."""

LOG_TWO_PI = float(np.log(2 * np.pi))


class TransitionDecoder(Record):
    """p(s′ − s | s, a, z), a diagonal Gaussian over the standardised change of state.

    `network` takes (s, a, z, a⊗z), d + w + k + w·k inputs, where a⊗z holds column i of the encoded
    action times z's column j at position i·k + j, and gives 2d outputs: mean and log-variance of
    the standardised Δs; log-variances are clipped to `log_var_range`. `average`, where there is
    one, takes (s, a), d + w inputs, and gives what is added to the mean.
    """

    kind = "transition"
    stored = (
        Weights("network", MLP.from_arrays),
        OBSERVATION,
        DELTA,
        Value("action_width", action_count, key="num_actions"),
        Value("latent_dim", count),
        Value("log_var_range", pair),
        Weights("average", MLP.from_arrays, flag="average"),
    )
    # decoders of earlier versions have no average model
    earlier: ClassVar = {"average": False}

    def __init__(
        self,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        latent_dim: int,
        log_var_range: tuple[float, float] = (-8.0, 4.0),
        average: MLP | None = None,
    ) -> None:
        self.average = average
        self.network, self.action_width, self.latent_dim = network, action_width, latent_dim
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.log_var_range = log_var_range
        self.observation_dim = dim = observation_scaler.dim
        inputs = dim + action_width + latent_dim + action_width * latent_dim
        shape = (network.input_dim, network.output_dim)
        if delta_scaler.dim != dim or shape != (inputs, 2 * dim):
            raise AgentError(
                f"A decoder of {dim} columns, {action_width} columns of actions and {latent_dim} "
                f"latents needs {inputs} inputs and {2 * dim} outputs, found {shape[0]} and "
                f"{shape[1]}."
            )
        if average is not None and (average.input_dim, average.output_dim) != (
            dim + action_width,
            dim,
        ):
            raise AgentError(
                f"A decoder's average model must take {dim + action_width} inputs and give {dim} "
                f"outputs, found {average.input_dim} and {average.output_dim}."
            )

    def log_prob(
        self, observations: NDArray[Any], taken: NDArray[Any], z: NDArray[Any]
    ) -> NDArray[np.float64]:
        """Σ_t log p(s_{t+1} − s_t | s_t, a_t, z), `[n]`, a density of the standardised changes.

        `observations[n, T+1, d]`, `taken[n, T, w]` encoded actions, `z[n, k]`.
        """
        raw = np.asarray(observations, dtype=np.float32)
        count, steps, width = taken.shape
        state = self.observation_scaler(raw[:, :-1]).reshape(count * steps, -1)
        delta = self.delta_scaler(raw[:, 1:] - raw[:, :-1]).reshape(count * steps, -1)
        taken = taken.reshape(-1, width)
        latent = np.repeat(np.asarray(z, dtype=np.float32), steps, axis=0)
        crossed = (taken[:, :, None] * latent[:, None, :]).reshape(len(state), -1)
        features = np.concatenate([state, taken, latent, crossed], axis=1).astype(np.float32)
        output = self.network(features).astype(np.float64)
        mean = output[:, : self.observation_dim]
        if self.average is not None:
            mean = mean + self.average(np.concatenate([state, taken], axis=1))
        log_var = np.clip(output[:, self.observation_dim :], *self.log_var_range)
        terms = (delta - mean) ** 2 * np.exp(-log_var) + log_var + LOG_TWO_PI
        total: NDArray[np.float64] = -0.5 * terms.sum(axis=1).reshape(count, steps).sum(axis=1)
        return total


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
        Weights("elbos", partial(take, ndim=1, dtype=np.float64), key="held_out"),
        Value("flagged_below", number),
        Weights("prior", InstancePrior.from_arrays, flag="prior", says=("normal", "instances")),
    )

    def __init__(
        self,
        decoder: TransitionDecoder,
        elbos: NDArray[Any],
        flagged_below: float = FLAGGED_BELOW,
        prior: InstancePrior | None = None,
    ) -> None:
        self.decoder, self.flagged_below, self.prior = decoder, flagged_below, prior
        self.elbos = np.sort(np.asarray(elbos, dtype=np.float64))
        if self.elbos.ndim != 1 or not len(self.elbos):
            raise AgentError("Novelty needs the ELBO of at least one held-out segment.")
        if not np.isfinite(self.elbos).all():
            raise AgentError("The ELBOs of the held-out segments are not all finite.")
        if prior is not None:
            shape = (len(prior.mean), decoder.latent_dim)
            fits = prior.mean.shape == prior.variance.shape == shape and shape[0] > 0
            if not fits or not (prior.variance > 0).all():
                raise AgentError("The agent's prior of instances does not fit its latent.")

    def quantile(
        self, observations: NDArray[Any], taken: NDArray[Any], mean: Array, log_var: Array
    ) -> NDArray[np.float64]:
        """The share `[n]` of fresh segments that are at most as likely; near 0 means new."""
        elbo = posterior_elbo(self.decoder, observations, taken, mean, log_var, self.prior)
        below = np.searchsorted(self.elbos, elbo + ROUNDING, side="right")
        share: NDArray[np.float64] = below / len(self.elbos)
        return share

"""An encoder of single transitions, whose evidence adds up over a segment of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..fields import pair, positive
from ..networks import MLP, Array, Standardiser
from ..records import Value, Weights
from .base import SCALERS, SIZES, SegmentEncoder, check_segments


class TransitionEncoder(SegmentEncoder):
    """Evidence of single transitions, added up: a segment of any length has a posterior.

    `average` takes (s, a), d + w inputs, and gives the change that is expected whatever the
    instance; `network` takes (s, a, ρ, a⊗ρ), 2d + w + w·d inputs, where ρ is the change less the
    expected one, and gives 2k outputs: a mean m and the log of a precision λ. Changes are in the
    units of `delta_scaler`; residuals count up to `residual_range`, log-precisions are clipped to
    `log_precision_range`. The prior is N(0, I).

    Both networks are computed in float64, and the evidence of a step is then rounded to float32: it
    adds up over an episode, and a steep policy would amplify differences in its last bits.
    """

    kind = "transition"
    stored = (
        Weights("average", MLP.from_arrays),
        Weights("network", MLP.from_arrays),
        *SCALERS,
        *SIZES,
        Value("residual_range", positive),
        Value("log_precision_range", pair),
    )

    def __init__(
        self,
        average: MLP,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        residual_range: float = 10.0,
        log_precision_range: tuple[float, float] = (-10.0, 8.0),
    ) -> None:
        self.average, self.network = average.in_double(), network.in_double()
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.action_width, self.steps, self.residual_range = action_width, steps, residual_range
        self.log_precision_range = log_precision_range
        self.observation_dim = dim = observation_scaler.dim
        self.latent_dim = network.output_dim // 2
        inputs = (dim + action_width, 2 * dim + action_width + action_width * dim)
        found = (average.input_dim, network.input_dim)
        outputs = average.output_dim == dim and network.output_dim % 2 == 0
        if delta_scaler.dim != dim or found != inputs or not outputs:
            raise AgentError(
                f"A transition encoder of {dim} columns and {action_width} actions needs networks "
                f"of {inputs[0]} and {inputs[1]} inputs, found {found[0]} and {found[1]}."
            )

    def reading(self, steps: int) -> TransitionEncoder:
        """The same for segments of another length."""
        scalers = self.observation_scaler, self.delta_scaler
        ranges = self.residual_range, self.log_precision_range
        parts = self.average, self.network, *scalers, self.action_width, steps
        return TransitionEncoder(*parts, *ranges)

    def evidence(
        self, before: NDArray[Any], taken: NDArray[Any], after: NDArray[Any]
    ) -> tuple[Array, Array]:
        """λm and λ, `[n, k]` each, of transitions `before[n, d]`, `taken[n, w]`, `after[n, d]`."""
        state = self.observation_scaler(before)
        change = self.delta_scaler(np.asarray(after, np.float32) - np.asarray(before, np.float32))
        rest = change - self.average(np.concatenate([state, taken], axis=1))
        rest = np.clip(rest, -self.residual_range, self.residual_range)
        crossed = (taken[:, :, None] * rest[:, None, :]).reshape(len(state), -1)
        return self._weighed(self.network(np.concatenate([state, taken, rest, crossed], axis=1)))

    def evidence_of_one(self, before: Array, taken: Array, after: Array) -> tuple[Array, Array]:
        """The same for one transition, `[k]` each; faster than a batch of one."""
        dim, known = self.observation_dim, self.observation_dim + self.action_width
        row: NDArray[Any] = np.empty(self.network.input_dim)
        row[:dim] = self.observation_scaler(before)
        row[dim:known] = taken
        rest = self.delta_scaler(after - before) - self.average.row(row[:known])
        rest = np.clip(rest, -self.residual_range, self.residual_range)
        row[known : known + dim] = rest
        row[known + dim :] = (taken[:, None] * rest).ravel()
        return self._weighed(self.network.row(row))

    def _weighed(self, output: Array) -> tuple[Array, Array]:
        """λm and λ from the network's output `[..., 2k]`."""
        size = self.latent_dim
        precision = np.exp(np.clip(output[..., size:], *self.log_precision_range))
        weighted = precision * output[..., :size]
        return weighted.astype(np.float32), precision.astype(np.float32)

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""
        check_segments(self, observations, taken)
        raw = np.asarray(observations, dtype=np.float32)
        dim = self.observation_dim
        weighted, precision = self.evidence(
            raw[:, :-1].reshape(-1, dim),
            taken.reshape(-1, self.action_width),
            raw[:, 1:].reshape(-1, dim),
        )
        shape = (len(taken), self.steps, self.latent_dim)
        return posterior(weighted.reshape(shape).sum(axis=1), precision.reshape(shape).sum(axis=1))


def posterior(weighted: Array, precision: Array) -> tuple[Array, Array]:
    """Mean and log-variance from summed evidence `[..., k]` and the prior N(0, I)."""
    return weighted / (1 + precision), -np.log1p(precision)

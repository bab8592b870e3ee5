"""The transition decoder in NumPy: how likely a segment is under a latent."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .fields import action_count, count, pair
from .networks import MLP, Array, Standardiser
from .records import Record, Value, Weights

LOG_TWO_PI = float(np.log(2 * np.pi))


def decoder_features(state: Array, taken: Array, latent: Array) -> Array:
    """What the decoder reads, `[m, d + w + k + w·k]`: (s, a, z, a⊗z) per row.

    `state[m, d]` is standardised, `taken[m, w]` an encoded action, `latent[m, k]`; a⊗z holds column
    i of the action times z's column j at position i·k + j.
    """
    crossed = (taken[:, :, None] * latent[:, None, :]).reshape(len(state), -1)
    return np.concatenate([state, taken, latent, crossed], axis=1).astype(np.float32)


class TransitionDecoder(Record):
    """p(s′ − s | s, a, z), a diagonal Gaussian over the standardised change of state.

    `network` takes d + w + k + w·k inputs (see `decoder_features`) and gives 2d outputs: mean and
    log-variance of the standardised Δs; log-variances are clipped to `log_var_range`. `average`,
    where there is one, takes (s, a), d + w inputs, and gives what is added to the mean.
    """

    kind = "transition"
    stored = (
        Weights("network", MLP.from_arrays),
        Weights("observation_scaler", Standardiser.from_arrays, key="observation"),
        Weights("delta_scaler", Standardiser.from_arrays, key="delta"),
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
        output = self.network(decoder_features(state, taken, latent)).astype(np.float64)
        mean = output[:, : self.observation_dim]
        if self.average is not None:
            mean = mean + self.average(np.concatenate([state, taken], axis=1))
        log_var = np.clip(output[:, self.observation_dim :], *self.log_var_range)
        terms = (delta - mean) ** 2 * np.exp(-log_var) + log_var + LOG_TWO_PI
        total: NDArray[np.float64] = -0.5 * terms.sum(axis=1).reshape(count, steps).sum(axis=1)
        return total

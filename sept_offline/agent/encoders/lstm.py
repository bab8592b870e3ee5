"""The paper's encoder: a bidirectional LSTM over the steps of a segment."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..fields import pair
from ..networks import MLP, Array, Arrays, Standardiser, take
from ..records import Value, Weights
from .base import SIZES, SegmentEncoder, check_segments, halves


class LstmWeights(NamedTuple):
    """The weights of one direction; gates in order i, f, g, o.

    `weight_ih[4H, in]`, `weight_hh[4H, H]`, `bias_ih[4H]`, `bias_hh[4H]`.
    """

    weight_ih: Array
    weight_hh: Array
    bias_ih: Array
    bias_hh: Array

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All four, each under a name that starts with `prefix`."""
        return {f"{prefix}.{name}": value for name, value in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> LstmWeights:
        """What `to_arrays(prefix)` wrote."""
        sizes = zip(cls._fields, (2, 2, 1, 1), strict=True)
        return cls(*(take(arrays, f"{prefix}.{name}", ndim) for name, ndim in sizes))


class LstmEncoder(SegmentEncoder):
    """A bidirectional LSTM over steps, mean-pooled over time, then `head` to mean, log-variance.

    Inputs of a step are the standardised s and the encoded a, `[d + w]`: the paper's segment, which
    has no final state. With a `delta_scaler` the standardised change s′ − s follows them,
    `[d + w + d]`, and the final state is in the last step. `head` takes the mean over time of
    (forward, backward) states, `[2H]`, and gives 2k outputs.
    """

    kind = "lstm"
    stored = (
        Weights("head", MLP.from_arrays),
        Weights("observation_scaler", Standardiser.from_arrays, key="observation"),
        *SIZES,
        Value("log_var_range", pair),
        Weights("delta_scaler", Standardiser.from_arrays, key="delta", flag="changes"),
        Weights("forward", LstmWeights.from_arrays),
        Weights("backward", LstmWeights.from_arrays),
    )
    # encoders of earlier versions read pairs (s, a)
    earlier: ClassVar = {"changes": False}

    def __init__(
        self,
        forward: LstmWeights,
        backward: LstmWeights,
        head: MLP,
        observation_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
        delta_scaler: Standardiser | None = None,
    ) -> None:
        self.delta_scaler = delta_scaler
        self.forward, self.backward = _float32(forward), _float32(backward)
        self.directions = (self.forward, self.backward)
        self.head, self.observation_scaler = head, observation_scaler
        self.action_width, self.steps, self.log_var_range = action_width, steps, log_var_range
        self.observation_dim = observation_scaler.dim
        self.latent_dim = head.output_dim // 2
        self.hidden_dim = head.input_dim // 2
        size, inputs = self.hidden_dim, self.observation_dim + action_width
        if delta_scaler is not None:
            inputs += delta_scaler.dim
            if delta_scaler.dim != self.observation_dim:
                raise AgentError(
                    f"An LSTM encoder of {self.observation_dim} columns needs as many scales of "
                    f"their changes, found {delta_scaler.dim}."
                )
        shapes = ((4 * size, inputs), (4 * size, size), (4 * size,), (4 * size,))
        for weights in self.directions:
            if tuple(w.shape for w in weights) != shapes or head.output_dim % 2:
                raise AgentError(
                    f"An LSTM encoder of {size} units and {inputs} inputs needs weights of shapes "
                    f"{shapes}, found {tuple(w.shape for w in weights)}."
                )

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""
        check_segments(self, observations, taken)
        raw = np.asarray(observations, dtype=np.float32)
        parts = [self.observation_scaler(raw[:, :-1]), np.asarray(taken, np.float32)]
        if self.delta_scaler is not None:
            parts.append(self.delta_scaler(raw[:, 1:] - raw[:, :-1]))
        inputs = np.concatenate(parts, axis=2)
        forward = _run_lstm(inputs, self.directions[0])
        backward = _run_lstm(inputs[:, ::-1], self.directions[1])
        pooled = np.concatenate([forward.mean(axis=1), backward.mean(axis=1)], axis=1)
        return halves(self.head(pooled), self.log_var_range)


def _float32(weights: LstmWeights) -> LstmWeights:
    return LstmWeights(*(np.ascontiguousarray(each, dtype=np.float32) for each in weights))


def _sigmoid(x: Array) -> Array:
    # computed with tanh, which does not overflow
    half = np.float32(0.5)
    return np.asarray(half * (np.tanh(half * x) + np.float32(1)))


def _run_lstm(inputs: Array, weights: LstmWeights) -> Array:
    """The states `[n, T, H]` of an LSTM over `inputs[n, T, in]`."""
    w_ih, w_hh, b_ih, b_hh = weights
    count, steps, _ = inputs.shape
    size = w_hh.shape[1]
    hidden = np.zeros((count, size), dtype=np.float32)
    cell = np.zeros_like(hidden)
    states = np.empty((count, steps, size), dtype=np.float32)
    for step in range(steps):
        gates = inputs[:, step] @ w_ih.T + hidden @ w_hh.T + (b_ih + b_hh)
        enter, forget, new, leave = np.split(gates, 4, axis=1)
        cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(new)
        hidden = _sigmoid(leave) * np.tanh(cell)
        states[:, step] = hidden
    return states

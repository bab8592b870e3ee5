"""Segment encoders in NumPy: from steps of an episode to a posterior over the latent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .networks import MLP, Array, Arrays, Standardiser, take
from .records import (
    Description,
    Record,
    Stored,
    Value,
    Weights,
    action_count,
    count,
    named,
    pair,
    positive,
)

OBSERVATION = Weights("observation_scaler", Standardiser.from_arrays, key="observation")
DELTA = Weights("delta_scaler", Standardiser.from_arrays, key="delta")
SIZES = (Value("action_width", action_count, key="num_actions"), Value("steps", count))
"""What several encoders store; decoders store the same scalers."""


class SegmentEncoder(Record, ABC):
    """q(z | segment), a diagonal Gaussian."""

    steps: int
    """T, the number of steps a segment has."""
    latent_dim: int
    observation_dim: int
    action_width: int
    """w, the columns of an encoded action."""

    @abstractmethod
    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""

    def _check_segments(self, observations: NDArray[Any], taken: NDArray[Any]) -> None:
        """Raise unless segments have the shapes that the encoder reads."""
        steps, dim, width, number = self.steps, self.observation_dim, self.action_width, len(taken)
        if observations.shape != (number, steps + 1, dim) or taken.shape != (number, steps, width):
            raise AgentError(
                f"The encoder reads observations [n, {steps + 1}, {dim}] and encoded actions "
                f"[n, {steps}, {width}], found {list(observations.shape)} and {list(taken.shape)}."
            )


def step_features(
    observations: NDArray[Any],
    taken: NDArray[Any],
    observation_scaler: Standardiser,
    delta_scaler: Standardiser,
) -> Array:
    """Each step as (s, a, Δs, a⊗Δs), `[n, T, 2d + w + w·d]`.

    s and Δs = s′ − s are standardised, a is the encoded action `taken[n, T, w]`, and a⊗Δs holds
    column i of the action times the change of column j at position i·d + j.
    """
    raw = np.asarray(observations, dtype=np.float32)
    state = observation_scaler(raw[:, :-1])
    delta = delta_scaler(raw[:, 1:] - raw[:, :-1])
    crossed = (taken[..., :, None] * delta[..., None, :]).reshape(*delta.shape[:2], -1)
    return np.concatenate([state, taken, delta, crossed], axis=2)


def _halves(output: Array, log_var_range: tuple[float, float]) -> tuple[Array, Array]:
    """Mean and log-variance from a network's output `[n, 2k]`."""
    size = output.shape[1] // 2
    return output[:, :size].copy(), np.clip(output[:, size:], *log_var_range).astype(np.float32)


class _StepsEncoder(SegmentEncoder):
    """Base of encoders that read `step_features`.

    `observation_scaler` and `delta_scaler` have d columns. Log-variances are clipped to
    `log_var_range`.
    """

    stored: ClassVar[tuple[Stored, ...]] = (
        OBSERVATION,
        DELTA,
        *SIZES,
        Value("log_var_range", pair),
    )

    def __init__(
        self,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float],
    ) -> None:
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.action_width, self.steps, self.log_var_range = action_width, steps, log_var_range
        self.observation_dim = dim = observation_scaler.dim
        self.step_dim = 2 * dim + action_width + action_width * dim
        if delta_scaler.dim != dim:
            raise AgentError(
                f"An encoder of {dim} columns needs {dim} scales of their changes, "
                f"found {delta_scaler.dim}."
            )

    def _check_network(self, network: MLP, inputs: int) -> None:
        if network.input_dim != inputs or network.output_dim % 2:
            raise AgentError(
                f"A {self.kind} encoder of {self.steps} steps, {self.observation_dim} columns and "
                f"{self.action_width} actions needs {inputs} inputs and an even number of outputs, "
                f"found {network.input_dim} and {network.output_dim}."
            )

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        self._check_segments(observations, taken)
        scalers = self.observation_scaler, self.delta_scaler
        return _halves(
            self._output(step_features(observations, taken, *scalers)), self.log_var_range
        )

    @abstractmethod
    def _output(self, features: Array) -> Array:
        """The network's outputs `[n, 2k]` on the features of each step."""


class PooledEncoder(_StepsEncoder):
    """One network for every step, the mean over steps, then a head to mean and log-variance.

    `each` takes the features of a step, 2d + w + w·d inputs; its outputs go through a ReLU and are
    averaged over the T steps. `head` takes that average and gives 2k outputs.
    """

    kind = "pooled"
    stored = (
        Weights("each", MLP.from_arrays),
        Weights("head", MLP.from_arrays),
        *_StepsEncoder.stored,
    )

    def __init__(
        self,
        each: MLP,
        head: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, action_width, steps, log_var_range)
        self.each, self.head, self.latent_dim = each, head, head.output_dim // 2
        if each.input_dim != self.step_dim:
            raise AgentError(
                f"A pooled encoder of {self.observation_dim} columns and {action_width} actions "
                f"reads {self.step_dim} inputs of each step, found {each.input_dim}."
            )
        self._check_network(head, each.output_dim)

    def _output(self, features: Array) -> Array:
        read = np.maximum(self.each(features.reshape(-1, self.step_dim)), np.float32(0))
        return self.head(read.reshape(len(features), self.steps, -1).mean(axis=1))


class FlatEncoder(_StepsEncoder):
    """One network on all steps' features side by side, to mean and log-variance.

    `network` takes T·(2d + w + w·d) inputs and gives 2k outputs. Agents of earlier versions have
    such an encoder; nothing writes a new one.
    """

    kind = "flat"
    stored = (Weights("network", MLP.from_arrays), *_StepsEncoder.stored)

    def __init__(
        self,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        action_width: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, action_width, steps, log_var_range)
        self.network, self.latent_dim = network, network.output_dim // 2
        self._check_network(network, steps * self.step_dim)

    def _output(self, features: Array) -> Array:
        return self.network(features.reshape(len(features), -1))


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
        OBSERVATION,
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
                    f"An LSTM encoder of {self.observation_dim} columns needs one scale per column "
                    f"for their changes, found {delta_scaler.dim}."
                )
        shapes = ((4 * size, inputs), (4 * size, size), (4 * size,), (4 * size,))
        for weights in self.directions:
            if tuple(w.shape for w in weights) != shapes or head.output_dim % 2:
                raise AgentError(
                    f"An LSTM encoder of {size} units and {inputs} inputs needs weights of shapes "
                    f"{shapes}, found {tuple(w.shape for w in weights)}."
                )

    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        self._check_segments(observations, taken)
        raw = np.asarray(observations, dtype=np.float32)
        parts = [self.observation_scaler(raw[:, :-1]), np.asarray(taken, np.float32)]
        if self.delta_scaler is not None:
            parts.append(self.delta_scaler(raw[:, 1:] - raw[:, :-1]))
        inputs = np.concatenate(parts, axis=2)
        forward = _run_lstm(inputs, self.directions[0])
        backward = _run_lstm(inputs[:, ::-1], self.directions[1])
        pooled = np.concatenate([forward.mean(axis=1), backward.mean(axis=1)], axis=1)
        return _halves(self.head(pooled), self.log_var_range)


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
        OBSERVATION,
        DELTA,
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
        widths = (average.input_dim, network.input_dim)
        outputs = average.output_dim == dim and network.output_dim % 2 == 0
        if delta_scaler.dim != dim or widths != inputs or not outputs:
            raise AgentError(
                f"A transition encoder of {dim} columns and {action_width} actions needs networks "
                f"of {inputs[0]} and {inputs[1]} inputs, found {widths[0]} and {widths[1]}."
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
        self._check_segments(observations, taken)
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


AnyEncoder = PooledEncoder | FlatEncoder | LstmEncoder | TransitionEncoder
ENCODERS: dict[str, type[AnyEncoder]] = {each.kind: each for each in get_args(AnyEncoder)}


def encoder_from_arrays(arrays: Arrays, description: Description, prefix: str) -> AnyEncoder:
    """The encoder that `description` names."""
    return named(ENCODERS, description, "encoder").from_arrays(arrays, description, prefix)

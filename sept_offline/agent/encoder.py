"""Segment encoders in NumPy: from the first steps of an episode to a posterior over the latent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from ..limits import MOST_ACTIONS
from .fields import count, field, pair
from .networks import MLP, Array, Arrays, Standardiser, take

DIRECTIONS = ("forward", "backward")
LstmWeights = tuple[Array, Array, Array, Array]
"""`(weight_ih[4H, in], weight_hh[4H, H], bias_ih[4H], bias_hh[4H])`, gates in order i, f, g, o."""


class SegmentEncoder(Protocol):
    """q(z | segment), a diagonal Gaussian."""

    kind: str
    steps: int
    """T, the number of steps a segment has."""
    latent_dim: int
    observation_dim: int
    num_actions: int

    def encode(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        ...

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""
        ...

    def describe(self) -> dict[str, Any]:
        """What `from_arrays` needs beside the weights, JSON-ready."""
        ...


def one_hot(actions: NDArray[Any], num_actions: int) -> Array:
    """`actions[...]` as `[..., num_actions]`."""
    return np.asarray(np.eye(num_actions, dtype=np.float32)[actions])


def step_features(
    observations: NDArray[Any],
    actions: NDArray[Any],
    num_actions: int,
    observation_scaler: Standardiser,
    delta_scaler: Standardiser,
) -> Array:
    """Each step as (s, a, Δs, a⊗Δs), `[n, T, 2d + A + A·d]`.

    s and Δs = s′ − s are standardised, a is one-hot, and a⊗Δs holds the change of column j under
    action a at position a·d + j.
    """
    raw = np.asarray(observations, dtype=np.float32)
    state = observation_scaler(raw[:, :-1])
    delta = delta_scaler(raw[:, 1:] - raw[:, :-1])
    taken = one_hot(actions, num_actions)
    crossed = (taken[..., :, None] * delta[..., None, :]).reshape(*actions.shape, -1)
    return np.concatenate([state, taken, delta, crossed], axis=2)


def _check_segments(
    observations: NDArray[Any], actions: NDArray[Any], steps: int, dim: int
) -> None:
    count = len(actions)
    if observations.shape != (count, steps + 1, dim) or actions.shape != (count, steps):
        raise AgentError(
            f"The encoder reads observations [n, {steps + 1}, {dim}] and actions [n, {steps}], "
            f"found {list(observations.shape)} and {list(actions.shape)}."
        )


class _StepsEncoder:
    """Base of encoders that read `step_features`.

    `observation_scaler` and `delta_scaler` have d columns. Log-variances are clipped to
    `log_var_range`.
    """

    kind: str

    def __init__(
        self,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        num_actions: int,
        steps: int,
        log_var_range: tuple[float, float],
    ) -> None:
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.num_actions, self.steps, self.log_var_range = num_actions, steps, log_var_range
        self.observation_dim = dim = observation_scaler.dim
        self.step_dim = 2 * dim + num_actions + num_actions * dim
        if delta_scaler.dim != dim:
            raise AgentError(
                f"An encoder of {dim} columns needs as many scales of their changes, "
                f"found {delta_scaler.dim}."
            )

    def _check_network(self, network: MLP, inputs: int) -> None:
        if network.input_dim != inputs or network.output_dim % 2:
            raise AgentError(
                f"A {self.kind} encoder of {self.steps} steps, {self.observation_dim} columns and "
                f"{self.num_actions} actions needs {inputs} inputs and an even number of outputs, "
                f"found {network.input_dim} and {network.output_dim}."
            )

    def _features(self, observations: NDArray[Any], actions: NDArray[Any]) -> Array:
        _check_segments(observations, actions, self.steps, self.observation_dim)
        return step_features(
            observations, actions, self.num_actions, self.observation_scaler, self.delta_scaler
        )

    def _scaler_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {
            **self.observation_scaler.to_arrays(f"{prefix}.observation"),
            **self.delta_scaler.to_arrays(f"{prefix}.delta"),
        }

    def describe(self) -> dict[str, Any]:
        """Kind, actions, steps and the range of log-variances."""
        return _describe(self)


class PooledEncoder(_StepsEncoder):
    """One network for every step, the mean over steps, then a head to mean and log-variance.

    `each` takes the features of a step, 2d + A + A·d inputs; its outputs go through a ReLU and are
    averaged over the T steps. `head` takes that average and gives 2k outputs.
    """

    kind = "pooled"

    def __init__(
        self,
        each: MLP,
        head: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        num_actions: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, num_actions, steps, log_var_range)
        self.each, self.head, self.latent_dim = each, head, head.output_dim // 2
        if each.input_dim != self.step_dim:
            raise AgentError(
                f"A pooled encoder of {self.observation_dim} columns and {num_actions} actions "
                f"reads {self.step_dim} inputs of each step, found {each.input_dim}."
            )
        self._check_network(head, each.output_dim)

    def encode(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        features = self._features(observations, actions)
        read = np.maximum(self.each(features.reshape(-1, self.step_dim)), np.float32(0))
        pooled = read.reshape(len(features), self.steps, -1).mean(axis=1)
        return _halves(self.head(pooled), self.log_var_range)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Weights and scalers, under `prefix`."""
        networks = self.each.to_arrays(f"{prefix}.each") | self.head.to_arrays(f"{prefix}.head")
        return networks | self._scaler_arrays(prefix)

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, description: Mapping[str, Any], prefix: str
    ) -> PooledEncoder:
        """The encoder that `to_arrays(prefix)` and `describe()` wrote."""
        return cls(
            MLP.from_arrays(arrays, f"{prefix}.each"),
            MLP.from_arrays(arrays, f"{prefix}.head"),
            Standardiser.from_arrays(arrays, f"{prefix}.observation"),
            Standardiser.from_arrays(arrays, f"{prefix}.delta"),
            *_described(description),
        )


class FlatEncoder(_StepsEncoder):
    """One network on all steps' features side by side, to mean and log-variance.

    `network` takes T·(2d + A + A·d) inputs and gives 2k outputs. Agents of earlier versions have
    such an encoder; nothing writes a new one.
    """

    kind = "flat"

    def __init__(
        self,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        num_actions: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
    ) -> None:
        super().__init__(observation_scaler, delta_scaler, num_actions, steps, log_var_range)
        self.network, self.latent_dim = network, network.output_dim // 2
        self._check_network(network, steps * self.step_dim)

    def encode(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        features = self._features(observations, actions)
        output = self.network(features.reshape(len(features), -1))
        return _halves(output, self.log_var_range)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Weights and scalers, under `prefix`."""
        return self.network.to_arrays(f"{prefix}.network") | self._scaler_arrays(prefix)

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, description: Mapping[str, Any], prefix: str
    ) -> FlatEncoder:
        """The encoder that `to_arrays(prefix)` and `describe()` wrote."""
        return cls(
            MLP.from_arrays(arrays, f"{prefix}.network"),
            Standardiser.from_arrays(arrays, f"{prefix}.observation"),
            Standardiser.from_arrays(arrays, f"{prefix}.delta"),
            *_described(description),
        )


class LstmEncoder:
    """A bidirectional LSTM over steps, mean-pooled over time, then `head` to mean, log-variance.

    Inputs of a step are the standardised s and the one-hot a, `[d + A]`: the paper's segment, which
    has no final state. With a `delta_scaler` the standardised change s′ − s follows them,
    `[d + A + d]`, and the final state is in the last step. `head` takes the mean over time of
    (forward, backward) states, `[2H]`, and gives 2k outputs.
    """

    kind = "lstm"

    def __init__(
        self,
        forward: LstmWeights,
        backward: LstmWeights,
        head: MLP,
        observation_scaler: Standardiser,
        num_actions: int,
        steps: int,
        log_var_range: tuple[float, float] = (-10.0, 4.0),
        delta_scaler: Standardiser | None = None,
    ) -> None:
        self.delta_scaler = delta_scaler
        self.directions = (_lstm_weights(forward), _lstm_weights(backward))
        self.head, self.observation_scaler = head, observation_scaler
        self.num_actions, self.steps, self.log_var_range = num_actions, steps, log_var_range
        self.observation_dim = observation_scaler.dim
        self.latent_dim = head.output_dim // 2
        self.hidden_dim = head.input_dim // 2
        size, inputs = self.hidden_dim, self.observation_dim + num_actions
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

    def encode(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        _check_segments(observations, actions, self.steps, self.observation_dim)
        raw = np.asarray(observations, dtype=np.float32)
        parts = [self.observation_scaler(raw[:, :-1]), one_hot(actions, self.num_actions)]
        if self.delta_scaler is not None:
            parts.append(self.delta_scaler(raw[:, 1:] - raw[:, :-1]))
        inputs = np.concatenate(parts, axis=2)
        forward = _run_lstm(inputs, self.directions[0])
        backward = _run_lstm(inputs[:, ::-1], self.directions[1])
        pooled = np.concatenate([forward.mean(axis=1), backward.mean(axis=1)], axis=1)
        return _halves(self.head(pooled), self.log_var_range)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Weights and scalers, under `prefix`."""
        arrays = {
            **self.head.to_arrays(f"{prefix}.head"),
            **self.observation_scaler.to_arrays(f"{prefix}.observation"),
        }
        if self.delta_scaler is not None:
            arrays |= self.delta_scaler.to_arrays(f"{prefix}.delta")
        for name, weights in zip(DIRECTIONS, self.directions, strict=True):
            for part, value in zip(LSTM_PARTS, weights, strict=True):
                arrays[f"{prefix}.{name}.{part}"] = value
        return arrays

    def describe(self) -> dict[str, Any]:
        """Kind, actions, steps, the range of log-variances, and whether it reads changes."""
        return _describe(self) | {"changes": self.delta_scaler is not None}

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, description: Mapping[str, Any], prefix: str
    ) -> LstmEncoder:
        """The encoder that `to_arrays(prefix)` and `describe()` wrote."""
        forward, backward = (
            (
                take(arrays, f"{prefix}.{name}.weight_ih", 2),
                take(arrays, f"{prefix}.{name}.weight_hh", 2),
                take(arrays, f"{prefix}.{name}.bias_ih", 1),
                take(arrays, f"{prefix}.{name}.bias_hh", 1),
            )
            for name in DIRECTIONS
        )
        # Encoders of earlier versions read pairs (s, a) and do not mention changes.
        changes = field({"changes": False} | dict(description), "changes", bool)
        return cls(
            forward,
            backward,
            MLP.from_arrays(arrays, f"{prefix}.head"),
            Standardiser.from_arrays(arrays, f"{prefix}.observation"),
            *_described(description),
            delta_scaler=Standardiser.from_arrays(arrays, f"{prefix}.delta") if changes else None,
        )


class TransitionEncoder:
    """Evidence of single transitions, added up: a segment of any length has a posterior.

    `average` takes (s, a), d + A inputs, and gives the change that is expected whatever the
    instance; `network` takes (s, a, ρ, a⊗ρ), 2d + A + A·d inputs, where ρ is the change less the
    expected one, and gives 2k outputs: a mean m and the log of a precision λ. Changes are in the
    units of `delta_scaler`; residuals count up to `residual_range`, log-precisions are clipped to
    `log_precision_range`. The prior is N(0, I).
    """

    kind = "transition"

    def __init__(
        self,
        average: MLP,
        network: MLP,
        observation_scaler: Standardiser,
        delta_scaler: Standardiser,
        num_actions: int,
        steps: int,
        residual_range: float = 10.0,
        log_precision_range: tuple[float, float] = (-10.0, 8.0),
    ) -> None:
        self.average, self.network = average, network
        self.observation_scaler, self.delta_scaler = observation_scaler, delta_scaler
        self.num_actions, self.steps, self.residual_range = num_actions, steps, residual_range
        self.log_precision_range = log_precision_range
        self.observation_dim = dim = observation_scaler.dim
        self.latent_dim = network.output_dim // 2
        inputs = (dim + num_actions, 2 * dim + num_actions + num_actions * dim)
        found = (average.input_dim, network.input_dim)
        outputs = average.output_dim == dim and network.output_dim % 2 == 0
        if delta_scaler.dim != dim or found != inputs or not outputs:
            raise AgentError(
                f"A transition encoder of {dim} columns and {num_actions} actions needs networks "
                f"of {inputs[0]} and {inputs[1]} inputs, found {found[0]} and {found[1]}."
            )

    def reading(self, steps: int) -> TransitionEncoder:
        """The same for segments of another length."""
        scalers = self.observation_scaler, self.delta_scaler
        ranges = self.residual_range, self.log_precision_range
        parts = self.average, self.network, *scalers, self.num_actions, steps
        return TransitionEncoder(*parts, *ranges)

    def evidence(
        self, before: NDArray[Any], actions: NDArray[Any], after: NDArray[Any]
    ) -> tuple[Array, Array]:
        """λm and λ, `[n, k]` each, of transitions `before[n, d]`, `actions[n]`, `after[n, d]`."""
        state = self.observation_scaler(before)
        taken = one_hot(actions, self.num_actions)
        change = self.delta_scaler(np.asarray(after, np.float32) - np.asarray(before, np.float32))
        rest = change - self.average(np.concatenate([state, taken], axis=1))
        rest = np.clip(rest, -self.residual_range, self.residual_range)
        crossed = (taken[:, :, None] * rest[:, None, :]).reshape(len(state), -1)
        return self._weighed(self.network(np.concatenate([state, taken, rest, crossed], axis=1)))

    def evidence_of_one(self, before: Array, action: int, after: Array) -> tuple[Array, Array]:
        """The same for one transition, `[k]` each; faster than a batch of one."""
        dim, actions = self.observation_dim, self.num_actions
        row = np.zeros(self.network.input_dim, dtype=np.float32)
        row[:dim] = self.observation_scaler(before)
        row[dim + action] = 1
        rest = self.delta_scaler(after - before) - self.average.row(row[: dim + actions])
        rest = np.clip(rest, -self.residual_range, self.residual_range)
        row[dim + actions : 2 * dim + actions] = rest
        crossed = 2 * dim + actions + action * dim
        row[crossed : crossed + dim] = rest
        return self._weighed(self.network.row(row))

    def _weighed(self, output: Array) -> tuple[Array, Array]:
        """λm and λ from the network's output `[..., 2k]`."""
        size = self.latent_dim
        precision = np.exp(np.clip(output[..., size:], *self.log_precision_range))
        return precision * output[..., :size], precision

    def encode(self, observations: NDArray[Any], actions: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        _check_segments(observations, actions, self.steps, self.observation_dim)
        raw = np.asarray(observations, dtype=np.float32)
        count, dim = len(actions), self.observation_dim
        weighted, precision = self.evidence(
            raw[:, :-1].reshape(-1, dim), actions.reshape(-1), raw[:, 1:].reshape(-1, dim)
        )
        shape = (count, self.steps, self.latent_dim)
        return posterior(weighted.reshape(shape).sum(axis=1), precision.reshape(shape).sum(axis=1))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Weights and scalers, under `prefix`."""
        return {
            **self.average.to_arrays(f"{prefix}.average"),
            **self.network.to_arrays(f"{prefix}.network"),
            **self.observation_scaler.to_arrays(f"{prefix}.observation"),
            **self.delta_scaler.to_arrays(f"{prefix}.delta"),
        }

    def describe(self) -> dict[str, Any]:
        """Kind, actions, steps and the range of residuals."""
        return {
            "kind": self.kind,
            "num_actions": self.num_actions,
            "steps": self.steps,
            "residual_range": self.residual_range,
            "log_precision_range": list(self.log_precision_range),
        }

    @classmethod
    def from_arrays(
        cls, arrays: Arrays, description: Mapping[str, Any], prefix: str
    ) -> TransitionEncoder:
        """The encoder that `to_arrays(prefix)` and `describe()` wrote."""
        residual_range = field(description, "residual_range", float)
        if not 0 < residual_range < math.inf:
            raise AgentError(
                f"The agent's residual_range is {residual_range}, expected a finite number above 0."
            )
        return cls(
            MLP.from_arrays(arrays, f"{prefix}.average"),
            MLP.from_arrays(arrays, f"{prefix}.network"),
            Standardiser.from_arrays(arrays, f"{prefix}.observation"),
            Standardiser.from_arrays(arrays, f"{prefix}.delta"),
            count(description, "num_actions", MOST_ACTIONS),
            count(description, "steps"),
            residual_range,
            pair(description, "log_precision_range"),
        )


def posterior(weighted: Array, precision: Array) -> tuple[Array, Array]:
    """Mean and log-variance from summed evidence `[..., k]` and the prior N(0, I)."""
    return weighted / (1 + precision), -np.log1p(precision)


LSTM_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
AnyEncoder = PooledEncoder | FlatEncoder | LstmEncoder | TransitionEncoder
ENCODERS: dict[str, type[AnyEncoder]] = {
    PooledEncoder.kind: PooledEncoder,
    FlatEncoder.kind: FlatEncoder,
    LstmEncoder.kind: LstmEncoder,
    TransitionEncoder.kind: TransitionEncoder,
}


def encoder_from_arrays(arrays: Arrays, description: Mapping[str, Any], prefix: str) -> AnyEncoder:
    """The encoder that `description` names."""
    kind = description.get("kind")
    if kind not in ENCODERS:
        raise AgentError(
            f"There is no encoder {kind!r}; expected one of {', '.join(sorted(ENCODERS))}."
        )
    return ENCODERS[kind].from_arrays(arrays, description, prefix)


def _halves(output: Array, log_var_range: tuple[float, float]) -> tuple[Array, Array]:
    size = output.shape[1] // 2
    return output[:, :size].copy(), np.clip(output[:, size:], *log_var_range).astype(np.float32)


def _describe(encoder: _StepsEncoder | LstmEncoder) -> dict[str, Any]:
    return {
        "kind": encoder.kind,
        "num_actions": encoder.num_actions,
        "steps": encoder.steps,
        "log_var_range": list(encoder.log_var_range),
    }


def _described(description: Mapping[str, Any]) -> tuple[int, int, tuple[float, float]]:
    return (
        count(description, "num_actions", MOST_ACTIONS),
        count(description, "steps"),
        pair(description, "log_var_range"),
    )


def _lstm_weights(weights: LstmWeights) -> LstmWeights:
    w_ih, w_hh, b_ih, b_hh = (np.ascontiguousarray(w, dtype=np.float32) for w in weights)
    return w_ih, w_hh, b_ih, b_hh


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

"""The networks of an agent as ONNX operators, with their weights and scalers.

The normal distribution function and its inverse, which ONNX lacks in float64, are Chebyshev
polynomials, interpolated when a graph is made, of what is left once the growth of the functions is
taken out. They agree with the library's own to some 1e-13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent.encoders import (
    FlatEncoder,
    LstmEncoder,
    PooledEncoder,
    TransitionEncoder,
)
from sept_offline.agent.networks import MLP, Constrained, Ensemble, Standardiser
from sept_offline.agent.novelty import LOG_TWO_PI, TransitionDecoder
from sept_offline.errors import AgentError
from sept_offline.tools.deploy.graph import Graph, Tensor, concat

F32, F64 = np.float32, np.float64
LEAST = 1e-16
"""Smallest probability that `normal_quantile` is evaluated at."""
FARTHEST = 25.0
"""Beyond this the complementary error function counts as 0."""
DEGREE = 36


def standardised(x: Tensor, scaler: Standardiser) -> Tensor:
    """`x[..., k]`, standardised."""
    standard = (x - scaler.mean) * scaler.inverse
    if scaler.limits is None:
        return standard
    low, high = (x.graph.constant(limit) for limit in scaler.limits)
    return standard.op("Max", low).op("Min", high)


def layers(x: Tensor, network: MLP) -> Tensor:
    """`x[n, inputs]` to `[n, outputs]`; in float64 where the library computes in it."""

    def constant(value: Any) -> Tensor:
        small = x.graph.constant(value)
        return small.cast(F64) if network.double else small

    def normalised(value: Tensor, norm: tuple[Any, Any]) -> Tensor:
        return value.op("LayerNormalization", *map(constant, norm), axis=-1, epsilon=1e-5)

    value = x.cast(F64) if network.double else x
    last = len(network.layers) - 1
    for index, (weight, bias) in enumerate(network.layers):
        value = value.op("Gemm", constant(weight), constant(bias), transB=1)
        if index == last:
            break
        norm = network.norms[index]
        if norm is not None and network.norm_first:
            value = normalised(value, norm)
        value = value.op("Relu" if network.activation == "relu" else "Tanh")
        if norm is not None and not network.norm_first:
            value = normalised(value, norm)
    return value.op("Tanh") if network.squashed else value


def network(x: Tensor, whole: object) -> Tensor:
    """The outputs of control's network, of any kind."""
    if isinstance(whole, MLP):
        return layers(x, whole)
    if isinstance(whole, Ensemble):
        first, *others = (layers(x, member) for member in whole.members)
        return first.op("Sum", *others) * (1 / len(whole.members))
    if isinstance(whole, Constrained):
        logits, values = network(x, whole.imitator), network(x, whole.values)
        top = logits.op("ReduceMax", axes=[1], keepdims=1)
        likely = (logits - top).op("Greater", np.log(whole.flexibility))
        lowest = values.op("ReduceMin", axes=[1], keepdims=1)
        return (values - lowest + 1e-5) * likely.cast(F32)
    raise AgentError(f"A control of kind {type(whole).__name__} has no ONNX graph.")


def taken_actions(graph: Graph, steps: int, space: ActionSpace) -> Tensor:
    """The input `actions[n, steps, …]`, encoded: `[n, steps, w]`."""
    actions = graph.input("actions", space.dtype, "n", steps, *space.shape)
    if isinstance(space, Box):
        return ((actions.cast(F64) - space.centre) / space.half).cast(F32)
    return graph.constant(np.eye(space.width)).op("Gather", actions, axis=0)


class Segment:
    """The inputs of encoder and decoder from `observations[n, T+1, d]`, `actions[n, T, …]`."""

    def __init__(self, graph: Graph, observations: Tensor, steps: int, space: ActionSpace) -> None:
        self.graph, self.steps, self.action_width = graph, steps, space.width
        self.before = observations.slice(0, steps, 1)
        self.change = observations.slice(1, steps + 1, 1) - self.before
        self.taken = taken_actions(graph, steps, space)


def encoded(segment: Segment, encoder: object) -> tuple[Tensor, Tensor]:
    """Mean and log-variance, `[n, k]` each."""
    if isinstance(encoder, TransitionEncoder):
        return posterior(*evidence(segment, encoder))
    if isinstance(encoder, PooledEncoder):
        output = _pooled(segment, encoder)
    elif isinstance(encoder, FlatEncoder):
        row = _steps(segment, encoder).reshape(0, encoder.network.input_dim)
        output = layers(row, encoder.network)
    elif isinstance(encoder, LstmEncoder):
        output = _lstm(segment, encoder)
    else:
        raise AgentError(f"An encoder of kind {type(encoder).__name__} has no ONNX graph.")
    size = encoder.latent_dim
    bounds = list(map(segment.graph.constant, encoder.log_var_range))
    log_var = output.slice(size, 2 * size, 1).op("Clip", *bounds)
    return output.slice(0, size, 1), log_var


def evidence(segment: Segment, encoder: TransitionEncoder) -> tuple[Tensor, Tensor]:
    """Σλm and Σλ over the segment, `[n, k]` each."""
    dim, actions, size = encoder.observation_dim, segment.action_width, encoder.latent_dim
    state = standardised(segment.before, encoder.observation_scaler)
    change = standardised(segment.change, encoder.delta_scaler)
    known = concat(state, segment.taken, axis=2)
    expected = layers(known.reshape(-1, dim + actions), encoder.average)
    limit = encoder.residual_range
    rest = (change.reshape(-1, dim).cast(F64) - expected).op("Clip", -limit, limit)
    rest = rest.reshape(-1, segment.steps, dim)
    taken, known = segment.taken.cast(F64), known.cast(F64)
    read = concat(known, rest, _crossed(taken, rest, actions * dim), axis=2)
    output = layers(read.reshape(-1, encoder.network.input_dim), encoder.network)
    bounds = list(map(segment.graph.double, encoder.log_precision_range))
    precision = output.slice(size, 2 * size, 1).op("Clip", *bounds).exp()
    weighted = precision * output.slice(0, size, 1)
    total, sure = (
        part.cast(F32).reshape(-1, segment.steps, size).sum(1) for part in (weighted, precision)
    )
    return total, sure


def posterior(weighted: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and log-variance from summed evidence and the prior N(0, I), `[n, k]` each."""
    whole = precision + 1.0
    return weighted / whole, -whole.op("Log")


def _crossed(taken: Tensor, other: Tensor, columns: int) -> Tensor:
    """The product of every column of `taken[n, T, w]` with every one of `other[n, T, d]`."""
    return (taken.unsqueeze(3) * other.unsqueeze(2)).reshape(0, 0, columns)


def _steps(segment: Segment, encoder: PooledEncoder | FlatEncoder) -> Tensor:
    """The features of each step, `[n, T, 2d + w + w·d]`."""
    state = standardised(segment.before, encoder.observation_scaler)
    delta = standardised(segment.change, encoder.delta_scaler)
    crossed = _crossed(segment.taken, delta, segment.action_width * encoder.observation_dim)
    return concat(state, segment.taken, delta, crossed, axis=2)


def _pooled(segment: Segment, encoder: PooledEncoder) -> Tensor:
    rows = _steps(segment, encoder).reshape(-1, encoder.step_dim)
    read = layers(rows, encoder.each).op("Relu")
    by_step = read.reshape(-1, segment.steps, encoder.each.output_dim)
    return layers(by_step.mean(1), encoder.head)


def _lstm(segment: Segment, encoder: LstmEncoder) -> Tensor:
    parts = [standardised(segment.before, encoder.observation_scaler), segment.taken]
    if encoder.delta_scaler is not None:
        parts.append(standardised(segment.change, encoder.delta_scaler))
    size, ways = encoder.hidden_dim, encoder.directions
    # ONNX has the gates in the order i, o, f, g
    order = np.concatenate([np.arange(size) + place * size for place in (0, 3, 1, 2)])
    read = concat(*parts, axis=2).op("Transpose", perm=[1, 0, 2])
    states = read.op(
        "LSTM",
        np.stack([way[0][order] for way in ways]),
        np.stack([way[1][order] for way in ways]),
        np.stack([np.concatenate([way[2][order], way[3][order]]) for way in ways]),
        direction="bidirectional",
        hidden_size=size,
    )
    pooled = states.mean(0).op("Transpose", perm=[1, 0, 2])
    return layers(pooled.reshape(0, 2 * size), encoder.head)


def log_likelihood(segment: Segment, points: Tensor, decoder: TransitionDecoder) -> Tensor:
    """Σ_t log p(s_{t+1} − s_t | s_t, a_t, z), `[n, p]` float64, at each of `points[n, p, k]`."""
    dim, size, count = decoder.observation_dim, decoder.latent_dim, 2 * decoder.latent_dim
    steps, actions = segment.steps, segment.action_width

    def at_each_point(value: Tensor) -> Tensor:
        return value.unsqueeze(1).expand(1, count, 1, 1)

    state = at_each_point(standardised(segment.before, decoder.observation_scaler))
    delta = at_each_point(standardised(segment.change, decoder.delta_scaler))
    taken = at_each_point(segment.taken)
    latent = points.cast(F32).unsqueeze(2).expand(1, 1, steps, 1)
    crossed = (taken.unsqueeze(4) * latent.unsqueeze(3)).reshape(0, 0, 0, actions * size)
    read = concat(state, taken, latent, crossed, axis=3)
    output = layers(read.reshape(-1, decoder.network.input_dim), decoder.network).cast(F64)
    mean = output.slice(0, dim, 1)
    if decoder.average is not None:
        known = concat(state, taken, axis=3).reshape(-1, dim + actions)
        mean = mean + layers(known, decoder.average).cast(F64)
    bounds = list(map(segment.graph.double, decoder.log_var_range))
    log_var = output.slice(dim, 2 * dim, 1).op("Clip", *bounds)
    wrong = delta.reshape(-1, dim).cast(F64) - mean
    precision = (-log_var).exp()
    terms = wrong * wrong * precision + log_var + LOG_TWO_PI
    return terms.sum(1).reshape(-1, count, steps).sum(2) * -0.5


def normal_mass(x: Tensor) -> Tensor:
    """Φ(x), elementwise: with y = |x|/√2 and t = 2/(2 + y), erfc(y) = t·exp(P(t) − y²)."""

    def rest(t: float) -> float:
        y = 2 / t - 2
        return math.log(math.erfc(y) / t) + y * y

    y = (x.op("Abs") * math.sqrt(0.5)).op("Min", FARTHEST)
    t = x.graph.double(2) / (y + 2)
    power = _polynomial(t, rest, 2 / (2 + FARTHEST), 1) - y * y
    tail = t * power.exp() * 0.5
    return x.op("Greater", 0).where(1 - tail, tail)


def normal_quantile(places: Tensor) -> Tensor:
    """Φ⁻¹(p), elementwise: for p ≤ ½ a polynomial in log √(−2·log p), mirrored above."""
    inverse = NormalDist().inv_cdf

    def rest(s: float) -> float:
        return inverse(min(0.5, math.exp(-0.5 * math.exp(2 * s))))

    first, last = (math.log(math.sqrt(-2 * math.log(p))) for p in (0.5, LEAST))
    inside = places.op("Max", LEAST).op("Min", 1 - LEAST)
    above = inside.op("Greater", 0.5)
    mirrored = above.where(1 - inside, inside)
    root = (mirrored.op("Log") * -2).op("Sqrt")
    below = _polynomial(root.op("Log"), rest, first, last)
    return above.where(-below, below)


def _polynomial(x: Tensor, function: Callable[[float], float], low: float, high: float) -> Tensor:
    """A polynomial that interpolates `function` from `low` to `high`, by Clenshaw's recurrence."""
    fitted = np.polynomial.Chebyshev.interpolate(np.vectorize(function), DEGREE, domain=[low, high])
    places: list[float] = fitted.coef.tolist()
    t = (x - low) * (2 / (high - low)) - 1
    twice = t * 2
    newer, older = x.graph.double(places[-1]), x.graph.double(0)
    for coefficient in places[-2:0:-1]:
        newer, older = twice * newer - older + coefficient, newer
    return t * newer - older + places[0]

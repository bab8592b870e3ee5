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
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.deploy.graph import Graph
from sept_offline.errors import AgentError

LEAST = 1e-16
"""The least mass whose place is asked for; see `normal_quantile`."""
FARTHEST = 25.0
"""Beyond this the complementary error function is 0 for all that is done with it."""
DEGREE = 36


def standardised(graph: Graph, x: str, scaler: Standardiser) -> str:
    """`x[..., k]`, standardised."""
    centred = graph.op("Sub", x, graph.constant(scaler.mean))
    return graph.op("Mul", centred, graph.constant(scaler.inverse))


def layers(graph: Graph, x: str, network: MLP) -> str:
    """`x[n, inputs]` to `[n, outputs]`; in float64 where the library computes in it."""

    def constant(value: Any) -> str:
        small = graph.constant(value)
        return graph.cast(small, np.float64) if network.double else small

    if network.double:
        x = graph.cast(x, np.float64)
    last = len(network.layers) - 1
    for index, (weight, bias) in enumerate(network.layers):
        x = graph.op("Gemm", x, constant(weight), constant(bias), transB=1)
        if index == last:
            break
        norm = network.norms[index]
        if norm is not None and network.norm_first:
            x = _normalised(graph, x, *map(constant, norm))
        x = graph.op("Relu" if network.activation == "relu" else "Tanh", x)
        if norm is not None and not network.norm_first:
            x = _normalised(graph, x, *map(constant, norm))
    return graph.op("Tanh", x) if network.squashed else x


def _normalised(graph: Graph, x: str, gamma: str, beta: str) -> str:
    return graph.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)


def network(graph: Graph, x: str, whole: object) -> str:
    """The outputs of control's network, of any kind."""
    if isinstance(whole, MLP):
        return layers(graph, x, whole)
    if isinstance(whole, Ensemble):
        total = graph.op("Sum", *(layers(graph, x, member) for member in whole.members))
        kind = np.float64 if whole.squashed else np.float32
        return graph.op("Mul", total, graph.constant(1 / len(whole.members), kind))
    if isinstance(whole, Constrained):
        logits, values = network(graph, x, whole.imitator), network(graph, x, whole.values)
        top = graph.op("ReduceMax", logits, axes=[1], keepdims=1)
        least = graph.constant(np.log(whole.flexibility))
        likely = graph.op("Greater", graph.op("Sub", logits, top), least)
        lowest = graph.op("ReduceMin", values, axes=[1], keepdims=1)
        shifted = graph.op("Add", graph.op("Sub", values, lowest), graph.constant(1e-5))
        return graph.op("Mul", shifted, graph.cast(likely, np.float32))
    raise AgentError(f"A control of kind {type(whole).__name__} has no ONNX graph.")


def taken_actions(graph: Graph, steps: int, space: ActionSpace) -> str:
    """The input `actions[n, steps, …]`, encoded: `[n, steps, w]`."""
    actions = graph.input("actions", space.dtype, "n", steps, *space.shape)
    if not isinstance(space, Box):
        return graph.op("Gather", graph.constant(np.eye(space.width)), actions, axis=0)
    centred = graph.op("Sub", graph.cast(actions, np.float64), graph.double(space.centre))
    return graph.cast(graph.op("Div", centred, graph.double(space.half)), np.float32)


class Segment:
    """The inputs of encoder and decoder from `observations[n, T+1, d]`, `actions[n, T, …]`."""

    def __init__(self, graph: Graph, observations: str, steps: int, space: ActionSpace) -> None:
        self.steps, self.action_width = steps, space.width
        self.before = graph.slice(observations, 0, steps, 1)
        after = graph.slice(observations, 1, steps + 1, 1)
        self.change = graph.op("Sub", after, self.before)
        self.taken = taken_actions(graph, steps, space)


def encoded(graph: Graph, segment: Segment, encoder: object) -> tuple[str, str]:
    """Mean and log-variance, `[n, k]` each."""
    if isinstance(encoder, TransitionEncoder):
        return posterior(graph, *evidence(graph, segment, encoder))
    if isinstance(encoder, PooledEncoder):
        output = _pooled(graph, segment, encoder)
    elif isinstance(encoder, FlatEncoder):
        output = _flat(graph, segment, encoder)
    elif isinstance(encoder, LstmEncoder):
        output = _lstm(graph, segment, encoder)
    else:
        raise AgentError(f"An encoder of kind {type(encoder).__name__} has no ONNX graph.")
    size = encoder.latent_dim
    low, high = (graph.constant(bound) for bound in encoder.log_var_range)
    log_var = graph.op("Clip", graph.slice(output, size, 2 * size, 1), low, high)
    return graph.slice(output, 0, size, 1), log_var


def evidence(graph: Graph, segment: Segment, encoder: TransitionEncoder) -> tuple[str, str]:
    """Σλm and Σλ over the segment, `[n, k]` each."""
    dim, actions, size = encoder.observation_dim, segment.action_width, encoder.latent_dim
    state = standardised(graph, segment.before, encoder.observation_scaler)
    change = standardised(graph, segment.change, encoder.delta_scaler)
    known = graph.op("Concat", state, segment.taken, axis=2)
    expected = layers(graph, graph.reshape(known, -1, dim + actions), encoder.average)
    rest = graph.op("Sub", graph.cast(graph.reshape(change, -1, dim), np.float64), expected)
    limit = encoder.residual_range
    rest = graph.op("Clip", rest, graph.double(-limit), graph.double(limit))
    rest = graph.reshape(rest, -1, segment.steps, dim)
    taken, known = (graph.cast(part, np.float64) for part in (segment.taken, known))
    crossed = graph.op("Mul", graph.unsqueeze(taken, 3), graph.unsqueeze(rest, 2))
    crossed = graph.reshape(crossed, 0, 0, actions * dim)
    read = graph.op("Concat", known, rest, crossed, axis=2)
    output = layers(graph, graph.reshape(read, -1, encoder.network.input_dim), encoder.network)
    low, high = (graph.double(bound) for bound in encoder.log_precision_range)
    precision = graph.op("Exp", graph.op("Clip", graph.slice(output, size, 2 * size, 1), low, high))
    weighted = graph.op("Mul", precision, graph.slice(output, 0, size, 1))
    parts = (graph.cast(part, np.float32) for part in (weighted, precision))
    steps = (graph.reshape(part, -1, segment.steps, size) for part in parts)
    total, sure = (graph.sum(part, 1) for part in steps)
    return total, sure


def posterior(graph: Graph, weighted: str, precision: str) -> tuple[str, str]:
    """Mean and log-variance from summed evidence and the prior N(0, I), `[n, k]` each."""
    whole = graph.op("Add", precision, graph.constant(1.0))
    return graph.op("Div", weighted, whole), graph.op("Neg", graph.op("Log", whole))


def _steps(graph: Graph, segment: Segment, encoder: PooledEncoder | FlatEncoder) -> str:
    """The features of each step, `[n, T, 2d + w + w·d]`."""
    state = standardised(graph, segment.before, encoder.observation_scaler)
    delta = standardised(graph, segment.change, encoder.delta_scaler)
    crossed = graph.op("Mul", graph.unsqueeze(segment.taken, 3), graph.unsqueeze(delta, 2))
    crossed = graph.reshape(crossed, 0, 0, segment.action_width * encoder.observation_dim)
    return graph.op("Concat", state, segment.taken, delta, crossed, axis=2)


def _pooled(graph: Graph, segment: Segment, encoder: PooledEncoder) -> str:
    rows = graph.reshape(_steps(graph, segment, encoder), -1, encoder.step_dim)
    read = graph.op("Relu", layers(graph, rows, encoder.each))
    by_step = graph.reshape(read, -1, segment.steps, encoder.each.output_dim)
    return layers(graph, graph.mean(by_step, 1), encoder.head)


def _flat(graph: Graph, segment: Segment, encoder: FlatEncoder) -> str:
    row = graph.reshape(_steps(graph, segment, encoder), 0, encoder.network.input_dim)
    return layers(graph, row, encoder.network)


def _lstm(graph: Graph, segment: Segment, encoder: LstmEncoder) -> str:
    parts = [standardised(graph, segment.before, encoder.observation_scaler), segment.taken]
    if encoder.delta_scaler is not None:
        parts.append(standardised(graph, segment.change, encoder.delta_scaler))
    read = graph.op("Concat", *parts, axis=2)
    read = graph.op("Transpose", read, perm=[1, 0, 2])
    size = encoder.hidden_dim
    # ONNX has the gates in the order i, o, f, g
    order = np.concatenate([np.arange(size) + place * size for place in (0, 3, 1, 2)])
    ways = encoder.directions
    states = graph.op(
        "LSTM",
        read,
        graph.constant(np.stack([way[0][order] for way in ways])),
        graph.constant(np.stack([way[1][order] for way in ways])),
        graph.constant(np.stack([np.concatenate([way[2][order], way[3][order]]) for way in ways])),
        direction="bidirectional",
        hidden_size=size,
    )
    pooled = graph.op("Transpose", graph.mean(states, 0), perm=[1, 0, 2])
    return layers(graph, graph.reshape(pooled, 0, 2 * size), encoder.head)


def log_likelihood(graph: Graph, segment: Segment, points: str, decoder: TransitionDecoder) -> str:
    """Σ_t log p(s_{t+1} − s_t | s_t, a_t, z), `[n, p]` float64, at each of `points[n, p, k]`."""
    dim, size, count = decoder.observation_dim, decoder.latent_dim, 2 * decoder.latent_dim
    steps, actions = segment.steps, segment.action_width

    def at_each_point(value: str) -> str:
        return graph.expand(graph.unsqueeze(value, 1), 1, count, 1, 1)

    state = at_each_point(standardised(graph, segment.before, decoder.observation_scaler))
    delta = at_each_point(standardised(graph, segment.change, decoder.delta_scaler))
    taken = at_each_point(segment.taken)
    latent = graph.unsqueeze(graph.cast(points, np.float32), 2)
    latent = graph.expand(latent, 1, 1, steps, 1)
    crossed = graph.op("Mul", graph.unsqueeze(taken, 4), graph.unsqueeze(latent, 3))
    crossed = graph.reshape(crossed, 0, 0, 0, actions * size)
    read = graph.op("Concat", state, taken, latent, crossed, axis=3)
    rows = graph.reshape(read, -1, decoder.network.input_dim)
    output = graph.cast(layers(graph, rows, decoder.network), np.float64)
    mean = graph.slice(output, 0, dim, 1)
    if decoder.average is not None:
        known = graph.reshape(graph.op("Concat", state, taken, axis=3), -1, dim + actions)
        expected = graph.cast(layers(graph, known, decoder.average), np.float64)
        mean = graph.op("Add", mean, expected)
    low, high = (graph.double(bound) for bound in decoder.log_var_range)
    log_var = graph.op("Clip", graph.slice(output, dim, 2 * dim, 1), low, high)
    wrong = graph.op("Sub", graph.cast(graph.reshape(delta, -1, dim), np.float64), mean)
    precision = graph.op("Exp", graph.op("Neg", log_var))
    terms = graph.op("Mul", graph.op("Mul", wrong, wrong), precision)
    terms = graph.op("Add", graph.op("Add", terms, log_var), graph.double(np.log(2 * np.pi)))
    total = graph.sum(graph.reshape(graph.sum(terms, 1), -1, count, steps), 2)
    return graph.op("Mul", total, graph.double(-0.5))


def normal_mass(graph: Graph, x: str) -> str:
    """Φ(x), elementwise: with y = |x|/√2 and t = 2/(2 + y), erfc(y) = t·exp(P(t) − y²)."""

    def rest(t: float) -> float:
        y = 2 / t - 2
        return math.log(math.erfc(y) / t) + y * y

    y = graph.op("Mul", graph.op("Abs", x), graph.double(math.sqrt(0.5)))
    y = graph.op("Min", y, graph.double(FARTHEST))
    t = graph.op("Div", graph.double(2), graph.op("Add", y, graph.double(2)))
    power = graph.op(
        "Sub", _polynomial(graph, t, rest, 2 / (2 + FARTHEST), 1), graph.op("Mul", y, y)
    )
    tail = graph.op("Mul", graph.op("Mul", t, graph.op("Exp", power)), graph.double(0.5))
    above = graph.op("Greater", x, graph.double(0))
    return graph.op("Where", above, graph.op("Sub", graph.double(1), tail), tail)


def normal_quantile(graph: Graph, places: str) -> str:
    """Φ⁻¹(p), elementwise: for p ≤ ½ a polynomial in log √(−2·log p), mirrored above."""
    inverse = NormalDist().inv_cdf

    def rest(s: float) -> float:
        return inverse(min(0.5, math.exp(-0.5 * math.exp(2 * s))))

    first, last = (math.log(math.sqrt(-2 * math.log(p))) for p in (0.5, LEAST))
    low, high = graph.double(LEAST), graph.double(1 - LEAST)
    inside = graph.op("Min", graph.op("Max", places, low), high)
    above = graph.op("Greater", inside, graph.double(0.5))
    mirrored = graph.op("Where", above, graph.op("Sub", graph.double(1), inside), inside)
    root = graph.op("Sqrt", graph.op("Mul", graph.op("Log", mirrored), graph.double(-2)))
    found = _polynomial(graph, graph.op("Log", root), rest, first, last)
    return graph.op("Where", above, graph.op("Neg", found), found)


def _polynomial(
    graph: Graph, x: str, function: Callable[[float], float], low: float, high: float
) -> str:
    """A polynomial that interpolates `function` from `low` to `high`, by Clenshaw's recurrence."""
    places = np.polynomial.Chebyshev.interpolate(
        np.vectorize(function), DEGREE, domain=[low, high]
    ).coef
    scale = 2 / (high - low)
    t = graph.op("Mul", graph.op("Sub", x, graph.double(low)), graph.double(scale))
    t = graph.op("Sub", t, graph.double(1))
    twice = graph.op("Mul", t, graph.double(2))
    newer, older = graph.double(places[-1]), graph.double(0)
    for coefficient in places[-2:0:-1]:
        grown = graph.op("Sub", graph.op("Mul", twice, newer), older)
        newer, older = graph.op("Add", grown, graph.double(coefficient)), newer
    grown = graph.op("Sub", graph.op("Mul", t, newer), older)
    return graph.op("Add", grown, graph.double(places[0]))

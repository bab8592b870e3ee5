"""The networks of an agent as ONNX operators, with their weights and scalers.

The normal distribution function and its inverse, which ONNX lacks in float64, are Chebyshev
polynomials, interpolated when a graph is made, of what is left once the growth of the functions is
taken out. They agree with the library's own to some 1e-13.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent.encoders import FlatEncoder, LstmEncoder, PooledEncoder, TransitionEncoder
from sept_offline.agent.networks import MLP, Constrained, Ensemble, Standardiser
from sept_offline.agent.novelty import LOG_TWO_PI, TransitionDecoder
from sept_offline.errors import AgentError, ConfigError

OPSET, IR_VERSION = 17, 8
"""The first operator set with LayerNormalization, which older runtimes support too."""
COMPARISONS = ("Greater", "Less", "LessOrEqual")


class Tensor:
    """A value in a graph under construction: every operation adds an operator to the graph."""

    def __init__(self, graph: Graph, name: str, dtype: Any) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def op(self, kind: str, *others: Any, dtype: Any = None, **attributes: Any) -> Tensor:
        """Add the operator `kind` on this tensor and others; returns its first output.

        Numbers among the others become constants of this tensor's type, which the output has too
        unless `dtype` says otherwise.
        """
        if kind in COMPARISONS:
            dtype = bool
        inputs = [self, *(self._tensor(other) for other in others)]
        return self.graph.node(kind, inputs, dtype or self.dtype, **attributes)

    def _tensor(self, value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else self.graph.constant(value, self.dtype)

    def __add__(self, other: Any) -> Tensor:
        return self.op("Add", other)

    def __sub__(self, other: Any) -> Tensor:
        return self.op("Sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._tensor(other) - self

    def __mul__(self, other: Any) -> Tensor:
        return self.op("Mul", other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.op("Div", other)

    def __neg__(self) -> Tensor:
        return self.op("Neg")

    def exp(self) -> Tensor:
        """e to the power of each entry."""
        return self.op("Exp")

    def where(self, chosen: Tensor, other: Any) -> Tensor:
        """`chosen` where this one is true, else `other`."""
        tensors = [self, chosen, chosen._tensor(other)]
        return self.graph.node("Where", tensors, chosen.dtype)

    def cast(self, dtype: Any) -> Tensor:
        """Converted to another type."""
        return self.op("Cast", dtype=dtype, to=_type(dtype))

    def reshape(self, *shape: int) -> Tensor:
        """In another shape; 0 keeps a size, −1 is inferred."""
        return self.op("Reshape", self.graph.constant(shape, np.int64))

    def unsqueeze(self, *axes: int) -> Tensor:
        """With new axes of size 1."""
        return self.op("Unsqueeze", self.graph.constant(axes, np.int64))

    def slice(self, start: int, end: int, axis: int) -> Tensor:
        """From `start` up to `end` along an axis."""
        return self.op("Slice", *(self.graph.constant([at], np.int64) for at in (start, end, axis)))

    def sum(self, axis: int, keep: bool = False) -> Tensor:
        """The sum along an axis."""
        return self.op("ReduceSum", self.graph.constant([axis], np.int64), keepdims=int(keep))

    def mean(self, axis: int, keep: bool = False) -> Tensor:
        """The mean along an axis."""
        return self.op("ReduceMean", axes=[axis], keepdims=int(keep))

    def expand(self, *shape: int) -> Tensor:
        """Repeated along its axes of size 1; a size of 1 keeps an axis unchanged."""
        return self.op("Expand", self.graph.constant(shape, np.int64))


def concat(*tensors: Tensor, axis: int) -> Tensor:
    """Tensors side by side along an axis."""
    return tensors[0].op("Concat", *tensors[1:], axis=axis)


class Graph:
    """A graph under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.signature: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
        """Inputs and outputs by name, each with its type and shape, JSON-ready."""
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: Any, *shape: int | str) -> Tensor:
        """Add an input tensor; a size that may vary is given as a name."""
        self._inputs.append(self._declare("inputs", name, dtype, shape))
        return Tensor(self, name, dtype)

    def output(self, name: str, value: Tensor, *shape: int | str) -> None:
        """Add `value` as the output `name`."""
        self._nodes.append(_onnx().helper.make_node("Identity", [value.name], [name]))
        self._outputs.append(self._declare("outputs", name, value.dtype, shape))

    def constant(self, value: Any, dtype: Any = np.float32) -> Tensor:
        """Add a constant array."""
        array = np.ascontiguousarray(value, dtype=dtype).reshape(np.shape(value))
        name = f"constant_{len(self._constants)}"
        self._constants.append(_onnx().numpy_helper.from_array(array, name))
        return Tensor(self, name, dtype)

    def double(self, value: Any) -> Tensor:
        """Add a constant array of float64."""
        return self.constant(value, np.float64)

    def node(self, kind: str, inputs: list[Tensor], dtype: Any, **attributes: Any) -> Tensor:
        """Add the operator `kind`; returns its first output, of type `dtype`."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        names = [tensor.name for tensor in inputs]
        self._nodes.append(_onnx().helper.make_node(kind, names, [name], **attributes))
        return Tensor(self, name, dtype)

    def finished(self) -> bytes:
        """The checked model, serialised."""
        from sept_offline import __version__

        onnx = _onnx()
        helper = onnx.helper
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="sept-offline",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _declare(self, way: str, name: str, dtype: Any, shape: tuple[int | str, ...]) -> Any:
        self.signature[way][name] = {"type": np.dtype(dtype).name, "shape": list(shape)}
        return _onnx().helper.make_tensor_value_info(name, _type(dtype), list(shape))


def _type(dtype: Any) -> int:
    code: int = _onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return code


def _onnx() -> Any:
    """The library that writes graphs."""
    module = library("onnx")
    for part in ("helper", "numpy_helper", "checker"):
        importlib.import_module(f"onnx.{part}")
    return module


def library(name: str) -> Any:
    """A library of the extra [onnx], or an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"An ONNX export needs the package {name!r}: pip install 'sept-offline[onnx]', "
            "or export with --numpy."
        ) from error


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

    value = x.cast(F64) if network.double and x.dtype != F64 else x
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

    def rows(self, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """Before `[n·T, d]`, change `[n·T, d]` and the encoded actions `[n·T, w]`."""
        before, change = (each.reshape(-1, dim) for each in (self.before, self.change))
        return before, change, self.taken.reshape(-1, self.action_width)


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
    # one row a step, which takes fewer operators than a row of steps
    before, change, taken = segment.rows(dim)
    state = standardised(before, encoder.observation_scaler)
    known = concat(state, taken, axis=1).cast(F64)
    expected = layers(known, encoder.average)
    limit = encoder.residual_range
    rest = standardised(change, encoder.delta_scaler).cast(F64) - expected
    rest = rest.op("Clip", -limit, limit)
    crossed = taken.cast(F64).unsqueeze(2) * rest.unsqueeze(1)
    read = concat(known, rest, crossed.reshape(-1, actions * dim), axis=1)
    output = layers(read, encoder.network)
    bounds = list(map(segment.graph.double, encoder.log_precision_range))
    precision = output.slice(size, 2 * size, 1).op("Clip", *bounds).exp()
    weighted = (precision * output.slice(0, size, 1)).cast(F32)
    if segment.steps == 1:
        return weighted, precision.cast(F32)
    total, sure = (
        part.reshape(-1, segment.steps, size).sum(1) for part in (weighted, precision.cast(F32))
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

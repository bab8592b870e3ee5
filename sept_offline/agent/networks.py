"""Forward passes of small networks in NumPy, without gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..actions import Box
from ..errors import AgentError

Array = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

NORM_EPSILON = np.float32(1e-5)
ACTIVATIONS = ("relu", "tanh")

_compiling: ContextVar[bool] = ContextVar("compiling", default=True)


@contextmanager
def plain_networks() -> Iterator[None]:
    """Networks made in this block compute single rows in NumPy even where numba is installed."""
    token = _compiling.set(False)
    try:
        yield
    finally:
        _compiling.reset(token)


class Network(ABC):
    """Rows in, rows out: `[n, input_dim]` to `[n, output_dim]`, or one row without the n."""

    input_dim: int
    output_dim: int
    squashed: bool = False
    """Whether the outputs went through tanh."""

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """The outputs `[n, output_dim]` of a batch `[n, input_dim]`, or of one row."""

    def row(self, x: Array) -> Array:
        """The outputs `[output_dim]` of one row `[input_dim]`; faster than a batch of one."""
        return self(x)

    @abstractmethod
    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""


def take(
    arrays: Arrays, name: str, ndim: int, dtype: type[np.floating[Any]] = np.float32
) -> NDArray[Any]:
    """The finite array `name`; an AgentError if it is missing or invalid."""
    if name not in arrays:
        raise AgentError(f"The agent's weights lack {name!r}; the agent is damaged, fit it again.")
    value = np.asarray(arrays[name])
    if value.dtype != dtype or value.ndim != ndim:
        raise AgentError(
            f"The agent's weights hold {name!r} as {value.dtype} of {value.ndim} dimensions, "
            f"expected {np.dtype(dtype)} of {ndim}; the agent is damaged, fit it again."
        )
    if not np.isfinite(value).all():
        raise AgentError(f"The agent's weights {name!r} are not all finite; fit the agent again.")
    return value


def _float32(value: Any) -> Array:
    return np.ascontiguousarray(value, dtype=np.float32)


def varying(rows: NDArray[Any], unit: float = 1e-9) -> NDArray[np.bool_]:
    """Which columns of `rows[n, k]` are not constant, `[k]`.

    Float32 noise on a constant is about 1e-7 of its size and must not be amplified: a column varies
    if it does so by 1e-6 of its largest value, and of `unit`. The default `unit` admits sensors
    that report picoamperes in amperes, but not the rounding errors of a column that should be 0.
    """
    values = np.asarray(rows, dtype=np.float64)
    return np.asarray(values.std(axis=0) > 1e-6 * np.maximum(np.abs(values).max(axis=0), unit))


class Standardiser:
    """(x − mean) / scale, per column: `mean[k]`, `scale[k]`, every scale above 0.

    `limits[2, k]`: the smallest and the largest result, if results are clipped.
    """

    def __init__(self, mean: Any, scale: Any, limits: Any = None) -> None:
        self.mean, self.scale = _float32(mean), _float32(scale)
        if self.mean.ndim != 1 or self.mean.shape != self.scale.shape:
            raise AgentError(
                f"A standardiser needs a mean and a scale of the same length, found shapes "
                f"{self.mean.shape} and {self.scale.shape}."
            )
        if not (self.scale > 0).all():
            raise AgentError("A standardiser's scales must all be above 0.")
        self.dim = len(self.mean)
        self.inverse = (np.float32(1) / self.scale).astype(np.float32)
        self.limits = None if limits is None else _float32(limits)
        if self.limits is not None:
            shaped = self.limits.shape == (2, self.dim)
            if not shaped or not (self.limits[0] <= self.limits[1]).all():
                raise AgentError(
                    f"A standardiser's limits must be two increasing rows of {self.dim} numbers."
                )

    @classmethod
    def identity(cls, dim: int) -> Standardiser:
        """The identity."""
        return cls(np.zeros(dim), np.ones(dim))

    @classmethod
    def fit(cls, rows: NDArray[Any], unit: float = 1e-9) -> Standardiser:
        """From the columns of `rows[n, k]`; a constant column (see `varying`) is only centred."""
        values = np.asarray(rows, dtype=np.float64)
        scale = np.where(varying(values, unit), values.std(axis=0), 1.0)
        return cls(values.mean(axis=0), scale)

    def within(self, rows: NDArray[Any]) -> Standardiser:
        """The same with results clipped, per column, to the range of those of `rows[n, k]`."""
        known = self(rows)
        return Standardiser(self.mean, self.scale, [known.min(axis=0), known.max(axis=0)])

    def __call__(self, x: NDArray[Any]) -> Array:
        """`x[..., k]`, standardised."""
        standard: Array = (np.asarray(x, dtype=np.float32) - self.mean) * self.inverse
        if self.limits is not None:
            # a call of np.clip takes longer than all of the above
            standard = np.minimum(np.maximum(standard, self.limits[0]), self.limits[1])
        return standard

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All arrays, under `prefix`."""
        arrays = {f"{prefix}.mean": self.mean, f"{prefix}.scale": self.scale}
        return arrays if self.limits is None else arrays | {f"{prefix}.limits": self.limits}

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> Standardiser:
        """The standardiser that `to_arrays(prefix)` wrote."""
        name = f"{prefix}.limits"
        limits = take(arrays, name, 2) if name in arrays else None
        return cls(take(arrays, f"{prefix}.mean", 1), take(arrays, f"{prefix}.scale", 1), limits)


class MLP(Network):
    """Linear layers with an activation, and an optional LayerNorm (eps 1e-5), in each but the last.

    `layers`: `(weight[out, in], bias[out])` each; `norms`: `(gamma[out], beta[out])` or None for
    each hidden layer. A hidden layer is Linear, LayerNorm, activation; with `norm_first=False` it
    is Linear, activation, LayerNorm, which is how d3rlpy builds its encoders. `squashed`: the
    outputs go through tanh, as those of d3rlpy's policies do. `double`: all is computed in float64,
    so that the float32 result does not depend on the order in which a library or a graph sums; a
    squashed network always is, because its outputs are an action and not values to compare.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Any, Any]],
        norms: Sequence[tuple[Any, Any] | None] | None = None,
        activation: str = "relu",
        norm_first: bool = True,
        squashed: bool = False,
        double: bool = False,
    ) -> None:
        if not layers:
            raise AgentError("A network needs at least one layer.")
        if activation not in ACTIVATIONS:
            raise AgentError(
                f"A network's activation is {activation!r}; expected one of "
                f"{', '.join(ACTIVATIONS)}."
            )
        hidden = len(layers) - 1
        given = [None] * hidden if norms is None else list(norms)
        if len(given) != hidden:
            raise AgentError(f"A network of {hidden} hidden layers has {len(given)} norms.")
        self.layers = [(_float32(weight), _float32(bias)) for weight, bias in layers]
        self.norms = [
            None if norm is None else (_float32(norm[0]), _float32(norm[1])) for norm in given
        ]
        self.activation = activation
        self.norm_first = norm_first
        self.squashed, self.double = squashed, double or squashed
        self._check_shapes()
        self.input_dim = int(self.layers[0][0].shape[1])
        self.output_dim = int(self.layers[-1][0].shape[0])
        self._relu = activation == "relu"
        self._compiled = _compiling.get()
        # made when first needed: most networks only ever see batches
        self._packed: tuple[Array, NDArray[np.int64]] | None = None
        self._forward: Callable[..., Array]
        self._decoded: Callable[..., Array]
        # gemm reads the transposed view as it lies in memory: nothing is copied for a batch
        self._dtype: Any = np.float64 if self.double else np.float32
        self._transposed = [
            (weight.T.astype(self._dtype, copy=False), bias) for weight, bias in self.layers
        ]

    def in_double(self) -> MLP:
        """The same network, computed in float64."""
        form = self.activation, self.norm_first, self.squashed
        return self if self.double else MLP(self.layers, self.norms, *form, double=True)

    def _check_shapes(self) -> None:
        width = None
        for index, (weight, bias) in enumerate(self.layers):
            if weight.ndim != 2 or bias.shape != weight.shape[:1]:
                raise AgentError(
                    f"Layer {index} of a network has weights of shape {weight.shape}, which "
                    f"do not fit a bias of shape {bias.shape}."
                )
            if width is not None and weight.shape[1] != width:
                raise AgentError(
                    f"Layer {index} of a network takes {weight.shape[1]} inputs, "
                    f"but the layer below gives {width}."
                )
            width = weight.shape[0]
        for index, norm in enumerate(self.norms):
            expected = self.layers[index][1].shape
            if norm is not None and (norm[0].shape != expected or norm[1].shape != expected):
                raise AgentError(f"The norm of layer {index} of a network does not fit its layer.")

    def __call__(self, x: Array) -> Array:
        """`x[n, input_dim]` to `[n, output_dim]`; a single row `[input_dim]` to `[output_dim]`."""
        if x.ndim == 1:
            return self.row(x)
        return self._through(x)

    def _through(self, x: Array) -> Array:
        """A batch, or one row, through all layers in NumPy."""
        value: NDArray[Any] = np.asarray(x, dtype=self._dtype)
        normalise = _normalise_row if value.ndim == 1 else _normalise_rows
        for (weight, bias), norm in zip(self._transposed[:-1], self.norms, strict=True):
            value = value @ weight
            value += bias
            if norm is not None and self.norm_first:
                value = normalise(value, *norm)
            value = self._activate(value)
            if norm is not None and not self.norm_first:
                value = normalise(value, *norm)
        weight, bias = self._transposed[-1]
        output: NDArray[Any] = value @ weight
        output += bias
        return np.tanh(output, out=output) if self.squashed else output

    def row(self, x: Array) -> Array:
        """The same for one row `x[input_dim]`: in compiled code, or in NumPy without numba."""
        packed = self._packed or self._pack()
        if packed is None:
            return self._through(x)
        weights, plan = packed
        row = np.ascontiguousarray(x, dtype=self._dtype)
        output: Array = self._forward(row, weights, plan, self._relu, self.squashed)
        return output

    def action(self, x: Array, box: Box) -> Array:
        """The action `[k]` in a box for one row: faster than `box.decode(self.row(x))`."""
        packed = self._packed or self._pack()
        if packed is None:
            return box.decode(self._through(x))
        row = np.ascontiguousarray(x, dtype=np.float32)
        action: Array = self._decoded(row, *packed, self._relu, box.scaling)
        return action

    def _pack(self) -> tuple[Array, NDArray[np.int64]] | None:
        """The weights as compiled code reads them; None where rows are computed in NumPy."""
        if self._compiled:
            try:
                from .kernels import decoded, forward, pack
            except ImportError:
                self._compiled = False
                return None
            self._forward, self._decoded = forward, decoded
            self._packed = pack(self.layers, self.norms, self.norm_first)
        return self._packed

    def _activate(self, value: Array) -> Array:
        if self._relu:
            return np.maximum(value, np.float32(0), out=value)
        return np.tanh(value, out=value)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Weights, and in `<prefix>.form` activation, place of the norms and squashing."""
        form = [ACTIVATIONS.index(self.activation), int(self.norm_first)]
        if self.squashed:
            form.append(1)
        arrays: dict[str, NDArray[Any]] = {f"{prefix}.form": np.array(form, dtype=np.int64)}
        for index, (weight, bias) in enumerate(self.layers):
            arrays[f"{prefix}.{index}.weight"] = weight
            arrays[f"{prefix}.{index}.bias"] = bias
        for index, norm in enumerate(self.norms):
            if norm is not None:
                arrays[f"{prefix}.{index}.gamma"], arrays[f"{prefix}.{index}.beta"] = norm
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> MLP:
        """The network that `to_arrays(prefix)` wrote."""
        form = np.asarray(arrays.get(f"{prefix}.form", ()))
        known = form.ndim == 1 and len(form) in (2, 3) and form[0] in range(len(ACTIVATIONS))
        if not known or not np.isin(form[1:], (0, 1)).all():
            raise AgentError(
                f"The agent's weights lack the network {prefix!r}; fit the agent again."
            )
        layers: list[tuple[Array, Array]] = []
        norms: list[tuple[Array, Array] | None] = []
        while f"{prefix}.{len(layers)}.weight" in arrays:
            name = f"{prefix}.{len(layers)}"
            layers.append((take(arrays, f"{name}.weight", 2), take(arrays, f"{name}.bias", 1)))
            norms.append(None)
            if f"{name}.gamma" in arrays:
                norms[-1] = take(arrays, f"{name}.gamma", 1), take(arrays, f"{name}.beta", 1)
        return cls(layers, norms[:-1], ACTIVATIONS[int(form[0])], *map(bool, form[1:]))


def _normalise_rows(value: Array, gamma: Array, beta: Array) -> Array:
    value -= value.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", value, value) / np.float32(value.shape[1])
    value *= (np.float32(1) / np.sqrt(variance + NORM_EPSILON))[:, None]
    value *= gamma
    value += beta
    return value


def _normalise_row(value: Array, gamma: Array, beta: Array) -> Array:
    size = np.float32(len(value))
    value -= np.add.reduce(value) / size
    value *= np.float32(1) / np.sqrt(value.dot(value) / size + NORM_EPSILON)
    value *= gamma
    value += beta
    return value


class Ensemble(Network):
    """The mean of several networks of the same shape."""

    def __init__(self, members: Sequence[MLP]) -> None:
        if not members:
            raise AgentError("An ensemble needs at least one network.")
        shapes = {(member.input_dim, member.output_dim, member.squashed) for member in members}
        if len(shapes) != 1:
            raise AgentError("The networks of an ensemble differ in their inputs or outputs.")
        self.members = list(members)
        self.input_dim, self.output_dim, self.squashed = shapes.pop()
        self._share = np.float32(1 / len(members))

    def __call__(self, x: Array) -> Array:
        """The mean output, `[n, input_dim]` to `[n, output_dim]`, or of a single row."""
        total = self.members[0](x)
        for member in self.members[1:]:
            total += member(x)
        total *= self._share
        return total

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Each member's weights, under `<prefix>.member<i>`."""
        arrays: dict[str, NDArray[Any]] = {}
        for index, member in enumerate(self.members):
            arrays |= member.to_arrays(f"{prefix}.member{index}")
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> Ensemble:
        """The ensemble that `to_arrays(prefix)` wrote."""
        members: list[MLP] = []
        while f"{prefix}.member{len(members)}.form" in arrays:
            members.append(MLP.from_arrays(arrays, f"{prefix}.member{len(members)}"))
        return cls(members)


class Constrained(Network):
    """Values of the actions that an imitator finds likely enough, as discrete BCQ acts.

    An action whose imitated probability is at most `flexibility` times the likeliest one's has
    value 0; the others' values are shifted to be positive, so that the best of them wins.
    """

    def __init__(self, values: MLP | Ensemble, imitator: MLP | Ensemble, flexibility: float):
        if (values.input_dim, values.output_dim) != (imitator.input_dim, imitator.output_dim):
            raise AgentError("The value network and its imitator differ in inputs or outputs.")
        if not 0 < flexibility < 1:
            raise AgentError(
                f"An imitator's threshold is {flexibility}; expected a number in (0, 1)."
            )
        self.values, self.imitator, self.flexibility = values, imitator, flexibility
        self.input_dim, self.output_dim = values.input_dim, values.output_dim
        self._least = np.float32(np.log(flexibility))

    def __call__(self, x: Array) -> Array:
        """Shifted values `[n, output_dim]`, 0 where the action is not allowed."""
        logits, values = self.imitator(x), self.values(x)
        allowed = logits - logits.max(axis=-1, keepdims=True) > self._least
        # the small constant keeps an allowed action above a forbidden one
        shifted: Array = (values - values.min(axis=-1, keepdims=True) + np.float32(1e-5)) * allowed
        return shifted

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Both networks' weights and the threshold."""
        return {
            **self.values.to_arrays(f"{prefix}.values"),
            **self.imitator.to_arrays(f"{prefix}.imitator"),
            f"{prefix}.flexibility": np.array([self.flexibility], dtype=np.float32),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, prefix: str) -> Constrained:
        """The pair that `to_arrays(prefix)` wrote."""
        values = _plain_from_arrays(arrays, f"{prefix}.values")
        imitator = _plain_from_arrays(arrays, f"{prefix}.imitator")
        flexibility = take(arrays, f"{prefix}.flexibility", 1)
        if len(flexibility) != 1:
            raise AgentError(f"The agent's weights lack the threshold {prefix}.flexibility.")
        return cls(values, imitator, float(flexibility[0]))


def _plain_from_arrays(arrays: Arrays, prefix: str) -> MLP | Ensemble:
    if f"{prefix}.member0.form" in arrays:
        return Ensemble.from_arrays(arrays, prefix)
    return MLP.from_arrays(arrays, prefix)


def network_from_arrays(arrays: Arrays, prefix: str) -> MLP | Ensemble | Constrained:
    """The network that was written under `prefix`, of any kind."""
    if f"{prefix}.flexibility" in arrays:
        return Constrained.from_arrays(arrays, prefix)
    return _plain_from_arrays(arrays, prefix)


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities along the last axis, in float64 so that they sum to 1 closely."""
    shifted = np.asarray(logits, dtype=np.float64)
    weights = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return probabilities

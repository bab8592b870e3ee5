"""One row through an MLP as compiled code: the path an action of a single episode takes.

A product of a matrix and a vector is bound by reading the weights. Half of a hidden layer is zero
after its ReLU, and the rows of weights that meet a zero need not be read; a LayerNorm that follows
the ReLU would fill the zeros in again, so it is folded into the layer above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
NO_NORM, NORM_FIRST, NORM_LAST = 0, 1, 2
NARROW = 32
"""A layer of fewer outputs is summed output by output: its rows are too short to add up."""
OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    # sums may be reordered, as any BLAS does; infinities and NaN keep their meaning
    "fastmath": {"reassoc", "contract", "nsz"},
}


def pack(
    layers: Sequence[tuple[Array, Array]],
    norms: Sequence[tuple[Array, Array] | None],
    norm_first: bool,
) -> tuple[Array, NDArray[np.int64]]:
    """The weights as `forward` reads them, and a plan `[layers, 3]` of (inputs, outputs, norm).

    A layer lies as: weights `[in, out]` (a narrow one `[out, in]`), bias, sums of the weights over
    inputs, gamma, beta. Where a norm comes last, its gamma and beta are in the next layer's weights
    and bias already, and the sums let that layer take the norm's mean off afterwards.
    """
    parts: list[Array] = []
    plan = np.zeros((len(layers), 3), dtype=np.int64)
    below: tuple[Array, Array] | None = None
    for index, (weight, bias) in enumerate(layers):
        norm = norms[index] if index < len(norms) else None
        transposed = weight.T.astype(np.float64)
        offset = bias.astype(np.float64)
        if below is not None:
            offset = offset + below[1].astype(np.float64) @ transposed
            transposed = below[0].astype(np.float64)[:, None] * transposed
        size = len(bias)
        kind = NO_NORM if norm is None else NORM_FIRST if norm_first else NORM_LAST
        gamma, beta = (np.ones(size), np.zeros(size)) if norm is None else norm
        laid = transposed.T if size < NARROW else transposed
        pieces = (laid.ravel(), offset, transposed.sum(axis=0), gamma, beta)
        parts.extend(np.asarray(piece, dtype=np.float32) for piece in pieces)
        plan[index] = (weight.shape[1], size, kind)
        below = norm if kind == NORM_LAST else None
    return np.concatenate(parts), plan


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]  # numba has no types
def _by_inputs(value: NDArray[Any], weights: NDArray[Any], outputs: int) -> NDArray[Any]:
    """Σ_i value[i] · weights[i, :], where a value is not zero; `weights` lie as `[in, out]`."""
    sums = np.zeros(outputs, dtype=value.dtype)
    active = np.empty(len(value), dtype=np.int64)
    count = 0
    for i in range(len(value)):
        # no branch: the signs of a hidden layer cannot be predicted
        active[count] = i
        count += value[i] != 0
    # four rows at a time, so that the sums are read and written a fourth as often
    whole = count - count % 4
    for k in range(0, whole, 4):
        a, b, c, d = active[k], active[k + 1], active[k + 2], active[k + 3]
        va, vb, vc, vd = value[a], value[b], value[c], value[d]
        row_a = weights[a * outputs : (a + 1) * outputs]
        row_b = weights[b * outputs : (b + 1) * outputs]
        row_c = weights[c * outputs : (c + 1) * outputs]
        row_d = weights[d * outputs : (d + 1) * outputs]
        for j in range(outputs):
            sums[j] += va * row_a[j] + vb * row_b[j] + vc * row_c[j] + vd * row_d[j]
    for k in range(whole, count):
        a = active[k]
        row_a = weights[a * outputs : (a + 1) * outputs]
        for j in range(outputs):
            sums[j] += value[a] * row_a[j]
    return sums


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]  # numba has no types
def _by_outputs(value: NDArray[Any], weights: NDArray[Any], outputs: int) -> NDArray[Any]:
    """The same as one product per output; `weights` lie as `[out, in]`."""
    sums = np.empty(outputs, dtype=value.dtype)
    inputs = len(value)
    for j in range(outputs):
        row = weights[j * inputs : (j + 1) * inputs]
        total = value.dtype.type(0)
        for i in range(inputs):
            total += value[i] * row[i]
        sums[j] = total
    return sums


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]  # numba has no types
def _moments(value: NDArray[Any]) -> tuple[Any, Any]:
    """The mean of a row, and one over its standard deviation."""
    kind = value.dtype.type
    total = kind(0)
    for j in range(len(value)):
        total += value[j]
    mean = total / kind(len(value))
    squares = kind(0)
    for j in range(len(value)):
        squares += (value[j] - mean) ** 2
    inverse = kind(1) / np.sqrt(squares / kind(len(value)) + kind(1e-5))
    return mean, inverse


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]  # numba has no types
def forward(
    x: NDArray[Any], weights: NDArray[Any], plan: NDArray[np.int64], relu: bool, squashed: bool
) -> NDArray[Any]:
    """The outputs of one row `x[in]`, in the type of `x`; the weights are float32 in any case."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    value = x
    scale, shift = one, zero
    start = 0
    for layer in range(len(plan)):
        inputs, outputs, norm = plan[layer]
        if outputs < NARROW:
            sums = _by_outputs(value, weights[start : start + inputs * outputs], outputs)
        else:
            sums = _by_inputs(value, weights[start : start + inputs * outputs], outputs)
        start += inputs * outputs
        bias = weights[start : start + outputs]
        totals = weights[start + outputs : start + 2 * outputs]
        gamma = weights[start + 2 * outputs : start + 3 * outputs]
        beta = weights[start + 3 * outputs : start + 4 * outputs]
        start += 4 * outputs
        for j in range(outputs):
            sums[j] = scale * sums[j] - shift * totals[j] + bias[j]
        scale, shift = one, zero
        value = sums
        if layer == len(plan) - 1:
            break
        if norm == NORM_FIRST:
            mean, inverse = _moments(value)
            for j in range(outputs):
                value[j] = (value[j] - mean) * inverse * gamma[j] + beta[j]
        for j in range(outputs):
            value[j] = max(value[j], zero) if relu else np.tanh(value[j])
        if norm == NORM_LAST:
            mean, scale = _moments(value)
            shift = mean * scale
    if squashed:
        for j in range(len(value)):
            value[j] = np.tanh(value[j])
    return value


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]  # numba has no types
def decoded(
    x: NDArray[Any], weights: NDArray[Any], plan: NDArray[np.int64], relu: bool, scaling: Any
) -> Array:
    """The action of a squashed network, in float64, as `Box.decode` gives it; see `Box.scaling`."""
    encoded = forward(x.astype(np.float64), weights, plan, relu, True)
    action = np.empty(len(encoded), dtype=np.float32)
    for j in range(len(encoded)):
        value = scaling[0, j] + scaling[1, j] * encoded[j]
        action[j] = min(max(value, scaling[2, j]), scaling[3, j])
    return action

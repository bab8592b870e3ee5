"""A network's values with the same bits on every processor, for behaviours that are logged.

Matrix products of a BLAS sum in an order that depends on the processor. Here every sum has one
order, and nothing is fused or reordered: slower than a BLAS, and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np

from sept_offline.agent.networks import MLP, NORM_EPSILON, Array, Ensemble, Network

F = TypeVar("F", bound=Callable[..., object])


def _compiled(function: F) -> F:
    """Compile without `fastmath`: no sum is reordered and no product fused."""
    return cast(F, numba.njit(cache=True, error_model="numpy", nogil=True)(function))


def portable(network: Network) -> Callable[[Array], Array]:
    """The function `[n, input_dim]` to `[n, output_dim]` of `network`, in a fixed order.

    Of a squashed network these are the outputs before tanh: `ActionSpace.explore` applies it. A
    network that is neither an MLP with ReLU nor a mean of such is called as it is.
    """
    if isinstance(network, MLP) and network.activation == "relu":
        return _portable_mlp(network)
    if isinstance(network, Ensemble):
        members = [portable(member) for member in network.members]
        share = np.float32(1 / len(members))
        return lambda x: sum((member(x) for member in members[1:]), members[0](x)) * share
    return network


def _portable_mlp(network: MLP) -> Callable[[Array], Array]:
    layers = [(np.ascontiguousarray(weight.T), bias) for weight, bias in network.layers]
    norms = [*network.norms, None]

    def values(x: Array) -> Array:
        value = np.ascontiguousarray(x, dtype=np.float32)
        for index, ((weight, bias), norm) in enumerate(zip(layers, norms, strict=True)):
            value = _linear(value, weight, bias)
            if index == len(layers) - 1:
                break
            if norm is not None and network.norm_first:
                _normalise(value, *norm, NORM_EPSILON)
            _rectify(value)
            if norm is not None and not network.norm_first:
                _normalise(value, *norm, NORM_EPSILON)
        return value

    return values


@_compiled
def _linear(x: Array, weight: Array, bias: Array) -> Array:
    """`x[n, in] @ weight[in, out] + bias[out]`, each output summed over the inputs in order."""
    output = np.empty((x.shape[0], weight.shape[1]), dtype=np.float32)
    for row in range(x.shape[0]):
        sums = output[row]
        sums[:] = bias
        for i in range(x.shape[1]):
            value = x[row, i]
            # Half of a hidden layer is zero after its ReLU.
            if value != np.float32(0):
                weights = weight[i]
                for j in range(len(sums)):
                    sums[j] += value * weights[j]
    return output


@_compiled
def _rectify(value: Array) -> None:
    for row in range(value.shape[0]):
        for j in range(value.shape[1]):
            value[row, j] = max(value[row, j], np.float32(0))


@_compiled
def _normalise(value: Array, gamma: Array, beta: Array, epsilon: np.float32) -> None:
    """LayerNorm of each row, in place; sums in float64."""
    width = value.shape[1]
    for row in range(value.shape[0]):
        mean = 0.0
        for j in range(width):
            mean += value[row, j]
        mean /= width
        squares = 0.0
        for j in range(width):
            squares += (value[row, j] - mean) * (value[row, j] - mean)
        inverse = np.float32(1.0 / np.sqrt(squares / width + epsilon))
        for j in range(width):
            value[row, j] = np.float32(value[row, j] - mean) * inverse * gamma[j] + beta[j]

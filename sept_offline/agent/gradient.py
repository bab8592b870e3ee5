"""One gradient step of a value network on its temporal-difference error, in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .networks import MLP, Array


def td_step(
    network: MLP,
    inputs: Array,
    actions: NDArray[np.int64],
    rewards: Array,
    next_inputs: Array,
    gamma: float,
    rate: float,
) -> MLP:
    """θ − rate · ∇ mean_t huber(Q_θ(s_t, a_t) − y_t), y_t = r_t + γ · max_a Q_θ(s_t+1, a) held.

    `inputs[T, d]`, `actions[T]`, `rewards[T]`, `next_inputs[T, d]`: T steps that did not end the
    episode. The network itself is not changed.
    """
    if network.activation != "relu" or any(norm is not None for norm in network.norms):
        raise AgentError("Gradient steps support only ReLU networks without LayerNorm.")
    seen = [np.asarray(inputs, dtype=np.float32)]
    for weight, bias in network.layers[:-1]:
        seen.append(np.maximum(seen[-1] @ weight.T + bias, np.float32(0)))
    last, offset = network.layers[-1]
    rows = np.arange(len(actions))
    target = np.float32(gamma) * network(next_inputs).max(axis=1) + rewards
    error = (seen[-1] @ last.T + offset)[rows, actions] - target
    # Huber's slope is the error itself, at most 1 either way
    slope = np.zeros((len(rows), network.output_dim), dtype=np.float32)
    slope[rows, actions] = np.clip(error, -1, 1) / np.float32(len(rows))
    stepped: list[tuple[Array, Array]] = []
    ones = np.ones((len(rows), 1), dtype=np.float32)
    for (weight, bias), below in zip(reversed(network.layers), reversed(seen), strict=True):
        down = np.float32(rate) * slope
        stepped.append((weight - _product(down, below), bias - _product(down, ones)[:, 0]))
        slope = (slope @ weight) * (below > 0)
    return MLP(stepped[::-1])


def _product(slope: Array, below: Array) -> Array:
    """The gradient of a layer's weights `[out, in]`: slope times input, summed over rows."""
    whole: Array = slope.T @ below
    return whole

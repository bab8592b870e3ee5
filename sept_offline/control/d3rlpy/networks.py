"""d3rlpy's networks, and their weights in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from torch import nn

from sept_offline.agent.networks import MLP
from sept_offline.control.d3rlpy.adam import part_of


def encoder_factory(hidden: Sequence[int], layer_norm: bool = False) -> VectorEncoderFactory:
    """d3rlpy's own encoder: Linear, ReLU, LayerNorm, layer after layer."""
    return VectorEncoderFactory(hidden_units=list(hidden), use_layer_norm=layer_norm)


def layers_of(network: Any) -> nn.Sequential:
    """The layers of one of d3rlpy's networks: its encoder's and its head, the mean of a normal."""
    head = network._mu if hasattr(network, "_mu") else network._fc
    return nn.Sequential(*network._encoder._layers, head)


def to_numpy(network: nn.Sequential, weights: torch.Tensor, squashed: bool = False) -> MLP:
    """A network with `weights`, laid out as its flat tensor is; squashed: tanh follows."""

    def read(module: nn.Module) -> tuple[Any, Any]:
        weight, bias = (part_of(weights, parameter) for parameter in module.parameters())
        return weight.numpy().copy(), bias.numpy().copy()

    layers: list[tuple[Any, Any]] = []
    norms: list[tuple[Any, Any] | None] = []
    for module in network:
        if isinstance(module, nn.Linear):
            layers.append(read(module))
            norms.append(None)
        elif isinstance(module, nn.LayerNorm):
            norms[-1] = read(module)
    return MLP(layers, norms[:-1], norm_first=False, squashed=squashed)


def from_numpy(network: nn.Sequential, values: MLP) -> None:
    """Give a network the weights of `values`, which has no norms."""
    linear = [module for module in network if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for module, (weight, bias) in zip(linear, values.layers, strict=True):
            module.weight.copy_(torch.from_numpy(weight.copy()))
            module.bias.copy_(torch.from_numpy(bias.copy()))

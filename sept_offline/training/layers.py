"""Networks with weights drawn from a given generator: perceptrons, LSTMs, and NumPy copies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sept_offline.agent.networks import MLP


def initialise(module: nn.Module, rng: torch.Generator) -> None:
    """Draw every weight from `rng`, uniform in ±1/√fan-in as torch does."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                bound = 1 / math.sqrt(part.in_features)
            elif isinstance(part, nn.LSTM):
                bound = 1 / math.sqrt(part.hidden_size)
            else:
                continue
            for parameter in part.parameters(recurse=False):
                parameter.uniform_(-bound, bound, generator=rng)


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between; the last one is linear. Weights are not yet drawn."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [Undrawn(before, after), nn.ReLU()]
    return nn.Sequential(*layers, Undrawn(widths[-1], outputs))


class Undrawn(nn.Linear):
    """A linear layer whose weights are drawn by `initialise` alone.

    torch draws them from the global generator. Its `skip_init` does not, but loads SymPy.
    """

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


def lstm(inputs: int, units: int, bidirectional: bool = False) -> nn.LSTM:
    """A batch-first LSTM whose weights are not yet drawn, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        return nn.LSTM(inputs, units, batch_first=True, bidirectional=bidirectional)


def layers_of(network: nn.Sequential) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The (weight, bias) of each linear layer, in order."""
    return [(part.weight, part.bias) for part in network if isinstance(part, nn.Linear)]


def array(tensor: torch.Tensor) -> NDArray[np.float32]:
    """A copy of a tensor's values."""
    return tensor.detach().numpy().astype(np.float32, copy=True)


def to_numpy(network: nn.Sequential, factor: NDArray[np.float32] | None = None) -> MLP:
    """The same perceptron in NumPy, its outputs multiplied by `factor` if there is one."""
    layers = [(array(weight), array(bias)) for weight, bias in layers_of(network)]
    if factor is not None:
        weight, bias = layers[-1]
        layers[-1] = weight * factor[:, None], bias * factor
    return MLP(layers)

"""Networks with weights drawn from a given generator: perceptrons, LSTMs, NumPy copies; normals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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


Gaussian = tuple[Tensor, Tensor]
"""Mean and log-variance of independent normals."""


def log_normal(values: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Log-density of independent normals, summed over the last axis."""
    deviation = (values - mean) ** 2 * torch.exp(-log_variance)
    return -0.5 * (deviation + log_variance + math.log(2 * math.pi)).sum(-1)


def kl_standard(q: Gaussian) -> Tensor:
    """KL(q ‖ N(0, I)), summed over the last axis."""
    mean, log_variance = q
    return 0.5 * (torch.exp(log_variance) + mean**2 - 1 - log_variance).sum(-1)


def kl_between(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q ‖ p), summed over the last axis."""
    ratio = torch.exp(q[1] - p[1])
    return 0.5 * (ratio + (q[0] - p[0]) ** 2 * torch.exp(-p[1]) - 1 - q[1] + p[1]).sum(-1)


def sample(q: Gaussian, rng: torch.Generator) -> Tensor:
    """One draw from each row of q, by fresh noise."""
    noise = torch.randn(q[0].shape, generator=rng)
    return q[0] + torch.exp(0.5 * q[1]) * noise


class Posteriors(nn.Module):
    """q_i(z) of every training instance: free means and log-variances, [I, k] each."""

    def __init__(self, instances: int, dim: int, spread: float, rng: torch.Generator) -> None:
        super().__init__()
        # Small, or one instance's data may settle around two far-apart codes.
        self.mean = nn.Parameter(spread * torch.randn(instances, dim, generator=rng))
        self.log_variance = nn.Parameter(torch.full((instances, dim), 2 * float(np.log(spread))))

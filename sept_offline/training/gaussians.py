"""Independent normal distributions: densities, divergences, samples, and one per instance."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

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

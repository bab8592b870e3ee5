"""A free posterior for each training instance."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


class Posteriors(nn.Module):
    """q_i(z) of every training instance: free means and log-variances, [I, k] each."""

    def __init__(self, instances: int, dim: int, spread: float, rng: torch.Generator) -> None:
        super().__init__()
        # Small, or one instance's data may settle around two far-apart codes.
        self.mean = nn.Parameter(spread * torch.randn(instances, dim, generator=rng))
        self.log_variance = nn.Parameter(torch.full((instances, dim), 2 * float(np.log(spread))))

"""An encoder of sets of transitions, and decoders of changes given a latent or a group."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from sept_offline.latent.networks import outer
from sept_offline.training.gaussians import Gaussian
from sept_offline.training.layers import initialise, perceptron

FREEDOM = 4.0
"""Degrees of freedom of Student's t: limits the influence of a single step, at a wall say."""
LARGEST_SCALE = 2.0
"""Log of the widest scale of a change, in its own spread."""


def log_student(values: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    """Log-density of independent Student's t, not summed."""
    constant = (
        math.lgamma((FREEDOM + 1) / 2)
        - math.lgamma(FREEDOM / 2)
        - 0.5 * math.log(FREEDOM * math.pi)
    )
    deviation = ((values - mean) * torch.exp(-log_scale)) ** 2
    return constant - log_scale - 0.5 * (FREEDOM + 1) * torch.log1p(deviation / FREEDOM)


class Decoder(nn.Module):
    """p(Δs | s, a, c), c[k] being a latent or a set of groups; Student's t of bounded sharpness."""

    def __init__(
        self,
        width: int,
        action_width: int,
        context: int,
        hidden: int,
        resolution: float,
        rng: torch.Generator,
    ) -> None:
        super().__init__()
        self.smallest_scale = math.log(resolution)
        inputs = width + action_width + context + action_width * context
        self.layers = perceptron(inputs, (hidden, hidden), 2 * width)
        initialise(self, rng)

    def forward(self, states: Tensor, actions: Tensor, context: Tensor) -> Gaussian:
        """Mean and log-scale of the standardised change, [..., d] each."""
        inputs = torch.cat((states, actions, context, outer(actions, context)), dim=-1)
        mean, log_scale = self.layers(inputs).chunk(2, dim=-1)
        return mean, log_scale.clamp(self.smallest_scale, LARGEST_SCALE)


class SetEncoder(nn.Module):
    """q(z | a set of transitions): each adds its precision and its weighted mean to the prior's.

    A product of normals, so that a posterior read from a few steps in training is read from all
    steps of an episode afterwards, and sharper for it.
    """

    def __init__(
        self, width: int, action_width: int, dim: int, hidden: int, rng: torch.Generator
    ) -> None:
        super().__init__()
        inputs = 2 * width + action_width + action_width * width
        self.layers = perceptron(inputs, (hidden, hidden), 2 * dim)
        initialise(self, rng)

    def factors(self, states: Tensor, actions: Tensor, changes: Tensor) -> Gaussian:
        """Weighted mean and precision of each transition's factor, [..., k] each."""
        inputs = torch.cat((states, actions, changes, outer(actions, changes)), dim=-1)
        mean, precision = self.layers(inputs).chunk(2, dim=-1)
        precision = nn.functional.softplus(precision)
        return mean * precision, precision


def product(weighted: Tensor, precision: Tensor) -> Gaussian:
    """Mean and log-variance from sums of factors over a set, [..., k] each, times N(0, I)."""
    whole = 1 + precision
    return weighted / whole, -torch.log(whole)

"""The networks of the model: Bayesian dynamics, and plain ones for rewards and ends."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from sept_offline.dynamics.columns import Reader
from sept_offline.training.gaussians import Gaussian
from sept_offline.training.layers import initialise, perceptron

LOG_NOISE = (-9.0, 2.0)
"""Bounds of the noise's log-variance in standardised units: most families here have no noise, and a
density without a floor grows for ever."""


class BayesianNetwork(nn.Module):
    """(s, a, w) → standardised s′ − s, all weights and biases W ~ N(mean, exp(log_variance)).

    mean[P], log_variance[P]: of all weights in one row, layer by layer; log_noise[d]: log-variance
    of what the network leaves unexplained. `widths`: inputs, hidden layers, outputs.
    """

    def __init__(
        self, widths: tuple[int, ...], spread: float, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.widths = widths
        self.shapes = list(itertools.pairwise(widths))
        self.size = sum((before + 1) * after for before, after in self.shapes)
        mean = torch.zeros(self.size)
        if rng is not None:
            for (weight, bias), (before, _) in zip(self._layers(mean), self.shapes, strict=True):
                bound = 1 / math.sqrt(before)
                weight.uniform_(-bound, bound, generator=rng)
                bias.uniform_(-bound, bound, generator=rng)
        self.mean = nn.Parameter(mean)
        self.log_variance = nn.Parameter(torch.full((self.size,), 2 * math.log(spread)))
        self.log_noise = nn.Parameter(torch.full((widths[-1],), -1.0))

    def _layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        """`weights[..., P]` as a matrix [..., in, out] and a bias [..., 1, out] a layer."""
        layers, place = [], 0
        for before, after in self.shapes:
            matrix = weights[..., place : place + before * after]
            place += before * after
            bias = weights[..., place : place + after]
            place += after
            layers.append((matrix.reshape(*matrix.shape[:-1], before, after), bias.unsqueeze(-2)))
        return layers

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """`count` draws of all weights, [count, P]."""
        return draw((self.mean, self.log_variance), count, rng)

    def forward(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """[K, B, in] under `weights[K, P]` to [K, B, d]."""
        value = inputs
        layers = self._layers(weights)
        for matrix, bias in layers[:-1]:
            value = torch.relu(torch.baddbmm(bias, value, matrix))
        matrix, bias = layers[-1]
        return torch.baddbmm(bias, value, matrix)

    def noise(self) -> Tensor:
        """The noise's log-variance within its bounds, [d]."""
        return self.log_noise.clamp(*LOG_NOISE)


def draw(q: Gaussian, count: int, rng: torch.Generator) -> Tensor:
    """`count` draws from a Gaussian `[...]`, by fresh noise: [count, ...]."""
    noise = torch.randn((count, *q[0].shape), generator=rng)
    return q[0] + torch.exp(0.5 * q[1]) * noise


class Dynamics(nn.Module):
    """The Bayesian network on states as they are: p(s′ − s | s, a, w)."""

    def __init__(
        self,
        reader: Reader,
        action_width: int,
        dim: int,
        hidden: tuple[int, ...],
        spread: float,
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.reader, self.action_width, self.dim, self.hidden = reader, action_width, dim, hidden
        inputs = reader.features_dim + action_width + dim
        self.network = BayesianNetwork((inputs, *hidden, reader.width), spread, rng)

    def known(self, states: Tensor, actions: Tensor) -> Tensor:
        """The inputs without w: [..., d] and encoded [..., A] to [..., f + A]."""
        return torch.cat((self.reader.features(states), actions), dim=-1)

    def predict(self, known: Tensor, w: Tensor, weights: Tensor) -> Tensor:
        """Mean standardised changes [K, B, d]: `known[B, ·]`, `w[K, B, k]`, `weights[K, P]`."""
        repeated = known.unsqueeze(0).expand(len(w), -1, -1)
        changes: Tensor = self.network(torch.cat((repeated, w), dim=-1), weights)
        return changes * self.reader.varies

    def log_likelihood(self, change: Tensor, known: Tensor, w: Tensor, weights: Tensor) -> Tensor:
        """log p(change[B, d] | ·), [K, B]; a column that never changes has nothing to say."""
        noise = self.network.noise()
        deviation = (change - self.predict(known, w, weights)) ** 2 * torch.exp(-noise)
        each = deviation + noise + math.log(2 * math.pi)
        return -0.5 * (each * self.reader.varies).sum(-1)


class Outcome(nn.Module):
    """(s, a, s′) → the reward if the episode goes on, the reward if it ends, and whether it ends.

    What counts is the same in all instances; only where an action leads differs. Rewards are in
    standard deviations of their kind: scale[2], centre[2].
    """

    def __init__(
        self,
        reader: Reader,
        action_width: int,
        hidden: tuple[int, ...],
        rng: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.reader, self.action_width, self.hidden = reader, action_width, hidden
        inputs = 2 * reader.features_dim + action_width + reader.width
        self.body = perceptron(inputs, hidden, 3)
        if rng is not None:
            initialise(self.body, rng)
        self.register_buffer("centre", torch.zeros(2))
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("ends", torch.zeros(1))

    def features(self, before: Tensor, actions: Tensor, after: Tensor) -> Tensor:
        """The network's inputs for transitions with encoded `actions[B, A]`, [B, ·]."""
        read = self.reader.features
        return torch.cat(
            (read(before), actions, read(after), self.reader.change(before, after)), dim=-1
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Standardised rewards [B, 2], going on and ending, and the logit of an end [B]."""
        output = self.body(features)
        return output[:, :2], output[:, 2]

    def predict(self, before: Tensor, actions: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards [B] and ends [B] of transitions: 1 where an end is likelier than not, else 0."""
        rewards, logit = self(self.features(before, actions, after))
        rewards = rewards * self.get_buffer("scale") + self.get_buffer("centre")
        # where no logged episode ends, none does: the logit has nothing to learn from
        ended = (logit > 0) & (self.get_buffer("ends") > 0)
        return torch.where(ended, rewards[:, 1], rewards[:, 0]), ended.float()

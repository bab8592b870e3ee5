"""A Bayesian network of the dynamics, (s, a, w) → s′ − s, fitted by its α energy.

W are the network's weights, w describes an instance. The black-box α energy of a Gaussian posterior
over weights is that of Hernández-Lobato et al. (2016):

Data D = {(x_n, y_n)}, n = 1 … N, a likelihood p(y_n | x_n, W), a prior p₀(W), a Gaussian q(W).
Power expectation propagation with all sites tied takes q(W) ∝ f(W)^N p₀(W), so that one site is

    f(W) = (q(W) / p₀(W))^(1/N)      up to a constant

and minimises

    E_α(q) = log Z_{p₀} − log Z_q − (1/α) Σ_n log E_{W~q} [ (p(y_n | x_n, W) / f(W))^α ]

With f as the quotient of the *normalised* densities the constant of every site gathers into exactly
log Z_q − log Z_{p₀}, the normalisers cancel, and what is left is one sum:

    E_α(q) = −(1/α) Σ_n log E_{W~q} exp α·[ log p(y_n | x_n, W) − (log q(W) − log p₀(W)) / N ]

The expectation is a mean over K draws: a log-sum-exp over them, less log K. A latent w that only
the N_i rows of its own instance i share is one more Gaussian with a site of its own,
(q_i(w)/p₀(w))^(1/N_i), for each of those rows.

As α → 0, (1/α) log E exp(α·g) → E g, and E_α becomes −Σ_n E_q log p(y_n | x_n, W) + KL(q ‖ p₀): the
negative ELBO. At α = 1 it is an energy of expectation propagation.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.data.records import Steps
from sept_offline.dynamics.columns import LOG_NOISE, Columns, Reader
from sept_offline.seeding import torch_generator
from sept_offline.settings import DynamicsConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Balanced
from sept_offline.training.layers import Gaussian, Posteriors, log_normal
from sept_offline.training.updates import UpdateStage, check_finite

WATCHED = 2048
"""Transitions on which the share of what is unexplained is watched."""


def log_ratio(values: Tensor, q: Gaussian, prior: Gaussian) -> Tensor:
    """log q(v) − log p₀(v) of `values[..., k]`, summed over k."""
    return log_normal(values, *q) - log_normal(values, *prior)


def alpha_energy(log_likelihood: Tensor, log_site: Tensor, alpha: float) -> Tensor:
    """E_α(q) / N, estimated from K draws and B rows: `log_likelihood[K, B]`, `log_site[K, B]`.

    `log_site` is the sum, over all Gaussians a row depends on, of log q − log p₀ divided by the
    number of rows that share it.
    """
    draws = log_likelihood.shape[0]
    powered = torch.logsumexp(alpha * (log_likelihood - log_site), dim=0) - math.log(draws)
    return -powered.mean() / alpha


class BayesianNetwork(nn.Module):
    """(s, a, w) → standardised s′ − s, all weights and biases W ~ N(mean, exp(log_variance)).

    mean[P], log_variance[P]: of all weights in one row, layer by layer; log_noise[d]: log-variance
    of what the network leaves unexplained. `widths`: inputs, hidden layers, outputs.
    """

    def __init__(
        self, widths: tuple[int, ...], spread: float, rng: torch.Generator | None = None
    ) -> None:
        super().__init__()
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


class DynamicsStage(UpdateStage):
    """Minimises the α energy of q(W) Π_i q_i(w), both Gaussian, over logged transitions.

    W has the prior N(0, prior_variance), each w the prior N(0, I). The noise is a plain parameter.
    """

    watched = ("energy",)

    def __init__(
        self,
        steps: Steps,
        columns: Columns,
        config: DynamicsConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
    ) -> None:
        super().__init__(
            "dynamics", config.updates, (config.learning_rate, config.learning_rate_end)
        )
        self.config = config
        rng = torch_generator(seed, "dynamics", "initialise")
        reader = Reader(columns)
        self.dynamics = Dynamics(
            reader, space.width, config.dim, config.hidden, config.initial_spread, rng
        )
        self.posteriors = Posteriors(num_instances, config.dim, config.latent_spread, rng)
        self.optimise(
            {"dynamics": self.dynamics, "posteriors": self.posteriors},
            torch_generator(seed, "dynamics", "train"),
            {"posteriors": config.latent_factor},
        )
        before = torch.from_numpy(steps.observations[steps.row])
        after = torch.from_numpy(steps.observations[steps.row + 1])
        self._known = self.dynamics.known(before, torch.from_numpy(space.encode(steps.actions)))
        self._change = reader.change(before, after)
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._rows = Balanced(steps.instance)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._shared = torch.from_numpy(np.maximum(counts, 1).astype(np.float32))
        self._watched = torch.arange(0, len(self._known), max(1, len(self._known) // WATCHED))
        variance = torch.full((), config.prior_variance)
        self._prior: Gaussian = (torch.zeros(()), torch.log(variance))

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the energy is a mean over these updates."""
        metrics = self._repeat(updates, dtype=torch.float64)
        with one_thread():
            metrics["unexplained"] = self._unexplained()
        check_finite(metrics, self.name, self.done)
        return metrics

    def _update(self) -> Tensor:
        config, rng, network = self.config, self.rng, self.dynamics.network
        rows = self._rows.draw(config.batch_size, rng)
        instance, known, change = self._instance[rows], self._known[rows], self._change[rows]
        q = (self.posteriors.mean[instance], self.posteriors.log_variance[instance])
        weights, w = network.draw(config.samples, rng), draw(q, config.samples, rng)
        of_weights = log_ratio(weights, (network.mean, network.log_variance), self._prior)
        of_latent = log_ratio(w, q, (torch.zeros(()), torch.zeros(())))
        site = of_weights.unsqueeze(1) / len(self._known) + of_latent / self._shared[instance]
        likelihood = self.dynamics.log_likelihood(change, known, w, weights)
        energy = alpha_energy(likelihood, site, config.alpha)
        self._descend(energy)
        return energy.detach()

    def _unexplained(self) -> float:
        """The share of the changes' variance that the mean network does not explain."""
        rows, varies = self._watched, self.dynamics.reader.varies
        with torch.no_grad():
            w = self.posteriors.mean[self._instance[rows]].unsqueeze(0)
            mean = self.dynamics.network.mean.unsqueeze(0)
            error = self._change[rows] - self.dynamics.predict(self._known[rows], w, mean)[0]
            return float((error**2 * varies).mean(0).sum() / varies.sum().clamp_min(1))

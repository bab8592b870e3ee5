"""A latent for each episode: what of its dynamics its states and actions do not explain.

Transitions as tensors, an encoder of sets of them, a decoder of changes, their fit by an ELBO, and
clusters of the latents by density.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Steps
from sept_offline.errors import ConfigError
from sept_offline.latent.networks import outer
from sept_offline.seeding import generator, torch_generator
from sept_offline.settings import DemarcateConfig
from sept_offline.training.adam import Adam
from sept_offline.training.inputs import Floats, Integers, changes, standardised
from sept_offline.training.layers import Gaussian, initialise, kl_standard, perceptron, sample
from sept_offline.training.updates import annealed, check_finite, descend

FREEDOM = 4.0
"""Degrees of freedom of Student's t: limits the influence of a single step, at a wall say."""
LARGEST_SCALE = 2.0
"""Log of the widest scale of a change, in its own spread."""
BLOCK = 1 << 15
"""Rows that are encoded at a time."""
CLUSTERED = 5000
"""Maximum number of episodes to cluster; of more, a sample is drawn and the rest assigned later."""
NEIGHBOURS = 5
"""Neighbours for the density estimate: few, because gaps between groups can be narrow."""


@dataclass(frozen=True)
class Transitions:
    """All transitions of E episodes, episode by episode; N in all, d features."""

    states: Tensor
    """[N, d], standardised"""
    actions: Tensor
    """[N, A], encoded"""
    changes: Tensor
    """[N, d], standardised; 0 where a feature never changes"""
    varies: Tensor
    """[d], 1 where a feature changes at all, else 0"""
    first: Tensor
    """[E], the row of an episode's first step"""
    length: Tensor
    """[E], its steps"""

    @property
    def episodes(self) -> int:
        """E"""
        return len(self.length)

    def take(self, episodes: Integers) -> Transitions:
        """The same rows, of which only the given episodes are drawn."""
        chosen = torch.from_numpy(episodes)
        return replace(self, first=self.first[chosen], length=self.length[chosen])

    def rows(self) -> tuple[Tensor, Tensor]:
        """All rows of the episodes and the position of each row's episode, [n] both."""
        episode = torch.repeat_interleave(torch.arange(self.episodes), self.length)
        before = torch.cumsum(self.length, 0) - self.length
        return torch.arange(len(episode)) - before[episode] + self.first[episode], episode

    def draw(self, episodes: Tensor, count: int, rng: torch.Generator) -> Tensor:
        """`count` rows from anywhere in each of the given episodes, [n, count]."""
        place = torch.rand(len(episodes), count, generator=rng, dtype=torch.float64)
        length = self.length[episodes].unsqueeze(1)
        return self.first[episodes].unsqueeze(1) + torch.minimum(
            (place * length).long(), length - 1
        )


def transitions_of(steps: Steps, length: Integers, space: ActionSpace) -> Transitions:
    """The transitions of a dataset's steps; length[E] are the steps of its episodes in order."""
    before = steps.observations[steps.row]
    change = changes(before, steps.observations[steps.row + 1])
    varies = varying(change)
    return Transitions(
        states=standardised(Standardiser.fit(before), before),
        actions=torch.from_numpy(space.encode(steps.actions)),
        changes=standardised(Standardiser.fit(change), change)
        * torch.from_numpy(varies.astype(np.float32)),
        varies=torch.from_numpy(varies.astype(np.float32)),
        first=torch.from_numpy(np.cumsum(length) - length),
        length=torch.from_numpy(length.astype(np.int64)),
    )


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

    def likelihood(self, data: Transitions, rows: Tensor, context: Tensor) -> Tensor:
        """log p of the changes at `rows[...]`, given `context[..., k]`, [...]."""
        mean, log_scale = self(data.states[rows], data.actions[rows], context)
        return (log_student(data.changes[rows], mean, log_scale) * data.varies).sum(-1)


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


@dataclass(frozen=True)
class Latents:
    """q_e(z) of E episodes."""

    mean: Floats
    """[E, k]"""
    spread: Floats
    """[E, k], standard deviations"""


def fit_latents(
    data: Transitions,
    config: DemarcateConfig,
    seed: int,
    tick: Callable[[int], None],
) -> Latents:
    """The latents of data's episodes, by an ELBO with each episode as its own instance.

    The encoder reads one window, the decoder explains another of the same episode: what holds in
    the one only, such as what the behaviour did there, is of no use in the other.
    """
    rng = torch_generator(seed, "demarcate", "latents")
    width, action_width = data.states.shape[1], data.actions.shape[1]
    encoder = SetEncoder(width, action_width, config.dim, config.hidden, rng)
    decoder = Decoder(width, action_width, config.dim, config.hidden, config.resolution, rng)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimiser = Adam(parameters, config.learning_rate)
    cost = 1 / data.length.clamp_min(config.window).float()
    for update in range(config.updates):
        chosen = torch.randint(data.episodes, (config.episodes,), generator=rng)
        rows = data.draw(chosen, config.window, rng)
        weighted, precision = encoder.factors(
            data.states[rows], data.actions[rows], data.changes[rows]
        )
        q = product(weighted.sum(1), precision.sum(1))
        z = sample(q, rng).unsqueeze(1).expand(-1, config.window, -1)
        rows = data.draw(chosen, config.window, rng)
        likelihood = decoder.likelihood(data, rows, z).mean()
        loss = (cost[chosen] * kl_standard(q)).mean() - likelihood
        rates = config.learning_rate, config.learning_rate_end
        descend(optimiser, loss, annealed(*rates, update, config.updates))
        if update % 100 == 99 or update + 1 == config.updates:
            check_finite({"loss": float(loss.detach())}, "demarcation", update + 1)
            tick(update + 1)
    return _encode(encoder, data, config.dim)


def _encode(encoder: SetEncoder, data: Transitions, dim: int) -> Latents:
    """The posteriors from all steps of each episode."""
    rows, episode = data.rows()
    sums = torch.zeros(2, data.episodes, dim)
    with torch.no_grad():
        for part in range(0, len(rows), BLOCK):
            block, owner = rows[part : part + BLOCK], episode[part : part + BLOCK]
            factors = encoder.factors(data.states[block], data.actions[block], data.changes[block])
            for total, values in zip(sums, factors, strict=True):
                total.index_add_(0, owner, values)
    mean, log_variance = product(sums[0], sums[1])
    return Latents(mean.numpy(), torch.exp(0.5 * log_variance).numpy())


def check_sklearn() -> None:
    """Raise if scikit-learn is missing."""
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigError(
            'Clustering needs scikit-learn; install it with pip install "sept-offline[cluster]".'
        )


def cluster(latents: Latents, smallest: int, seed: int) -> Integers:
    """A cluster for each episode, −1 for those in none, [E].

    Distances are in units of the posteriors' spread: an uninformative dimension has means
    within it, and so no weight.
    """
    from sklearn.cluster import HDBSCAN

    places = latents.mean / np.sqrt((latents.spread.astype(np.float64) ** 2).mean(axis=0))
    count = len(places)
    clusters = np.full(count, -1, dtype=np.int64)
    chosen = np.arange(count)
    if count > CLUSTERED:
        chosen = np.sort(
            generator(seed, "demarcate", "clustered").choice(count, CLUSTERED, replace=False)
        )
    least = max(2, min(smallest, smallest * len(chosen) // count))
    if len(chosen) < 2 * least:
        return clusters
    density = HDBSCAN(min_cluster_size=least, min_samples=min(NEIGHBOURS, least), copy=True)
    clusters[chosen] = density.fit_predict(places[chosen])
    return clusters

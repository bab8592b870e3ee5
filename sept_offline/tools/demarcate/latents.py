"""A latent for each episode: what of its dynamics its states and actions do not explain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sept_offline.seeding import torch_generator
from sept_offline.settings import DemarcateConfig
from sept_offline.tools.demarcate.networks import Decoder, SetEncoder, log_student, product
from sept_offline.tools.demarcate.transitions import Transitions
from sept_offline.training.gaussians import kl_standard, sample
from sept_offline.training.inputs import Floats
from sept_offline.training.updates import annealed, check_finite, descend

BLOCK = 1 << 15
"""Rows that are encoded at a time."""


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
    tick: Callable[[int], None] = lambda _: None,
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
    optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
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
        likelihood = _likelihood(decoder, data, rows, z).mean()
        loss = (cost[chosen] * kl_standard(q)).mean() - likelihood
        rates = config.learning_rate, config.learning_rate_end
        descend(optimiser, loss, annealed(*rates, update, config.updates))
        if update % 100 == 99 or update + 1 == config.updates:
            check_finite({"loss": float(loss.detach())}, "demarcation", update + 1)
            tick(update + 1)
    return _encode(encoder, data, config.dim)


def _likelihood(decoder: Decoder, data: Transitions, rows: Tensor, z: Tensor) -> Tensor:
    mean, log_scale = decoder(data.states[rows], data.actions[rows], z)
    return (log_student(data.changes[rows], mean, log_scale) * data.varies).sum(-1)


def _encode(encoder: SetEncoder, data: Transitions, dim: int) -> Latents:
    """The posteriors from all steps of each episode."""
    rows, episode = rows_of(data)
    sums = torch.zeros(2, data.episodes, dim)
    with torch.no_grad():
        for part in range(0, len(rows), BLOCK):
            block, owner = rows[part : part + BLOCK], episode[part : part + BLOCK]
            factors = encoder.factors(data.states[block], data.actions[block], data.changes[block])
            for total, values in zip(sums, factors, strict=True):
                total.index_add_(0, owner, values)
    mean, log_variance = product(sums[0], sums[1])
    return Latents(mean.numpy(), torch.exp(0.5 * log_variance).numpy())


def rows_of(data: Transitions) -> tuple[Tensor, Tensor]:
    """All rows of the episodes and the position of the episode that each belongs to, [n] both."""
    episode = torch.repeat_interleave(torch.arange(data.episodes), data.length)
    before = torch.cumsum(data.length, 0) - data.length
    return torch.arange(len(episode)) - before[episode] + data.first[episode], episode

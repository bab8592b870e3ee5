"""Encoders of contexts without a likelihood: a transition has an embedding, a context their mean.

The rivals of SEPT learn them, each with a loss of its own:

    z(context) = 1/n Σ_t e(s_t, a_t, s_{t+1} − s_t, r_t)        without rewards: no r_t

An agent reads them with the encoder of the transitions objective: each embedding counts as
evidence of the same, very high precision, so that a context has their mean.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.agent.encoders import TransitionEncoder
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.latent.export import array
from sept_offline.latent.networks import LOG_PRECISION, RESIDUAL, outer, posterior
from sept_offline.latent.transitions import (
    BLOCK,
    CONTEXTS,
    LEAST_CONTEXTS,
    Contexts,
    between,
    cumulative,
    ragged,
)
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Doubles, Floats, Integers, TimedStepsLike, standardised
from sept_offline.training.layers import initialise, layers_of, perceptron
from sept_offline.training.updates import UpdateStage, annealed, check_finite, descend

COPIES = 4
"""Contexts of each instance in a minibatch."""
SURE = LOG_PRECISION[1]
"""Log-precision of every embedding."""


@dataclass(frozen=True)
class ContextEncoding:
    """The result of a context stage.

    latent `[S, k]`: of many contexts of training instances, instance `[S]`.
    """

    encoder: TransitionEncoder
    latent: Floats
    instance: Integers


class ContextStage(UpdateStage):
    """Base of stages that learn embeddings of transitions; a subclass says by which loss.

    rewards `[N]`: of each step, one more column of what is read; None where they are not read.
    """

    def __init__(
        self,
        steps: TimedStepsLike,
        config: LatentConfig,
        seed: int,
        *,
        space: ActionSpace,
        rewards: Doubles | None = None,
    ) -> None:
        super().__init__("latent", config.updates)
        self.config, self._seed, self._steps = config, seed, steps
        before = steps.observations[steps.row]
        change = steps.observations[steps.row + 1] - before
        if rewards is not None:
            # the reward is a column that is 0 before every step
            before = np.concatenate([before, np.zeros((len(before), 1), np.float32)], axis=1)
            change = np.concatenate([change, rewards[:, None].astype(np.float32)], axis=1)
        state, moved = Standardiser.fit(before), Standardiser.fit(change)
        self._scalers = state, moved
        self.states = standardised(state, before)
        self.changes = standardised(moved, change).clamp(-RESIDUAL, RESIDUAL)
        self.chosen = torch.from_numpy(space.encode(steps.actions))
        width = self.states.shape[1]
        self.draws = Contexts(steps.instance, steps.time, config.context)
        rng = torch_generator(seed, "latent", "initialise")
        inputs = 2 * width + space.width + space.width * width
        self.embedding = perceptron(inputs, (config.hidden, config.hidden), config.dim)
        self.beside = self._beside()
        for module in (self.embedding, *self.beside.values()):
            initialise(module, rng)
        self.rng = torch_generator(seed, "latent", "train")
        parameters = [one for module in self._modules().values() for one in module.parameters()]
        self.optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)

    @abstractmethod
    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        """The loss of contexts of `instance[B]` with the latents `z[B, k]`."""

    def _beside(self) -> dict[str, nn.Sequential]:
        """The networks that learn beside the embedding; their weights are not yet drawn."""
        return {}

    def _modules(self) -> dict[str, nn.Module]:
        return {"embedding": self.embedding, **self.beside}

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the loss is a mean over these updates."""
        (loss,) = self._repeat(updates, 1)
        check_finite({"loss": loss}, self.name, self.done)
        return {"loss": loss}

    def embed(self, rows: Tensor) -> Tensor:
        """e of the steps `rows[n]`, [n, k]."""
        chosen, changes = self.chosen[rows], self.changes[rows]
        inputs = (self.states[rows], chosen, changes, outer(chosen, changes))
        embedded: Tensor = self.embedding(torch.cat(inputs, dim=1))
        return embedded

    def _update(self) -> Tensor:
        config, rng, present = self.config, self.rng, self.draws.steps.present
        count = max(2, config.contexts // COPIES)
        instance = present[torch.randint(len(present), (count,), generator=rng)].repeat(COPIES)
        start, length = self.draws.draw(instance, rng)
        rows, owner = ragged(start, length.clamp(min=1))
        evidence = torch.zeros(len(start), 2 * config.dim)
        evidence = evidence.index_add(0, owner, _evidence(self.embed(rows)))
        loss = self._loss(instance, posterior(evidence)[0])
        rates = config.learning_rate, config.learning_rate_end
        descend(self.optimiser, loss, annealed(*rates, self.done, self.total))
        return loss.detach()

    def targets(self, instance: Tensor, count: int) -> Tensor:
        """`count` steps from anywhere in each `instance[B]`, [B · count]."""
        return self.draws.steps.draw_like(instance.repeat_interleave(count), self.rng)

    def result(self) -> ContextEncoding:
        """The encoder, and latents of contexts of 0 to `context` steps, as many per instance."""
        present, rng = self.draws.steps.present, torch_generator(self._seed, "contexts")
        instance = present.repeat(max(CONTEXTS // len(present), LEAST_CONTEXTS))
        with one_thread(), torch.no_grad():
            everything = torch.arange(len(self.states))
            parts = [_evidence(self.embed(rows)) for rows in torch.split(everything, BLOCK)]
            contexts = self.draws.draw(instance, rng)
            latent, _ = posterior(between(cumulative(torch.cat(parts)), *contexts))
        return ContextEncoding(self._encoder(), latent.numpy(), instance.numpy())

    def _encoder(self) -> TransitionEncoder:
        """The embedding as the agent reads it."""
        width, taken, dim = self.states.shape[1], self.chosen.shape[1], self.config.dim
        *layers, (weight, bias) = [(array(w), array(b)) for w, b in layers_of(self.embedding)]
        sure = np.full(dim, SURE, dtype=np.float32)
        last = np.concatenate([weight, np.zeros_like(weight)]), np.concatenate([bias, sure])
        nothing = np.zeros((width, width + taken)), np.zeros(width)
        return TransitionEncoder(
            MLP([nothing]),
            MLP([*layers, last]),
            *self._scalers,
            action_width=taken,
            steps=1,
            residual_range=RESIDUAL,
            log_precision_range=LOG_PRECISION,
        )


def _evidence(embedded: Tensor) -> Tensor:
    """λm and λ of embeddings `[n, k]`, all of the same precision, [n, 2k]."""
    precision = torch.full_like(embedded, float(np.exp(SURE)))
    return torch.cat((precision * embedded, precision), dim=1)

"""Learned dynamics of every logged instance, in which whole agents can be tried out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.agent import Agent
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.dynamics.network import LOG_NOISE, Outcome
from sept_offline.latent.arrays import Doubles, Floats, Integers, StepsLike
from sept_offline.latent.instance import Balanced, Posteriors
from sept_offline.latent.loop import Loop
from sept_offline.latent.networks import kl_standard, log_normal, sample
from sept_offline.latent.training import annealed, check_finite, initialise, perceptron, set_rate
from sept_offline.seeding import integer, torch_generator
from sept_offline.threads import one_thread

HIDDEN = (128, 128)
DIM = 8
"""Numbers that describe an instance: more than a latent has, so that little is missed."""
RATES = (2e-3, 1e-4)
BATCH = 512


class World(nn.Module):
    """p(s′ − s | s, a, w), a diagonal Gaussian; w describes the instance."""

    def __init__(self, reader: Reader, num_actions: int, rng: torch.Generator) -> None:
        super().__init__()
        self.reader, self.num_actions = reader, num_actions
        inputs = reader.features_dim + num_actions + DIM + num_actions * DIM
        self.body = perceptron(inputs, HIDDEN, 2 * reader.width)
        initialise(self.body, rng)

    def predict(self, states: Tensor, actions: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the standardised change, [B, d] each."""
        chosen = nn.functional.one_hot(actions, self.num_actions).float()
        crossed = (chosen.unsqueeze(2) * w.unsqueeze(1)).flatten(1)
        known = self.reader.features(states)
        mean, log_variance = self.body(torch.cat((known, chosen, w, crossed), dim=1)).chunk(2, 1)
        return mean, log_variance.clamp(*LOG_NOISE)

    def step(self, states: Tensor, actions: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        """The states after one step, [B, d]; `noise[B, d]` is standard normal."""
        mean, log_variance = self.predict(states, actions, w)
        return self.reader.after(states, mean + torch.exp(0.5 * log_variance) * noise)


class WorldStage(Loop):
    """Fits a world and a posterior of w for every instance to all logged transitions."""

    def __init__(
        self,
        steps: StepsLike,
        columns: Columns,
        updates: int,
        seed: int,
        *,
        num_actions: int,
        num_instances: int,
    ) -> None:
        super().__init__("world", updates)
        rng = torch_generator(seed, "world", "initialise")
        reader = Reader(columns)
        self.world = World(reader, num_actions, rng)
        self.posteriors = Posteriors(num_instances, DIM, 0.05, rng)
        self.rng = torch_generator(seed, "world", "train")
        groups: list[dict[str, Any]] = [
            {"params": list(self.world.parameters())},
            {"params": list(self.posteriors.parameters()), "factor": 5.0},
        ]
        self.optimiser = torch.optim.Adam(groups, lr=RATES[0], fused=True)
        self._before = torch.from_numpy(steps.observations[steps.row])
        after = torch.from_numpy(steps.observations[steps.row + 1])
        self._change = reader.change(self._before, after)
        self._actions = torch.from_numpy(steps.actions.astype(np.int64))
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._rows = Balanced(steps.instance)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._shared = torch.from_numpy(np.maximum(counts, 1).astype(np.float32))

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the log-likelihood is a mean over these updates."""
        (likelihood,) = self._repeat(updates, 1)
        metrics = {"log_likelihood": likelihood}
        check_finite(metrics, self.name, self.done)
        return metrics

    def _update(self) -> Tensor:
        rows = self._rows.draw(BATCH, self.rng)
        instance = self._instance[rows]
        q = (self.posteriors.mean[instance], self.posteriors.log_variance[instance])
        w = sample(q, self.rng)
        mean, log_variance = self.world.predict(self._before[rows], self._actions[rows], w)
        varies = self.world.reader.varies
        # A column that never changes has nothing to say.
        change = torch.where(varies > 0, self._change[rows], mean.detach())
        likelihood = log_normal(change, mean, log_variance).mean()
        loss = -likelihood + (kl_standard(q) / self._shared[instance]).mean()
        set_rate(self.optimiser, annealed(*RATES, self.done, self.total))
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        return likelihood.detach()

    def _modules(self) -> dict[str, nn.Module]:
        return {"world": self.world, "posteriors": self.posteriors}


def roll_out(
    stage: WorldStage,
    outcome: Outcome,
    agent: Agent,
    starts: Floats,
    instance: Integers,
    horizon: int,
    seed: int,
) -> Doubles:
    """What `agent` earns in one episode from each of `starts[n, d]`, [n].

    instance `[n]`: whose dynamics each episode has. The same seed gives every agent the same noise.
    """
    count = len(starts)
    episodes = agent.begin_batch([integer(seed, "episode", row) for row in range(count)])
    rng = torch_generator(seed, "noise")
    w = stage.posteriors.mean.detach()[torch.from_numpy(instance.astype(np.int64))]
    states = torch.from_numpy(np.array(starts, dtype=np.float32))
    active = np.ones(count, dtype=bool)
    earned = np.zeros(count)
    with one_thread(), torch.no_grad():
        for _ in range(horizon):
            chosen = episodes.act(states.numpy(), active)
            actions = torch.from_numpy(np.maximum(chosen, 0))
            noise = torch.randn(states.shape, generator=rng)
            after = stage.world.step(states, actions, w, noise)
            rewards, ended = outcome.predict(states, actions, after)
            earned[active] += rewards.double().numpy()[active]
            active &= ended.numpy() == 0
            if not active.any():
                break
            states = after
    return earned

"""Learned dynamics of every logged instance, in which whole agents can be tried out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent
from sept_offline.data.records import Steps
from sept_offline.dynamics.columns import LOG_NOISE, Columns, Reader
from sept_offline.dynamics.outcome import OutcomeModel
from sept_offline.family import Hidden
from sept_offline.seeding import generator, integer, torch_generator
from sept_offline.stacking import Stack
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Balanced, Doubles, Floats, Integers
from sept_offline.training.layers import (
    Posteriors,
    initialise,
    kl_standard,
    log_normal,
    perceptron,
    sample,
)
from sept_offline.training.updates import UpdateStage

HIDDEN = (128, 128)
DIM = 8
"""Numbers that describe an instance: more than a latent has, so that little is missed."""
RATES = (2e-3, 1e-4)
BATCH = 512
WINDOW = 4
"""Steps for which logged actions are repeated: more would measure chaos, not the model."""
WINDOWS = 4000
"""Windows that are repeated, spread evenly over the instances."""
FEWEST = 20
"""Windows of an instance, at least."""


class World(nn.Module):
    """p(o′ − o | s, a, w), a diagonal Gaussian; w describes the instance.

    s `[m]` is a stacked row and o `[d]` the present observation in it; without a stack both are
    the same. reader is of s, newest of o.
    """

    def __init__(
        self,
        columns: Columns,
        space: ActionSpace,
        rng: torch.Generator,
        stack: Stack | None = None,
        hidden: tuple[int, ...] = HIDDEN,
    ) -> None:
        super().__init__()
        self.space, self.stack = space, stack
        self.reader = self.newest = Reader(columns)
        if stack is not None:
            self.newest = Reader(columns.first(stack.dim))
        inputs = self.reader.features_dim + space.width + DIM + space.width * DIM
        self.body = perceptron(inputs, hidden, 2 * self.newest.width)
        initialise(self.body, rng)

    def predict(self, states: Tensor, actions: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the standardised change of the observation, [B, d] each.

        actions `[B, A]`: encoded.
        """
        crossed = (actions.unsqueeze(2) * w.unsqueeze(1)).flatten(1)
        known = self.reader.features(states)
        mean, log_variance = self.body(torch.cat((known, actions, w, crossed), dim=1)).chunk(2, 1)
        return mean, log_variance.clamp(*LOG_NOISE)

    def step(self, states: Tensor, actions: Tensor, w: Tensor, noise: Tensor) -> Tensor:
        """The states after one step, [B, m]; `noise[B, d]` is standard normal."""
        mean, log_variance = self.predict(states, actions, w)
        present = states[:, : self.newest.width]
        after = self.newest.after(present, mean + torch.exp(0.5 * log_variance) * noise)
        if self.stack is None:
            return after
        # Only the observation is predicted: all else in the row is known.
        rows = states.clone().numpy()
        self.stack.took(rows, actions.numpy())
        self.stack.see(rows, after.numpy())
        return torch.from_numpy(rows)


class WorldStage(UpdateStage):
    """Fits a world and a posterior of w for every instance to all logged transitions.

    stack: how the rows of `steps` are stacked, if they are.
    """

    watched = ("log_likelihood",)

    def __init__(
        self,
        steps: Steps,
        columns: Columns,
        updates: int,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
        stack: Stack | None = None,
        hidden: tuple[int, ...] = HIDDEN,
        batch: int = BATCH,
    ) -> None:
        super().__init__("world", updates, RATES)
        rng = torch_generator(seed, "world", "initialise")
        self.world = World(columns, space, rng, stack, hidden)
        self._batch = batch
        self.posteriors = Posteriors(num_instances, DIM, 0.05, rng)
        self.optimise(
            {"world": self.world, "posteriors": self.posteriors},
            torch_generator(seed, "world", "train"),
            {"posteriors": 5.0},
        )
        self._before = torch.from_numpy(steps.observations[steps.row])
        after = torch.from_numpy(steps.observations[steps.row + 1])
        newest = self.world.newest
        self._change = newest.change(self._before[:, : newest.width], after[:, : newest.width])
        self._actions = torch.from_numpy(space.encode(steps.actions))
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._rows = Balanced(steps.instance)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._shared = torch.from_numpy(np.maximum(counts, 1).astype(np.float32))

    def predictions(self, steps: Steps) -> tuple[Floats, Floats]:
        """The standardised change of every step and its prediction, [N, d] each.

        `steps` are of instances that the world knows, stacked as those it learned from.
        """
        newest = self.world.newest
        before = torch.from_numpy(steps.observations[steps.row])
        after = torch.from_numpy(steps.observations[steps.row + 1][:, : newest.width])
        w = self.posteriors.mean[torch.from_numpy(steps.instance.astype(np.int64))]
        with one_thread(), torch.no_grad():
            actions = torch.from_numpy(self.world.space.encode(steps.actions))
            mean, _ = self.world.predict(before, actions, w)
            change = newest.change(before[:, : newest.width], after)
        return change.numpy(), mean.numpy()

    def _update(self) -> Tensor:
        rows = self._rows.draw(self._batch, self.rng)
        instance = self._instance[rows]
        q = (self.posteriors.mean[instance], self.posteriors.log_variance[instance])
        w = sample(q, self.rng)
        mean, log_variance = self.world.predict(self._before[rows], self._actions[rows], w)
        varies = self.world.newest.varies
        # A column that never changes has nothing to say.
        change = torch.where(varies > 0, self._change[rows], mean.detach())
        likelihood = log_normal(change, mean, log_variance).mean()
        loss = -likelihood + (kl_standard(q) / self._shared[instance]).mean()
        self._descend(loss)
        return likelihood.detach()


def roll_out(
    stage: WorldStage,
    outcome: OutcomeModel,
    agent: Agent,
    starts: Floats,
    instance: Integers,
    horizon: Integers,
    seed: int,
    hidden: Sequence[Hidden] | None = None,
) -> Doubles:
    """The return of `agent` in one episode from each of `starts[n, m]`, of `horizon[n]` steps, [n].

    The agent observes what the world predicts, or the whole stacked row if it is for such rows.
    instance `[n]`: whose dynamics each episode has; hidden: one entry per episode for an agent
    that needs it. The same seed gives every agent the same noise.
    """
    count = len(starts)
    seeds = [integer(seed, "episode", row) for row in range(count)]
    episodes = agent.begin_batch(seeds, hidden)
    rng = torch_generator(seed, "noise")
    w = stage.posteriors.mean.detach()[torch.from_numpy(instance.astype(np.int64))]
    states = torch.from_numpy(np.array(starts, dtype=np.float32))
    active = np.ones(count, dtype=bool)
    earned = np.zeros(count)
    space = stage.world.space
    observed, predicted = agent.spaces.observation_dim, stage.world.newest.width
    with one_thread(), torch.no_grad():
        for step in range(int(horizon.max())):
            chosen = episodes.act(states.numpy()[:, :observed], active)
            # an episode that is over takes any action
            taken = space.empty(count)
            taken[active] = chosen[active]
            actions = torch.from_numpy(space.encode(taken))
            noise = torch.randn((count, predicted), generator=rng)
            after = stage.world.step(states, actions, w, noise)
            rewards, ended = outcome.predict(states, actions, after)
            earned[active] += rewards.double().numpy()[active]
            active &= (ended.numpy() == 0) & (step + 1 < horizon)
            if not active.any():
                break
            states = after
    return earned


def replay(
    stage: WorldStage,
    outcome: OutcomeModel,
    steps: Steps,
    first: Integers,
    length: Integers,
    seed: int,
) -> Doubles:
    """What the logged actions earn from logged states on, [n], if the world answers them.

    first, length `[n]`: runs of steps of one episode each. A run is over where the world ends it.
    """
    rng = torch_generator(seed, "replay")
    w = stage.posteriors.mean.detach()[torch.from_numpy(steps.instance[first].astype(np.int64))]
    states = torch.from_numpy(steps.observations[steps.row[first]])
    active = np.ones(len(first), dtype=bool)
    earned = np.zeros(len(first))
    with one_thread(), torch.no_grad():
        for step in range(int(length.max())):
            active &= step < length
            taken = steps.actions[first + np.minimum(step, length - 1)]
            actions = torch.from_numpy(stage.world.space.encode(taken))
            noise = torch.randn((len(first), stage.world.newest.width), generator=rng)
            after = stage.world.step(states, actions, w, noise)
            rewards, ended = outcome.predict(states, actions, after)
            earned[active] += rewards.double().numpy()[active]
            active &= ended.numpy() == 0
            states = after
    return earned


def replay_error(
    world: WorldStage,
    outcome: OutcomeModel,
    steps: Steps,
    length: Integers,
    rewards: Doubles,
    factor: Doubles,
    seed: int,
) -> float:
    """How far learned dynamics are off in what logged actions earn, per episode of an instance.

    length `[E]`: of the episodes; rewards `[N]`: as the outcome has learned them; factor `[I]`:
    from these to the unit of the error. Root mean square over instances, less what chance adds.
    """
    rng = generator(seed, "windows")
    left = np.repeat(length, length) - steps.time
    present = np.unique(steps.instance)
    each = max(FEWEST, WINDOWS // len(present))
    first = np.concatenate(
        [rng.choice(np.flatnonzero(steps.instance == code), each) for code in present]
    )
    long = np.minimum(WINDOW, left[first])
    total = np.concatenate([[0.0], np.cumsum(rewards)])
    logged = total[first + long] - total[first]
    earned = replay(world, outcome, steps, first, long, integer(seed, "replay"))
    # row by row the windows of one instance
    gap, long = (earned - logged).reshape(-1, each), long.reshape(-1, each)
    owner = steps.instance[steps.time == 0]
    episode = np.array([length[owner == code].mean() for code in present]) / long.mean(axis=1)
    episode *= factor[present]
    bias = episode * gap.mean(axis=1)
    chance = episode**2 * gap.var(axis=1, ddof=1) / each
    return float(np.sqrt(max(np.mean(bias**2 - chance), 0.0)))

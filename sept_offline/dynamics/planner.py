"""A policy trained in fictional episodes, from the model an episode believes in."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sept_offline.agent import Control
from sept_offline.agent.networks import MLP
from sept_offline.control.learner import Learner
from sept_offline.control.replay import Batch
from sept_offline.dynamics.belief import Belief
from sept_offline.dynamics.model import Fiction
from sept_offline.errors import AgentError
from sept_offline.seeding import integer, torch_generator
from sept_offline.settings import BnnConfig, ControlConfig
from sept_offline.training.inputs import Floats

MOST_KEPT = 10_000_000
BETWEEN = 4
"""Steps of all fictional episodes between two rounds of updates."""


class Planner:
    """DoubleDQN on the state alone, of one episode; it goes on where the last plan ended.

    Each fictional episode has its own sample of w and of the network's weights. It
    moves by the mean change there, without noise.
    """

    def __init__(
        self, fiction: Fiction, plan: BnnConfig, config: ControlConfig, control: Control, seed: int
    ) -> None:
        self.fiction, self.plan, self.config, self.scaler = fiction, plan, config, control.scaler
        network = control.network
        if not isinstance(network, MLP):
            raise AgentError("A planner needs a single network, but the agent has an ensemble.")
        check_plan(plan, config, network)
        self.learner = Learner(
            config, network.input_dim, network.output_dim, integer(seed, "agent", "planner")
        )
        self.learner.members[0].start_from(network)
        self._rng = torch_generator(seed, "agent", "fiction")
        self._mean = torch.from_numpy(self.scaler.mean.copy())
        self._inverse = torch.from_numpy(self.scaler.inverse.copy())

    def improve(self, belief: Belief) -> Control:
        """Run fictional episodes, learn from them, and return the policy."""
        plan, model = self.plan, belief.model.dynamics
        w, weights = belief.draw(plan.episodes)
        seen = torch.from_numpy(belief.states())
        states = self._begin(plan.episodes, seen)
        rounds = -(-plan.horizon // BETWEEN)
        lived: list[Batch] = []
        for step in range(plan.horizon):
            actions = self._choose(self._inputs(states))
            with torch.no_grad():
                taken = torch.nn.functional.one_hot(actions, model.action_width).float()
                known = model.known(states, taken)
                world = torch.cat((known, w), dim=-1).unsqueeze(1)
                after = model.reader.after(states, model.network(world, weights).squeeze(1))
            lived.append(self._judge(states, actions, taken, after))
            over = lived[-1].terminals > 0
            states = torch.where(over.unsqueeze(1), self._begin(plan.episodes, seen), after)
            if (step + 1) % BETWEEN == 0 or step + 1 == plan.horizon:
                done = -(-(step + 1) // BETWEEN)
                share = plan.updates * done // rounds - plan.updates * (done - 1) // rounds
                self._learn(lived, share)
        network = self.learner.averaged() if plan.average_decay else self.learner.current()
        return Control(self.scaler, network)

    def _judge(self, states: Tensor, actions: Tensor, taken: Tensor, after: Tensor) -> Batch:
        """Fictional transitions with the rewards and ends they would have."""
        with torch.no_grad():
            rewards, ended = self.fiction.outcome.predict(states, taken, after)
        goal = self.config.goal_shift
        if goal is not None:
            rewards = rewards - goal * (1 - self.config.gamma * (1 - ended))
        return Batch(self._inputs(states), actions, rewards, self._inputs(after), ended)

    def _inputs(self, states: Tensor) -> Tensor:
        return (states - self._mean) * self._inverse

    def _begin(self, count: int, seen: Tensor) -> Tensor:
        """`count` states to begin in, [count, d]."""
        kinds = torch.rand(count, generator=self._rng)
        places = torch.rand(count, generator=self._rng)
        half = self.plan.anywhere + 0.5 * (1 - self.plan.anywhere)
        sources = (
            (kinds < self.plan.anywhere, self.fiction.anywhere),
            ((kinds >= self.plan.anywhere) & (kinds < half), self.fiction.starts),
            (kinds >= half, seen.numpy()),
        )
        states = torch.empty(count, seen.shape[1])
        for chosen, source in sources:
            rows = (places[chosen] * len(source)).long().clamp_max(len(source) - 1)
            states[chosen] = torch.from_numpy(source[rows.numpy()])
        return states

    def _choose(self, inputs: Tensor) -> Tensor:
        greedy = self.learner.q_values(inputs).argmax(dim=1)
        random = torch.randint(self.learner.width, (len(inputs),), generator=self._rng)
        explores = torch.rand(len(inputs), generator=self._rng) < self.plan.explore
        return torch.where(explores, random, greedy)

    def _learn(self, lived: list[Batch], updates: int) -> None:
        if not updates:
            return
        names = ("inputs", "actions", "rewards", "next_inputs", "terminals")
        whole = [torch.cat([getattr(batch, name) for batch in lived]) for name in names]
        size = self.config.batch_size
        rows = torch.randint(len(whole[1]), (updates * size,), generator=self._rng)
        for batch in Batch(*(column[rows] for column in whole)).split(updates):
            self.learner.update(batch)


def check_plan(plan: BnnConfig, config: ControlConfig, network: MLP) -> None:
    """Raise unless the settings are those of the network, and what is planned fits into memory."""
    hidden = tuple(len(bias) for _, bias in network.layers[:-1])
    if (config.hidden, config.members, config.num_critics) != (hidden, 1, 1):
        raise AgentError(
            f"The planner's network has hidden layers of {list(hidden)} units, which contradicts "
            "the agent's settings."
        )
    kept = max(plan.updates * config.batch_size, plan.episodes * plan.horizon)
    if kept > MOST_KEPT:
        raise AgentError(
            f"A plan may use at most {MOST_KEPT:,} fictional transitions at once; the agent's "
            f"settings require {kept:,}."
        )


def states_of(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """At most `count` of `rows[n, d]`, without repetition."""
    if len(rows) <= count:
        return rows.copy()
    return rows[np.sort(rng.choice(len(rows), size=count, replace=False))]

"""Contexts that learn in the episode: inference of w, and planning with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sept_offline.agent import Control
from sept_offline.agent.contexts.base import EMPTY, Context, Tracker, check_sizes
from sept_offline.agent.networks import MLP, Array, Arrays, Standardiser
from sept_offline.agent.records import Part, Value, Weights, field
from sept_offline.control import Batch, Learner
from sept_offline.dynamics.model import Belief, Fiction, Model
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.seeding import integer, torch_generator
from sept_offline.settings import BnnConfig, ControlConfig, DptConfig, build, to_plain
from sept_offline.threads import one_thread

MOST_KEPT = 10_000_000
BETWEEN = 4
"""Steps of all fictional episodes between two rounds of updates."""


class Planner:
    """DoubleDQN on the state alone, for one episode; each plan continues from the last one.

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
    """Raise unless the settings match the network and the plan fits into memory."""
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


class _Settings(Value):
    """Settings of one kind, as a part of the description."""

    def describe(self, value: Any) -> dict[str, Any]:
        """See Value."""
        return {self.name: to_plain(value)}


def _read(kind: type[Any], description: Any, name: str) -> Any:
    """The settings `description[name]`."""
    return build(kind, field(description, name, dict), name)


class _Modelled(Context):
    """Base of contexts that update a model of the dynamics in the episode."""

    learns = True

    def __init__(self, model: Model) -> None:
        self.model = model

    def check(self, observation_dim: int, action_width: int) -> None:
        """The model must be of these spaces."""
        dynamics = self.model.dynamics
        sizes = (dynamics.reader.width, dynamics.action_width)
        check_sizes("model", sizes, (observation_dim, action_width))


class PlanningContext(_Modelled):
    """Every few steps: infer w, tune the network, train the policy in fictional episodes: `bnn`.

    control: the settings by which the policy learns, as its rewards were prepared.
    """

    kind = "planning"
    stored = (
        Part("model", Model.from_arrays),
        Part("fiction", Fiction.from_arrays),  # which also needs the model: see `from_arrays`
        _Settings("plan", partial(_read, BnnConfig)),
        _Settings("control", partial(_read, ControlConfig)),
    )
    dim = 0

    def __init__(
        self, model: Model, fiction: Fiction, plan: BnnConfig, control: ControlConfig
    ) -> None:
        super().__init__(model)
        self.fiction, self.plan, self.control = fiction, plan, control

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that begins with the prior and the agent's own policy."""
        return _Planning(self, seed, control)

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> Self:
        """The context that `to_arrays(prefix)` and `describe()` wrote."""
        model = Model.from_arrays(arrays, field(description, "model", dict), f"{prefix}.model")
        part = field(description, "fiction", dict)
        fiction = Fiction.from_arrays(arrays, part, f"{prefix}.fiction", model)
        plan = _read(BnnConfig, description, "plan")
        return cls(model, fiction, plan, _read(ControlConfig, description, "control"))


class InferredContext(_Modelled):
    """The mean of q(w), inferred again every few steps: `dpt`."""

    kind = "inferred"
    stored = (
        Part("model", Model.from_arrays),
        Weights("scaler", Standardiser.from_arrays),
        _Settings("settings", partial(_read, DptConfig)),
    )

    def __init__(self, model: Model, scaler: Standardiser, settings: DptConfig) -> None:
        super().__init__(model)
        self.scaler, self.settings, self.dim = scaler, settings, model.dim
        if scaler.dim != self.dim:
            raise AgentError(f"w has {self.dim} columns, but its scaler {scaler.dim}.")

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that begins with the prior."""
        return _Inferring(self, seed)


class _Seeing(Tracker, ABC):
    """Passes every step of the episode to the belief and updates it periodically."""

    def __init__(self, belief: Belief, every: int, vector: Array) -> None:
        super().__init__(vector, settled=False)
        self.belief, self._every = belief, every
        self._time = 0
        self._before: Array = EMPTY
        self._action = 0
        self._report()

    def step(self, observation: Array, reward: float | None = None) -> None:
        """Control acts, with what has been learned so far."""
        if self._time:
            self.belief.see(self._before, self._action, observation)
            if self._time % self._every == 0:
                with one_thread():
                    self._learn()
                self._report()
        self._before = np.array(observation)

    def took(self, taken: Array) -> None:
        """Remember it until its effect is seen."""
        self._action = int(taken.argmax())
        self._time += 1

    @abstractmethod
    def _learn(self) -> None:
        """From all that the belief has seen."""

    def _report(self) -> None:
        self.latent, self.uncertainty = self.belief.mean, self.belief.spread


class _Planning(_Seeing):
    """Infers, tunes, plans."""

    def __init__(self, context: PlanningContext, seed: int, control: Control) -> None:
        plan = context.plan
        super().__init__(Belief(context.model, seed, plan.samples), plan.every, EMPTY)
        self._plan = plan
        self._planner = Planner(context.fiction, plan, context.control, control, seed)

    def _learn(self) -> None:
        plan = self._plan
        self.belief.infer(plan.infer_steps, plan.infer_rate)
        self.belief.tune(plan.tune_steps, plan.tune_rate)
        self.control = self._planner.improve(self.belief)


class _Inferring(_Seeing):
    """Infers; the policy was learned for any w."""

    def __init__(self, context: InferredContext, seed: int) -> None:
        settings = context.settings
        belief = Belief(context.model, seed, settings.samples)
        super().__init__(belief, settings.every, context.scaler(belief.mean))
        self._context = context

    def _learn(self) -> None:
        settings = self._context.settings
        self.belief.infer(settings.infer_steps, settings.infer_rate)
        self.vector = self._context.scaler(self.belief.mean)

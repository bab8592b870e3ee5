"""Contexts that learn in the episode: w inferred as it goes, and plans made with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Self

import numpy as np

from sept_offline.agent import Control
from sept_offline.agent.contexts.base import EMPTY, Context, Tracker, check_sizes
from sept_offline.agent.networks import Array, Arrays, Standardiser
from sept_offline.agent.records import Part, Value, Weights, field
from sept_offline.dynamics.belief import Belief
from sept_offline.dynamics.model import Fiction, Model
from sept_offline.dynamics.planner import Planner
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.settings import BnnConfig, ControlConfig, DptConfig, build, to_plain
from sept_offline.threads import one_thread


class _Settings(Value):
    """Settings of one kind, as a part of the description."""

    def describe(self, value: Any) -> dict[str, Any]:
        """See Value."""
        return {self.name: to_plain(value)}


def _read(kind: type[Any], description: Any, name: str) -> Any:
    """The settings `description[name]`."""
    return build(kind, field(description, name, dict), name)


class _Modelled(Context):
    """An episode that carries a model along; what it does with it is left open."""

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
        own = field(description, "fiction", dict)
        fiction = Fiction.from_arrays(arrays, own, f"{prefix}.fiction", model)
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

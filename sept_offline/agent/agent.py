"""The agent: what a fitted method leaves behind to act in one episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from ..limits import LONGEST_STACK
from ..stacking import Stack
from .contexts import Context
from .control import Control
from .networks import Array

if TYPE_CHECKING:
    from ..family import Hidden
    from .episode import AgentEpisode, BatchEpisode


TOLERANCE = 0.05
"""How far beyond a column's range, as a share of it, an observation still counts as inside."""


@dataclass(frozen=True)
class Spaces:
    """What the agent observes and does.

    observation_names `[d]`, action_names `[num_actions]`, and the range of each observed column in
    the training data, low `[d]` and high `[d]`.
    """

    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    low: Array
    high: Array

    def __post_init__(self) -> None:
        """Refuse what does not fit together."""
        dim = self.observation_dim
        if not dim or not self.num_actions:
            raise AgentError("An agent needs at least one observed column and one action.")
        if np.shape(self.low) != (dim,) or np.shape(self.high) != (dim,):
            raise AgentError(f"The observed range must have {dim} columns, as the names do.")

    @property
    def observation_dim(self) -> int:
        """d, the number of observed columns."""
        return len(self.observation_names)

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return len(self.action_names)

    def outside(self, observations: NDArray[Any]) -> NDArray[np.bool_]:
        """Which columns of `observations[..., d]` lie outside the training data's range."""
        values = np.asarray(observations, dtype=np.float32)
        return np.asarray((values < self.limits[0]) | (values > self.limits[1]))

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Lowest and highest `[d]` that still count as inside: the range, with a little room."""
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        # a constant column has no range to take a share of, only rounding to allow for
        room = TOLERANCE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        return (low - room).astype(np.float32), (high + room).astype(np.float32)

    @classmethod
    def of(
        cls,
        observations: NDArray[Any],
        num_actions: int,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> Spaces:
        """From training `observations[n, d]`; missing names are made up."""
        rows = np.asarray(observations, dtype=np.float32)
        columns = observation_names or [f"observation_{i}" for i in range(rows.shape[1])]
        actions = action_names or [f"action_{i}" for i in range(num_actions)]
        return cls(tuple(columns), tuple(actions), rows.min(axis=0), rows.max(axis=0))


@dataclass(frozen=True)
class Agent:
    """What is deployed. Agents are shared and never change; each episode has its own state.

    `agent.begin(seed)` starts the one episode, and its `act(observation)` gives each action. Acting
    needs no simulator, and no torch save for `bnn` and `dpt`, which fit a model as they act.
    """

    method: str
    """Its name, as `fit` knows it."""
    family: str
    """The family whose logs it learned from; empty if they name none."""
    spaces: Spaces
    """What it observes and does, by name, and the range it has seen."""
    context: Context
    """What is made of the episode so far: a probe and an encoder, a history, or nothing."""
    control: Control
    """The values of all actions, given the observation and the context."""
    fallback: Control | None = None
    """A control on the state alone, which acts where an instance is flagged as new."""
    record: dict[str, Any] = field(default_factory=dict)
    """For people: JSON-ready facts about how it was made."""
    learned_from: NDArray[np.uint64] | None = None
    """`[E]`: digests of the episodes it was fitted to, so that it is not judged on them; None if
    unknown."""
    stack: int = 1
    """Observations that context and control read side by side: the present one and the last ones.
    Episodes are given the present one alone, and keep the others."""

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        if not 1 <= self.stack <= LONGEST_STACK:
            raise AgentError(
                f"An agent stacks 1 to {LONGEST_STACK} observations, found {self.stack}."
            )
        dim, actions = self.stacking.width, self.spaces.num_actions
        self.context.check(dim, actions)
        self.control.check("control", dim, self.context.dim, actions)
        if self.fallback is not None:
            self.fallback.check("fallback", dim, 0, actions)

    @cached_property
    def stacking(self) -> Stack:
        """The rows that context and control read."""
        return Stack(self.stack, self.spaces.observation_dim, self.spaces.num_actions)

    @property
    def needs(self) -> frozenset[str]:
        """What it must be given beside observations: a subset of {"hidden", "reward"}."""
        return self.context.needs

    @property
    def learns(self) -> bool:
        """Whether it takes gradient steps during its episode."""
        return self.context.learns

    @property
    def probe_steps(self) -> int:
        """T_p, the steps it probes for; 0 if it does not."""
        return self.context.probe_steps

    def begin(self, seed: int = 0, hidden: Hidden | None = None) -> AgentEpisode:
        """The state of one new episode; `hidden` only for an agent that declares it."""
        from .episode import AgentEpisode

        return AgentEpisode(self, seed, hidden)

    def begin_batch(
        self, seeds: Sequence[int], hidden: Sequence[Hidden] | None = None
    ) -> BatchEpisode:
        """As many new episodes as there are seeds, which act together; `hidden` one for each."""
        from .episode import BatchEpisode

        return BatchEpisode(self, seeds, hidden)

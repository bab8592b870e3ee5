"""The agent: the result of a fit, which acts in one episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..actions import ActionSpace, Finite
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

    observation_names `[d]`, the space of the actions, and the range of each observed column in the
    training data, low `[d]` and high `[d]`.
    """

    observation_names: tuple[str, ...]
    actions: ActionSpace
    low: Array
    high: Array

    def __post_init__(self) -> None:
        """Raise unless names and range fit together."""
        dim = self.observation_dim
        if not dim:
            raise AgentError("An agent needs at least one observed column.")
        if np.shape(self.low) != (dim,) or np.shape(self.high) != (dim,):
            raise AgentError(f"The observed range must have {dim} columns, one per name.")

    @property
    def observation_dim(self) -> int:
        """d, the number of observed columns."""
        return len(self.observation_names)

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions `[A]`, or of the components of an action `[k]`."""
        return self.actions.names

    @property
    def num_actions(self) -> int:
        """The number of actions; an error for a box, which has no such number."""
        if not isinstance(self.actions, Finite):
            raise AgentError("The agent's actions are a box and cannot be counted.")
        return self.actions.width

    def outside(self, observations: NDArray[Any]) -> NDArray[np.bool_]:
        """Which columns of `observations[..., d]` lie outside the training data's range."""
        values = np.asarray(observations, dtype=np.float32)
        return np.asarray((values < self.limits[0]) | (values > self.limits[1]))

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Lowest and highest `[d]` that still count as inside: the range with a small margin."""
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        # a constant column has no range, so the margin only covers rounding
        room = TOLERANCE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        return (low - room).astype(np.float32), (high + room).astype(np.float32)

    @classmethod
    def of(
        cls,
        observations: NDArray[Any],
        actions: ActionSpace,
        observation_names: Sequence[str] | None = None,
    ) -> Spaces:
        """From training `observations[n, d]`; missing names get defaults."""
        rows = np.asarray(observations, dtype=np.float32)
        columns = observation_names or [f"observation_{i}" for i in range(rows.shape[1])]
        return cls(tuple(columns), actions, rows.min(axis=0), rows.max(axis=0))


@dataclass(frozen=True)
class Agent:
    """A fitted agent. It never changes and can be shared; each episode has its own state.

    `agent.begin(seed)` starts an episode, and its `act(observation)` returns each action. Acting
    needs no simulator; only `bnn` and `dpt`, which fit a model during the episode, need torch.
    """

    method: str
    """The name of the method."""
    family: str
    """The family of the training logs; empty if they do not name one."""
    spaces: Spaces
    """Names of observations and actions, and the range of the training data."""
    context: Context
    """The source of control's context: a probe and an encoder, a history, or none."""
    control: Control
    """The action, or the values of all actions, given the observation and the context."""
    fallback: Control | None = None
    """A control on the state alone, which acts where an instance is flagged as new."""
    record: dict[str, Any] = field(default_factory=dict)
    """JSON-ready facts about the fit, for people."""
    learned_from: NDArray[np.uint64] | None = None
    """`[E]`: digests of the training episodes, which `ope` leaves out; None if unknown."""
    stack: int = 1
    """Number of observations that context and control read: the current one and the ones before.
    An episode is given the current one only and keeps the others."""

    def __post_init__(self) -> None:
        """Raise unless the parts fit together."""
        if not 1 <= self.stack <= LONGEST_STACK:
            raise AgentError(
                f"The number of stacked observations is {self.stack}; expected 1 to "
                f"{LONGEST_STACK}."
            )
        dim, actions = self.stacking.width, self.spaces.actions
        self.context.check(dim, actions.width)
        self.control.check("control", dim, self.context.dim, actions)
        if self.fallback is not None:
            self.fallback.check("fallback", dim, 0, actions)

    @cached_property
    def stacking(self) -> Stack:
        """The rows that context and control read."""
        return Stack(self.stack, self.spaces.observation_dim, self.spaces.actions.width)

    @property
    def needs(self) -> frozenset[str]:
        """What the agent needs besides observations: a subset of {"hidden", "reward"}."""
        return self.context.needs

    @property
    def learns(self) -> bool:
        """Whether it takes gradient steps during its episode."""
        return self.context.learns

    @property
    def probe_steps(self) -> int:
        """T_p, the number of probe steps; 0 for an agent without a probe."""
        return self.context.probe_steps

    def begin(self, seed: int = 0, hidden: Hidden | None = None) -> AgentEpisode:
        """Start an episode; `hidden` only for an agent that needs it."""
        from .episode import AgentEpisode

        return AgentEpisode(self, seed, hidden)

    def begin_batch(
        self, seeds: Sequence[int], hidden: Sequence[Hidden] | None = None
    ) -> BatchEpisode:
        """Start one episode per seed, which act together; `hidden` has one entry per episode."""
        from .episode import BatchEpisode

        return BatchEpisode(self, seeds, hidden)

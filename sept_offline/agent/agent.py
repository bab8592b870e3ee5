"""The agent: the result of a fit, which acts in one episode, and its description in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..actions import ActionSpace, Box, Finite, space_from
from ..errors import AgentError, ConfigError
from ..limits import LONGEST_STACK
from ..stacking import Stack
from . import records
from .contexts import Context, context_from_arrays
from .control import Actor, Control
from .episode import AgentEpisode, BatchEpisode
from .networks import Array, Arrays, Standardiser, network_from_arrays, take
from .records import strings

if TYPE_CHECKING:
    from ..family import Hidden


LEARNED_FROM = "record.learned_from"
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
            raise AgentError("The agent's actions are continuous and cannot be counted.")
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
        return AgentEpisode(self, seed, hidden)

    def begin_batch(
        self, seeds: Sequence[int], hidden: Sequence[Hidden] | None = None
    ) -> BatchEpisode:
        """Start one episode per seed, which act together; `hidden` has one entry per episode."""
        return BatchEpisode(self, seeds, hidden)


def agent_arrays(agent: Agent) -> dict[str, NDArray[Any]]:
    """All arrays of an agent, by the names they have on disk."""
    arrays = {
        "spaces.low": np.asarray(agent.spaces.low, dtype=np.float32),
        "spaces.high": np.asarray(agent.spaces.high, dtype=np.float32),
        **agent.context.to_arrays("context"),
    }
    for name, control in (("control", agent.control), ("fallback", agent.fallback)):
        if control is not None:
            arrays |= control.scaler.to_arrays(f"{name}.scaler")
            arrays |= control.network.to_arrays(f"{name}.network")
    return arrays


def assemble(description: dict[str, Any], arrays: Arrays) -> Agent:
    """The agent of a description and the arrays of `agent_arrays`."""
    space = read_space(description)
    spaces = Spaces(
        strings(description, "observation_names"),
        space,
        take(arrays, "spaces.low", 1),
        take(arrays, "spaces.high", 1),
    )
    fallback = None
    if records.field(description, "fallback", bool):
        fallback = _control(arrays, "fallback", space)
    agent = Agent(
        method=records.field(description, "method", str),
        family=records.field(description, "family", str),
        spaces=spaces,
        context=context_from_arrays(arrays, records.field(description, "context", dict), "context"),
        control=_control(arrays, "control", space),
        fallback=fallback,
        record=records.field(description, "record", dict),
        learned_from=_learned_from(arrays),
        # agents of earlier versions do not stack
        stack=records.field({"stack": 1} | description, "stack", int),
    )
    if sorted(agent.needs) != list(strings(description, "needs")):
        raise AgentError(
            f"`needs` in its description, {description['needs']}, contradicts its context."
        )
    # agents of earlier versions never learn, and lack the field
    if agent.learns != description.get("learns", False):
        raise AgentError("`learns` in its description contradicts its context.")
    if agent.probe_steps != records.field(description, "probe_steps", int):
        raise AgentError("`probe_steps` in its description contradicts its encoder.")
    return agent


def _learned_from(arrays: Arrays) -> NDArray[np.uint64] | None:
    """The digests of training episodes; None for agents of earlier versions."""
    digests = arrays.get(LEARNED_FROM)
    if digests is not None and (digests.dtype != np.uint64 or digests.ndim != 1):
        raise AgentError(f"Its weights hold {LEARNED_FROM!r} as {digests.dtype}, expected uint64.")
    return digests


def _control(arrays: Arrays, name: str, space: ActionSpace) -> Control:
    scaler = Standardiser.from_arrays(arrays, f"{name}.scaler")
    network = network_from_arrays(arrays, f"{name}.network")
    return Actor(scaler, network, space) if isinstance(space, Box) else Control(scaler, network)


def describe_space(space: ActionSpace) -> dict[str, Any]:
    """The actions in a description; `read_space` reads them. A finite set has names alone."""
    if isinstance(space, Finite):
        return {"action_names": list(space.names)}
    return {"action_space": space.describe()}


def read_space(description: dict[str, Any]) -> ActionSpace:
    """What `describe_space` wrote."""
    if "action_space" not in description:
        return Finite(strings(description, "action_names"))
    try:
        return space_from(description["action_space"])
    except ConfigError as error:
        raise AgentError(str(error)) from error

"""The agent: what a fitted method leaves behind to act in one episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.contexts import Context
from sept_offline.agent.networks import Array, Network, Standardiser
from sept_offline.errors import AgentError
from sept_offline.family import Hidden

if TYPE_CHECKING:
    from sept_offline.agent.episode import AgentEpisode, BatchEpisode

NEARLY_TIED = np.float32(3e-5)
"""Values this close, relative to their size, may be ordered by rounding alone."""


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
class Control:
    """Values of the actions on [standardised state, context]: `network` takes d + k inputs."""

    scaler: Standardiser
    network: Network

    def values(self, inputs: Array) -> Array:
        """`[n, num_actions]` of prepared `inputs[n, d + k]`."""
        return self.network(inputs)

    def greedy(self, inputs: Array) -> NDArray[np.int64]:
        """The best action `[n]` of each row of prepared `inputs[n, d + k]`.

        Products of matrices round differently from those of a matrix and a vector, and with the
        number of rows. Where that could change the order of the best two, the row is valued alone,
        so that an action depends neither on the rows beside it nor on there being any.
        """
        values = self.network(inputs)
        best: NDArray[np.int64] = values.argmax(axis=1)
        if values.shape[1] > 1:
            top = np.partition(values, -2, axis=1)[:, -2:]
            size = np.abs(values).max(axis=1) + np.float32(1)
            for row in np.flatnonzero(top[:, 1] - top[:, 0] <= NEARLY_TIED * size):
                best[row] = self.network.row(inputs[row]).argmax()
        return best

    def check(self, name: str, observation_dim: int, context_dim: int, num_actions: int) -> None:
        """Raise unless it fits these spaces and this context."""
        expected = (observation_dim, observation_dim + context_dim, num_actions)
        found = (self.scaler.dim, self.network.input_dim, self.network.output_dim)
        if found != expected:
            raise AgentError(
                f"The agent's {name} scales {found[0]} columns and maps {found[1]} inputs to "
                f"{found[2]} actions, expected {expected[0]}, {expected[1]} and {expected[2]}."
            )


@dataclass(frozen=True)
class Agent:
    """What is deployed. Agents are shared and never change; each episode has its own state.

    `fallback`, a control on the state alone, acts where the probe flags the instance as new.
    `record` is for people: JSON-ready facts about how it was made.
    """

    method: str
    family: str
    spaces: Spaces
    context: Context
    control: Control
    fallback: Control | None = None
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        dim, actions = self.spaces.observation_dim, self.spaces.num_actions
        self.context.check(dim, actions)
        self.control.check("control", dim, self.context.dim, actions)
        if self.fallback is not None:
            self.fallback.check("fallback", dim, 0, actions)

    @property
    def needs(self) -> frozenset[str]:
        """What it must be given beside observations: a subset of {"hidden", "reward"}."""
        return self.context.needs

    @property
    def probe_steps(self) -> int:
        """T_p, the steps it probes for; 0 if it does not."""
        return self.context.probe_steps

    def begin(self, seed: int = 0, hidden: Hidden | None = None) -> AgentEpisode:
        """The state of one new episode; `hidden` only for an agent that declares it."""
        from sept_offline.agent.episode import AgentEpisode

        return AgentEpisode(self, seed, hidden)

    def begin_batch(
        self, seeds: Sequence[int], hidden: Sequence[Hidden] | None = None
    ) -> BatchEpisode:
        """As many new episodes as there are seeds, which act together; `hidden` one for each."""
        from sept_offline.agent.episode import BatchEpisode

        return BatchEpisode(self, seeds, hidden)

"""The interface of contexts, and of the trackers they make for an episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from ...actions import Policy
from ...errors import AgentError
from ..networks import Array
from ..records import Record

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control

EMPTY = np.empty(0, dtype=np.float32)


class Tracker:
    """One episode's context. This one never changes; others override `step`.

    vector `[k]` is what control reads; settled means that neither it nor the control will change
    again in this episode.
    """

    control: Control | None = None
    """A control that replaces the agent's from now on, with the same inputs; or None."""
    latent: Array | None = None
    uncertainty: float | None = None
    novelty: float | None = None
    flagged = False

    def __init__(self, vector: Array, settled: bool = True) -> None:
        self.vector, self.settled = vector, settled

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The policy that acts in `observation[d]`, over encoded actions; None if control acts.

        `reward` is the last step's, if "reward" is among the context's needs and there was one.
        """
        return None

    def took(self, taken: Array) -> None:
        """Called, until settled, with the encoded action `[w]` of the step, whoever chose it."""


class Context(Record, ABC):
    """The source of control's input besides the state."""

    dim: int
    needs: frozenset[str] = frozenset()
    """What a tracker needs besides observations: a subset of {"hidden", "reward"}."""
    learns = False
    """Whether gradient steps are taken during the episode."""
    probe_steps = 0

    @abstractmethod
    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """The tracker of a new episode, for an agent with this control.

        `hidden` is given exactly if it is among the needs. A tracker must not change `control`,
        which all episodes share.
        """

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the context's parts fit observations and encoded actions of these sizes.

        This one fits any.
        """


def check_sizes(name: str, sizes: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raise unless the part `name` has the expected columns of observations and of actions."""
    if sizes != expected:
        raise AgentError(
            f"The agent's {name} is for {sizes[0]} columns and {sizes[1]} of actions, "
            f"its spaces have {expected[0]} and {expected[1]}."
        )

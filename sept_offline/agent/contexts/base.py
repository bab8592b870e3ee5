"""What a context is, and the tracker it makes for an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..networks import Array

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
    """Acts instead of the agent's own from here on, on the same inputs, where there is one."""
    allowed: NDArray[np.bool_] | None = None
    """`[num_actions]`, set before `step`: what a tracker that acts itself may do; None is all."""
    latent: Array | None = None
    uncertainty: float | None = None
    novelty: float | None = None
    flagged = False

    def __init__(self, vector: Array, settled: bool = True) -> None:
        self.vector, self.settled = vector, settled

    def step(self, observation: Array, reward: float | None = None) -> int | None:
        """The tracker's own action in `observation[d]`, or None where control is to act.

        `reward` is the last step's, if "reward" is among the context's needs and there was one.
        """
        return None

    def took(self, action: int) -> None:
        """Told, until it is settled, what control chose after `step` left it the choice."""


class Context(Protocol):
    """Where the vector beside the state comes from."""

    kind: str
    dim: int
    needs: frozenset[str]
    """What a tracker is given beside observations: a subset of {"hidden", "reward"}."""
    learns: bool
    """Whether gradient steps are taken during the episode."""
    probe_steps: int

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """The tracker of a new episode, for an agent with this control.

        `hidden` is given exactly if it is among the needs. What a tracker learns stays its own: the
        control is shared by all episodes.
        """
        ...

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Raise unless its parts fit these spaces."""
        ...

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is needed beside the weights, JSON-ready."""
        ...


def check_sizes(name: str, sizes: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raise unless the part `name` is for as many columns and actions as are expected."""
    if sizes != expected:
        raise AgentError(
            f"The agent's {name} is for {sizes[0]} columns and {sizes[1]} actions, "
            f"its spaces have {expected[0]} and {expected[1]}."
        )

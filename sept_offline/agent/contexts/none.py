"""No context: the state alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sept_offline.agent.contexts.base import EMPTY, Tracker
from sept_offline.agent.networks import Arrays
from sept_offline.family import Hidden

if TYPE_CHECKING:
    from sept_offline.agent.control import Control


class NoContext:
    """The state alone: the robust policy `avg`."""

    kind = "none"
    dim = 0
    needs: frozenset[str] = frozenset()
    learns = False
    probe_steps = 0

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with nothing in it."""
        return Tracker(EMPTY)

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Nothing can be wrong."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": self.kind}

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> NoContext:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        return cls()

"""No context: the state alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..fields import field
from ..networks import Arrays
from .base import EMPTY, Tracker

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class NoContext:
    """The state alone: the robust policy `avg`.

    `uncertainty` is reported by its episodes: 1 if a latent was tried and carried no
    information, None if no latent was tried.
    """

    kind = "none"
    dim = 0
    needs: frozenset[str] = frozenset()
    learns = False
    probe_steps = 0

    def __init__(self, uncertainty: float | None = None) -> None:
        self.uncertainty = uncertainty

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty vector."""
        tracker = Tracker(EMPTY)
        tracker.uncertainty = self.uncertainty
        return tracker

    def check(self, observation_dim: int, action_width: int) -> None:
        """Always fits."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Its kind, and the uncertainty if there is one."""
        if self.uncertainty is None:
            return {"kind": self.kind}
        return {"kind": self.kind, "uncertainty": self.uncertainty}

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> NoContext:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        if "uncertainty" not in description:
            return cls()
        return cls(field(description, "uncertainty", float))

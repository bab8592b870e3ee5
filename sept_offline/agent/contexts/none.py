"""No context: the state alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fields import number_or_none
from ..records import Value
from .base import EMPTY, Context, Tracker

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class NoContext(Context):
    """The state alone: the robust policy `avg`.

    `uncertainty` is reported by its episodes: 1 if a latent was tried and carried no
    information, None if no latent was tried.
    """

    kind = "none"
    stored = (Value("uncertainty", number_or_none),)
    dim = 0

    def __init__(self, uncertainty: float | None = None) -> None:
        self.uncertainty = uncertainty

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty vector."""
        tracker = Tracker(EMPTY)
        tracker.uncertainty = self.uncertainty
        return tracker

    def describe(self) -> dict[str, Any]:
        """Its kind, and the uncertainty if there is one."""
        return {name: value for name, value in super().describe().items() if value is not None}

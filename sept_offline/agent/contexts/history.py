"""The last observations and actions as context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..fields import action_count, count
from ..networks import Array, Standardiser
from ..records import Value, Weights
from .base import EMPTY, Context, Tracker, check_sizes

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class HistoryContext(Context):
    """The last `steps` observations and actions before the present one: `history`.

    From the newest to the oldest, each is the standardised observation, the encoded action taken in
    it and a 1; all zeros where the episode had not begun. `dim` is steps · (d + w + 1).
    """

    kind = "history"
    stored = (
        Value("steps", count),
        Value("action_width", action_count, key="num_actions"),
        Weights("scaler", Standardiser.from_arrays),
    )

    def __init__(self, steps: int, action_width: int, scaler: Standardiser) -> None:
        if steps < 1:
            raise AgentError(f"A history needs at least 1 step, found {steps}.")
        self.steps, self.action_width, self.scaler = steps, action_width, scaler
        self.dim = steps * (scaler.dim + action_width + 1)

    def features(
        self, observations: NDArray[Any], taken: NDArray[Any], seen: NDArray[np.bool_]
    ) -> Array:
        """`[n, dim]` of `observations[n, steps, d]`, `taken[n, steps, w]`, newest first.

        `seen[n, steps]` says which of them there were; the others may hold anything.
        """
        there = seen[..., None]
        columns = np.concatenate([self.scaler(observations), taken, there], axis=2)
        whole = np.where(there, columns, np.float32(0)).astype(np.float32)
        return whole.reshape(len(whole), self.dim)

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty history."""
        return _Remembering(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the history fits these spaces."""
        check_sizes(
            "history", (self.scaler.dim, self.action_width), (observation_dim, action_width)
        )


class _Remembering(Tracker):
    """Keeps the last steps; control acts at every one."""

    def __init__(self, context: HistoryContext) -> None:
        super().__init__(np.zeros(context.dim, dtype=np.float32), settled=False)
        self._context = context
        self._observations = np.zeros((1, context.steps, context.scaler.dim), dtype=np.float32)
        self._taken = np.zeros((1, context.steps, context.action_width), dtype=np.float32)
        self._seen = np.zeros((1, context.steps), dtype=bool)
        self._present: Array = EMPTY

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control acts, with the steps before `observation[d]` as context."""
        self._present = observation
        features = self._context.features(self._observations, self._taken, self._seen)
        self.vector = features[0]
        return None

    def took(self, taken: Array) -> None:
        """Add the current step to the history and drop the oldest."""
        newest = ((self._observations, self._present), (self._taken, taken), (self._seen, True))
        for past, value in newest:
            past[0, 1:] = past[0, :-1].copy()
            past[0, 0] = value

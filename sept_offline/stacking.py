"""Observations stacked with the last steps: which column is where, in the logs and in an episode.

A stacked row of length N at time t, for d observed columns and actions encoded in w columns:

    o_t, o_(t−1), …, o_(t−N+1), a_(t−1), …, a_(t−N+1)          N·d + (N−1)·w columns

The newest comes first, so the present observation is `row[:d]`; each action is encoded
(`ActionSpace.encode`). Before the start of an episode the first observation is repeated, and the
columns of the actions are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stack:
    """The layout of stacked rows, and how a row moves on by one step."""

    length: int
    """N, the observations in a row."""
    dim: int
    """d, the columns of one observation."""
    actions: int
    """w, the columns of an encoded action."""

    @property
    def observed(self) -> int:
        """Columns that hold observations; those of the actions follow."""
        return self.length * self.dim

    @property
    def width(self) -> int:
        """Columns of a stacked row."""
        return self.observed + (self.length - 1) * self.actions

    def empty(self, *shape: int) -> NDArray[np.float32]:
        """Rows `[*shape, width]` of episodes that have not begun."""
        return np.zeros((*shape, self.width), dtype=np.float32)

    def see(self, rows: NDArray[Any], observations: NDArray[Any], first: bool = False) -> None:
        """Write the present `observations[..., d]` into `rows[..., width]`.

        `first`: the episodes begin here, so that this observation fills all places.
        """
        if first:
            for start in range(0, self.observed, self.dim):
                rows[..., start : start + self.dim] = observations
        else:
            rows[..., : self.dim] = observations

    def took(self, rows: NDArray[Any], taken: NDArray[Any]) -> None:
        """Move `rows[..., width]` on by the step that the encoded action `taken[..., w]` took."""
        if self.length == 1:
            return
        rows[..., self.dim : self.observed] = rows[..., : self.observed - self.dim]
        newest = self.observed + self.actions
        rows[..., newest:] = rows[..., self.observed : self.width - self.actions]
        rows[..., self.observed : newest] = taken

    def names(
        self, observations: Sequence[str] | None, actions: Sequence[str] | None
    ) -> tuple[str, ...]:
        """The columns' names `[width]`, from those of the observation and of the actions."""
        seen = observations or [f"observation_{column}" for column in range(self.dim)]
        taken = [f"action {name}" for name in actions or ()]
        taken = taken or [f"action_{number}" for number in range(self.actions)]
        before = range(1, self.length)
        return (
            *seen,
            *(f"{name} {lag} ago" for lag in before for name in seen),
            *(f"{name} {lag} ago" for lag in before for name in taken),
        )

"""The two kinds of actions that a simulator takes: a number, or a vector between bounds."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Numbered:
    """Actions 0 … count − 1; a kernel gets them as int64 [n]."""

    count: int

    @property
    def space(self) -> gymnasium.spaces.Discrete:
        """The Gymnasium space of one action."""
        return gymnasium.spaces.Discrete(self.count)

    def empty(self, rows: int) -> Integers:
        """A kernel's array of actions."""
        return np.zeros(rows, dtype=np.int64)

    def one(self, action: Any, name: str) -> int:
        """The action of a single environment; ValueError where it is not one."""
        try:
            index = operator.index(action)
        except TypeError as error:
            raise self._refusal(action, name) from error
        if not 0 <= index < self.count:
            raise self._refusal(action, name)
        return index

    def rows(self, actions: Any, ended: Mask, name: str) -> Integers:
        """The actions of a batch; those of rows that have ended may be anything."""
        given = np.asarray(actions)
        if given.shape != ended.shape or given.dtype.kind not in "iu":
            raise ValueError(
                f"Actions must be integers of shape {ended.shape}, "
                f"got {given.dtype} of shape {given.shape}."
            )
        chosen = np.ascontiguousarray(given, dtype=np.int64)
        # As unsigned numbers the negative ones are the greatest: one pass finds both kinds.
        if chosen.view(np.uint64).max() >= self.count:
            wrong = ((chosen < 0) | (chosen >= self.count)) & ~ended
            if wrong.any():
                raise self._refusal(chosen[wrong][0].item(), name)
            chosen = np.where(ended, 0, chosen)
        return chosen

    def _refusal(self, action: Any, name: str) -> ValueError:
        return ValueError(
            f"An action of {name!r} is an integer from 0 to {self.count - 1}: {action!r}."
        )


@dataclass(frozen=True)
class Bounded:
    """Vectors [k] between bounds; a kernel gets them as float64 [n, k].

    They are rounded to float32 first, as they are logged: a logged action repeats its step.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def space(self) -> gymnasium.spaces.Box:
        """The Gymnasium space of one action."""
        return gymnasium.spaces.Box(*self._bounds(), dtype=np.float32)

    def empty(self, rows: int) -> Array:
        """A kernel's array of actions."""
        return np.zeros((rows, len(self.low)))

    def one(self, action: Any, name: str) -> Array:
        """The action of a single environment; ValueError where it is not one."""
        given = self._numbers(action, name)
        if given.shape != (len(self.low),) or self._outside(given):
            raise self._refusal(action, name)
        return given.astype(np.float64)

    def rows(self, actions: Any, ended: Mask, name: str) -> Array:
        """The actions of a batch; those of rows that have ended may be anything."""
        given = self._numbers(actions, name)
        if given.shape != (len(ended), len(self.low)):
            raise ValueError(
                f"Actions must be numbers of shape {(len(ended), len(self.low))}, "
                f"got shape {given.shape}."
            )
        outside = self._outside(given)
        if outside.any():
            wrong = outside & ~ended
            if wrong.any():
                raise self._refusal(given[wrong][0].tolist(), name)
            given = np.where(ended[:, None], np.float32(0), given)
        return np.ascontiguousarray(given, dtype=np.float64)

    def _numbers(self, actions: Any, name: str) -> NDArray[np.float32]:
        try:
            return np.asarray(actions, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise self._refusal(actions, name) from error

    def _outside(self, given: NDArray[np.float32]) -> Mask:
        """[...]: which rows are not between the bounds, or not numbers."""
        low, high = self._bounds()
        return np.asarray(~((given >= low) & (given <= high)).all(axis=-1))

    def _bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.low, dtype=np.float32), np.array(self.high, dtype=np.float32)

    def _refusal(self, action: Any, name: str) -> ValueError:
        return ValueError(
            f"An action of {name!r} is a vector between {list(self.low)} and {list(self.high)}: "
            f"{action!r:.200}."
        )

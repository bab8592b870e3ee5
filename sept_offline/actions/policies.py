"""Policies: rows of distributions that draw actions from uniform numbers.

A row's action depends on its own numbers alone. A normal distribution that is cut off at the bounds
has a density on the bounds too. A squashed one (tanh) has none there, and logged actions often lie
on them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..elementary import Doubles, exp, log, normal_mass, normal_quantile

if TYPE_CHECKING:
    from .box import Box

SMALLEST = 1e-300
"""The least probability whose logarithm is taken."""


class Policy(ABC):
    """Distributions of actions, one for each of the rows `[...]`."""

    @abstractmethod
    def draw(self, uniforms: Doubles) -> NDArray[Any]:
        """Actions `[..., *shape]` from numbers in [0, 1), `uniforms[..., space.draws]`."""

    @abstractmethod
    def log_probability(self, actions: NDArray[Any]) -> Doubles:
        """`[...]`: log-probability or log-density of `actions[..., *shape]`."""

    def logged(self, actions: NDArray[Any]) -> Doubles:
        """The propensity of `actions` to log: `[..., *propensity_shape]`."""
        return self.log_probability(actions)

    @abstractmethod
    def take(self, rows: NDArray[Any]) -> Policy:
        """The distributions of some rows."""

    @abstractmethod
    def within(self, allowed: NDArray[Any]) -> Policy:
        """The same distributions over what `ActionSpace.allowed` allows."""

    @property
    @abstractmethod
    def encoded_mean(self) -> Doubles:
        """`[..., width]`: the mean of the encoded actions."""


@dataclass(frozen=True)
class Categorical(Policy):
    """Probabilities of all actions."""

    probabilities: Doubles
    """[..., A]"""

    def draw(self, uniforms: Doubles) -> NDArray[np.int64]:
        chances = self.probabilities
        action = (chances.cumsum(axis=-1) <= uniforms).sum(axis=-1)
        # Rounding in the sum may leave the last probability a hair below 1; an action that cannot
        # be taken must never be drawn.
        last = chances.shape[-1] - 1 - (chances[..., ::-1] > 0).argmax(axis=-1)
        return np.asarray(np.minimum(action, last))

    def log_probability(self, actions: NDArray[Any]) -> Doubles:
        chosen = np.take_along_axis(self.probabilities, np.asarray(actions)[..., None], axis=-1)
        return np.asarray(np.log(np.maximum(chosen[..., 0], SMALLEST)))

    def logged(self, actions: NDArray[Any]) -> Doubles:
        """The probabilities of all actions."""
        return self.probabilities

    @property
    def encoded_mean(self) -> Doubles:
        """The probabilities."""
        return self.probabilities

    def take(self, rows: NDArray[Any]) -> Categorical:
        return Categorical(self.probabilities[rows])

    def within(self, allowed: NDArray[Any]) -> Categorical:
        """See Policy; uniform over the allowed actions if all of them have probability 0."""
        left = np.where(allowed, self.probabilities, 0.0)
        left = np.where(left.any(axis=-1, keepdims=True), left, allowed)
        return Categorical(left / left.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class TruncatedNormal(Policy):
    """Independent normal components cut off at the box's bounds, mixed with a uniform share."""

    space: Box
    mean: Doubles
    """[..., k], before it is cut off"""
    deviation: Doubles
    """[k] or [..., k]"""
    spread: float | Doubles = 0.0
    """The probability of a uniform action instead, for all rows or [...]"""
    bounds: NDArray[Any] | None = None
    """[..., 2, k]: where the distribution is cut off, if not at the bounds of the box"""

    def draw(self, uniforms: Doubles) -> NDArray[np.float32]:
        low, high = self._ends()
        actions = low + uniforms[..., 1:] * (high - low)
        if np.any(self._spread < 1):
            side, lower, upper = self._edges()
            share = np.where(side < 0, 1 - uniforms[..., 1:], uniforms[..., 1:])
            places = lower + share * (upper - lower)
            normal = self.mean + side * self.deviation * normal_quantile(places)
            actions = np.where(uniforms[..., :1] < self._spread[..., None], actions, normal)
        return np.asarray(np.clip(actions, low, high), dtype=np.float32)

    def log_probability(self, actions: NDArray[Any]) -> Doubles:
        rows = np.broadcast_shapes(np.shape(actions), self.mean.shape)[:-1]
        spread = np.broadcast_to(self._spread, rows)
        low, high = self._ends()
        flat = np.broadcast_to(-log(high - low).sum(axis=-1), rows)
        if (spread == 1).all():
            return np.array(flat)
        _, lower, upper = self._edges()
        away = (np.asarray(actions, dtype=np.float64) - self.mean) / self.deviation
        mass = np.maximum(upper - lower, SMALLEST)
        each = -0.5 * (away * away) - log(self.deviation * mass * math.sqrt(2 * math.pi))
        normal = np.asarray(each.sum(axis=-1))
        if not spread.any():
            return normal
        # Where there is a uniform share, it keeps the sum away from 0.
        mixed = log(np.maximum((1.0 - spread) * exp(normal) + spread * exp(flat), SMALLEST))
        return np.asarray(np.where(spread == 0, normal, np.where(spread == 1, flat, mixed)))

    @property
    def encoded_mean(self) -> Doubles:
        _, lower, upper = self._edges()
        ends, spread = self._ends(), self._spread[..., None]
        low, high = (np.exp(-(((end - self.mean) / self.deviation) ** 2) / 2) for end in ends)
        moved = (low - high) / np.maximum(upper - lower, SMALLEST) / math.sqrt(2 * math.pi)
        normal, flat = self.mean + self.deviation * moved, (ends[0] + ends[1]) / 2
        mean = self.space.encode((1 - spread) * normal + spread * flat)
        return np.asarray(mean, dtype=np.float64)

    def take(self, rows: NDArray[Any]) -> TruncatedNormal:
        deviation = self.deviation if self.deviation.ndim == 1 else self.deviation[rows]
        spread = self._spread[rows] if self._spread.ndim else self.spread
        ends = self.bounds if self.bounds is None or self.bounds.ndim == 2 else self.bounds[rows]
        return TruncatedNormal(self.space, self.mean[rows], deviation, spread, ends)

    def within(self, allowed: NDArray[Any]) -> TruncatedNormal:
        """See Policy; bounds more than some eight deviations away leave the nearest one."""
        return TruncatedNormal(self.space, self.mean, self.deviation, self.spread, allowed)

    @property
    def _spread(self) -> Doubles:
        return np.asarray(self.spread, dtype=np.float64)

    def _ends(self) -> tuple[Doubles, Doubles]:
        """The bounds of the truncated distribution, [..., k] each."""
        if self.bounds is None:
            return np.array(self.space.low), np.array(self.space.high)
        ends = np.asarray(self.bounds, dtype=np.float64)
        return ends[..., 0, :], ends[..., 1, :]

    def _edges(self) -> tuple[Doubles, Doubles, Doubles]:
        """A side, and the normal distribution's mass below each bound, [..., k] each.

        Where both bounds lie above the mean the side is −1 and the masses are those of the mirrored
        distribution: close to 1 a mass says nothing about how far up a bound is.
        """
        low, high = ((end - self.mean) / self.deviation for end in self._ends())
        side = np.where(low > 0, -1.0, 1.0)
        mirrored = side < 0
        return (
            side,
            normal_mass(np.where(mirrored, -high, low)),
            normal_mass(np.where(mirrored, -low, high)),
        )


@dataclass(frozen=True)
class Certain(Policy):
    """One action of a box and no other; it has no density."""

    space: Box
    actions: NDArray[np.float32]
    """[..., k]"""

    @property
    def encoded_mean(self) -> Doubles:
        return np.asarray(self.space.encode(self.actions), dtype=np.float64)

    def draw(self, uniforms: Doubles) -> NDArray[np.float32]:
        return self.actions

    def log_probability(self, actions: NDArray[Any]) -> Doubles:
        """Infinite for the action."""
        taken = (np.asarray(actions) == self.actions).all(axis=-1)
        return np.asarray(np.where(taken, np.inf, -np.inf))

    def take(self, rows: NDArray[Any]) -> Certain:
        return Certain(self.space, self.actions[rows])

    def within(self, allowed: NDArray[Any]) -> Certain:
        """The nearest action that is allowed."""
        nearest = np.clip(self.actions, allowed[..., 0, :], allowed[..., 1, :])
        return Certain(self.space, np.asarray(nearest, dtype=np.float32))

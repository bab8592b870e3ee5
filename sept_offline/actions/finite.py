"""A finite set of actions: numbers from 0."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..elementary import Doubles
from ..errors import AgentError, ConfigError
from .policies import Categorical, Policy
from .space import ActionSpace, PropensityFault, named, numbers

SUM_TOLERANCE = 1e-5
"""Tolerance for sums of probabilities: the rounding of a float32 softmax."""


@dataclass(frozen=True)
class Finite(ActionSpace):
    """A finite set: actions are 0 … A − 1."""

    names: tuple[str, ...]
    kind = "finite"
    dtype = np.int64
    missing = -1

    def __post_init__(self) -> None:
        if not self.names:
            raise ConfigError("An action space needs at least one action.")

    @classmethod
    def of(cls, count: int, names: Sequence[str] | None = None) -> Finite:
        """`count` actions; missing names get defaults."""
        return cls(named(names, count, "actions"))

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def draws(self) -> int:
        return 1

    @property
    def log_volume(self) -> float:
        return math.log(self.width)

    @property
    def expected(self) -> str:
        return f"0 … {self.width - 1}"

    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((actions < 0) | (actions >= self.width))

    def encode(self, actions: NDArray[Any] | int) -> NDArray[np.float32]:
        """One-hot."""
        return np.asarray(self._rows[actions])

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        return np.eye(self.width, dtype=np.float32)

    @property
    def levels(self) -> int:
        return self.width

    def level(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """The action itself, [..., 1]."""
        return np.asarray(actions)[..., None]

    def uniform(self, *rows: int) -> Categorical:
        return Categorical(np.full((*rows, self.width), 1.0 / self.width))

    def explore(self, outputs: NDArray[Any], epsilon: Doubles, noise: float) -> Categorical:
        """ε/A for every action, and 1 − ε more for the one with the highest value."""
        chances = np.repeat((epsilon / self.width)[:, None], self.width, axis=1)
        chances[np.arange(len(outputs)), outputs.argmax(axis=1)] += 1.0 - epsilon
        return Categorical(chances)

    def policy(self, answer: Any, *rows: int) -> Categorical:
        expected = (*rows, self.width)
        chances = numbers(answer, f"probabilities of shape {expected}")
        if chances.shape != expected:
            raise ConfigError(
                f"returned shape {chances.shape}; expected probabilities of shape {expected}."
            )
        bad = ~np.isfinite(chances).all(axis=-1) | (chances < 0).any(axis=-1)
        bad |= np.abs(chances.sum(axis=-1) - 1.0) > 1e-6
        if bad.any():
            raise ConfigError(
                f"returned {chances[bad][0].tolist()}; expected non-negative probabilities that "
                "sum to 1."
            )
        return Categorical(chances)

    def certain(self, actions: NDArray[Any]) -> Categorical:
        return Categorical(np.eye(self.width)[actions])

    def grid(self) -> NDArray[np.int64]:
        return np.arange(self.width)

    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Doubles:
        return Categorical(propensities).log_probability(actions)

    def unknown(self, propensities: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(np.isnan(propensities).all(axis=-1))

    def partly_known(self, propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        known = ~np.isnan(propensities)
        logged = known[np.arange(len(actions)), actions]
        return np.asarray(logged & (known.sum(axis=1) == 1) & (self.width > 1))

    def propensity_faults(
        self, propensities: NDArray[Any], actions: NDArray[Any]
    ) -> Iterator[PropensityFault]:
        """See ActionSpace; a row may be NaN as a whole, or in all but the logged action."""
        missing = np.isnan(propensities)
        known, alone = ~missing.any(axis=1), self.partly_known(propensities, actions)
        logged = propensities[np.arange(len(actions)), actions]
        total = np.where(known[:, None], propensities, 1).sum(axis=1)
        wrong_sum = known & ~(np.abs(total - 1) <= SUM_TOLERANCE)
        below = (propensities < 0).any(axis=1)
        mixed = missing.any(axis=1) & ~missing.all(axis=1) & ~alone
        sums = "probabilities that sum to 1"
        for kind, bad, message, expected in (
            ("NaN", mixed, "some probabilities of a step are NaN", sums),
            ("infinite", np.isinf(propensities).any(axis=1), "probabilities hold inf", sums),
            ("propensity sum", wrong_sum, "the probabilities of a step do not sum to 1", sums),
            (
                "propensity range",
                (known & below) | (alone & ~((logged >= 0) & (logged <= 1))),
                "a probability is below 0 or above 1",
                "probabilities of at least 0 and at most 1",
            ),
            (
                "impossible action",
                (known | alone) & (logged <= 0),
                "the logged action has probability 0",
                "a probability above 0 for the logged action",
            ),
        ):
            yield PropensityFault(kind, bad, message, expected)

    def decoded(self, policy: Policy) -> Policy:
        """See ActionSpace; a categorical policy has no units."""
        return policy

    def allowed(
        self, mask: Any, bounds: Any, rows: tuple[int, ...] = (), going: Any = True
    ) -> NDArray[np.bool_] | None:
        if bounds is not None:
            raise AgentError("The actions are discrete; restrict them with a mask, not bounds.")
        if mask is None:
            return None
        try:
            given = np.asarray(mask)
        except ValueError as error:
            raise AgentError(
                f"A mask must be an array of true or false, found {mask!r:.80}."
            ) from error
        flags = given.dtype == bool or (given.dtype.kind in "iu" and np.isin(given, (0, 1)).all())
        shape = (*rows, self.width)
        if given.shape != shape or not flags:
            raise AgentError(
                f"A mask must be an array of true or false of shape {list(shape)}, found "
                f"{given.dtype} of shape {list(given.shape)}."
            )
        some: NDArray[np.bool_] = given.astype(bool)
        if (~some.any(axis=-1) & going).any():
            raise AgentError("A mask forbids every action; at least one must be allowed.")
        return some

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "names": list(self.names)}

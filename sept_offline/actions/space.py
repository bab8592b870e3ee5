"""The interface of action spaces, and what their checks share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..elementary import Doubles
from ..errors import ConfigError
from .policies import Policy


@dataclass(frozen=True)
class PropensityFault:
    """One way in which logged propensities can be wrong, and the steps that are."""

    kind: str
    bad: NDArray[np.bool_]
    """[N]"""
    message: str
    """What is wrong, as `validate` says it."""
    expected: str
    """What a writer should pass instead."""


class ActionSpace(ABC):
    """The actions of a system."""

    kind: ClassVar[str]
    dtype: ClassVar[type[np.generic]]
    missing: ClassVar[float]
    """What stands in place of an action where none was taken."""
    names: tuple[str, ...]
    """Of the actions `[A]`, or of a box's components `[k]`."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one action: () or (k,)."""

    @property
    @abstractmethod
    def propensity_shape(self) -> tuple[int, ...]:
        """The shape of what is logged as one action's propensity: (A,) or ()."""

    @property
    def width(self) -> int:
        """The columns of an encoded action: A or k."""
        return len(self.names)

    @property
    @abstractmethod
    def draws(self) -> int:
        """The uniform numbers from which one action is drawn."""

    @property
    @abstractmethod
    def log_volume(self) -> float:
        """The logarithm of A or of the box's volume: a uniform policy's, negated."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What a valid action is, for error messages."""

    @abstractmethod
    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """`[...]`: which of `actions[..., *shape]` are not in the space."""

    @abstractmethod
    def encode(self, actions: NDArray[Any] | int) -> NDArray[np.float32]:
        """`actions[..., *shape]` as inputs of a network, `[..., width]`."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """The values that `level` takes."""

    @abstractmethod
    def level(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """`[..., c]`, valid actions by whole numbers, for counts: one, or one per component."""

    @abstractmethod
    def uniform(self, *rows: int) -> Policy:
        """The uniform policy, for `rows`."""

    @abstractmethod
    def explore(self, outputs: NDArray[Any], epsilon: Doubles, noise: float) -> Policy:
        """The action that a network's `outputs[n, width]` prefer, or another with some probability.

        `epsilon[n]` is the share of uniform actions. Vectors also vary around the preferred one:
        `noise` is their standard deviation as a share of half the range.
        """

    @abstractmethod
    def policy(self, answer: Any, *rows: int) -> Policy:
        """A policy from what a user's function returned for `rows`; a ConfigError says what it
        returned instead. Finite: probabilities `[*rows, A]`. Box: a pair, the means `[*rows, k]`
        and the standard deviations (`[*rows, k]`, `[k]` or one number) of normal distributions,
        which are cut off at the bounds."""

    @abstractmethod
    def certain(self, actions: NDArray[Any]) -> Policy:
        """The policy that takes `actions[..., *shape]`."""

    @abstractmethod
    def grid(self) -> NDArray[Any]:
        """`[m, *shape]`: all actions of a finite set; a few of a box, its centre first."""

    @abstractmethod
    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Doubles:
        """`[...]`: what `propensities[..., *propensity_shape]` say of the actions taken."""

    @abstractmethod
    def unknown(self, propensities: NDArray[Any]) -> NDArray[np.bool_]:
        """`[...]`: where nothing is known: all of `propensities[..., *propensity_shape]` is NaN."""

    @abstractmethod
    def partly_known(self, propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """`[N]`: where only the logged action's propensity is known, of several."""

    @abstractmethod
    def propensity_faults(
        self, propensities: NDArray[Any], actions: NDArray[Any]
    ) -> Iterator[PropensityFault]:
        """What is wrong with `propensities[N, *propensity_shape]` of valid `actions[N, *shape]`."""

    @abstractmethod
    def decoded(self, policy: Policy) -> Policy:
        """A policy over encoded actions as one over the actions themselves."""

    @abstractmethod
    def allowed(
        self, mask: Any, bounds: Any, rows: tuple[int, ...] = (), going: Any = True
    ) -> NDArray[Any] | None:
        """What a mask or bounds allow, an array that starts with `rows`; None if they are None.

        A finite set takes a mask, true for each allowed action `[*rows, A]`; a box takes bounds,
        two vectors `[k]` or `[*rows, k]` that become one array `[*rows, 2, k]`. Every row that is
        `going[*rows]` must allow something; an AgentError says what is wrong.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The space, JSON-ready; `space_from` reads it."""

    def empty(self, *rows: int) -> NDArray[Any]:
        """Room for actions `[*rows, *shape]`."""
        return np.zeros((*rows, *self.shape), dtype=self.dtype)


def numbers(answer: Any, expected: str) -> Doubles:
    """A policy's answer as an array; a ConfigError if it holds anything but numbers."""
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"returned {answer!r:.80}; expected {expected}.") from None


def named(names: Sequence[str] | None, count: int, what: str) -> tuple[str, ...]:
    """The given names of `count` things, or defaults."""
    if names is not None and len(names) != count:
        raise ConfigError(f"{len(names)} names were given for {count} {what}.")
    return tuple(names) if names is not None else tuple(f"action_{i}" for i in range(count))

"""Action spaces: a finite set or a box, and all that differs between the two.

Nothing else asks which kind a space is. An action is a number below A, or a vector in a box; what a
behaviour logs of it is the probability of every action `[A]`, or the log-density of the one it
took. `Categorical` and `TruncatedNormal` are the policies over them: rows of distributions that
draw actions from uniform numbers, so that a row's action depends on its own numbers alone.

A normal distribution that is cut off at the bounds has a density on the bounds too. A squashed one
(tanh) has none there, and logged actions often lie on them.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .elementary import Floats, exp, log, normal_mass, normal_quantile, tanh
from .errors import AgentError, ConfigError

SMALLEST = 1e-300
"""The least probability whose logarithm is taken."""
SUM_TOLERANCE = 1e-5
"""Tolerance for sums of probabilities: the rounding of a float32 softmax."""


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


class Policy(ABC):
    """Distributions of actions, one for each of the rows `[...]`."""

    @abstractmethod
    def draw(self, uniforms: Floats) -> NDArray[Any]:
        """Actions `[..., *shape]` from numbers in [0, 1), `uniforms[..., space.draws]`."""

    @abstractmethod
    def log_probability(self, actions: NDArray[Any]) -> Floats:
        """`[...]`: log-probability or log-density of `actions[..., *shape]`."""

    @abstractmethod
    def logged(self, actions: NDArray[Any]) -> Floats:
        """What a dataset keeps as the propensity of `actions`: `[..., *propensity_shape]`."""

    @abstractmethod
    def take(self, rows: NDArray[Any]) -> Policy:
        """The distributions of some rows."""

    @abstractmethod
    def within(self, allowed: NDArray[Any]) -> Policy:
        """The same distributions over what `ActionSpace.allowed` allows."""

    @property
    @abstractmethod
    def encoded_mean(self) -> Floats:
        """`[..., width]`: the mean of the encoded actions."""


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
    def explore(self, outputs: NDArray[Any], epsilon: Floats, noise: float) -> Policy:
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
    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Floats:
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
        return cls(_named(names, count, "actions"))

    @property
    def shape(self) -> tuple[int, ...]:
        """See ActionSpace."""
        return ()

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        """See ActionSpace."""
        return (self.width,)

    @property
    def draws(self) -> int:
        """See ActionSpace."""
        return 1

    @property
    def log_volume(self) -> float:
        """See ActionSpace."""
        return math.log(self.width)

    @property
    def expected(self) -> str:
        """See ActionSpace."""
        return f"0 … {self.width - 1}"

    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace."""
        return np.asarray((actions < 0) | (actions >= self.width))

    def encode(self, actions: NDArray[Any] | int) -> NDArray[np.float32]:
        """One-hot."""
        return np.asarray(self._rows[actions])

    @cached_property
    def _rows(self) -> NDArray[np.float32]:
        return np.eye(self.width, dtype=np.float32)

    @property
    def levels(self) -> int:
        """See ActionSpace."""
        return self.width

    def level(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """The action itself, [..., 1]."""
        return np.asarray(actions)[..., None]

    def uniform(self, *rows: int) -> Categorical:
        """See ActionSpace."""
        return Categorical(np.full((*rows, self.width), 1.0 / self.width))

    def explore(self, outputs: NDArray[Any], epsilon: Floats, noise: float) -> Categorical:
        """ε/A for every action, and 1 − ε more for the one with the highest value."""
        chances = np.repeat((epsilon / self.width)[:, None], self.width, axis=1)
        chances[np.arange(len(outputs)), outputs.argmax(axis=1)] += 1.0 - epsilon
        return Categorical(chances)

    def policy(self, answer: Any, *rows: int) -> Categorical:
        """See ActionSpace."""
        expected = (*rows, self.width)
        chances = _numbers(answer, f"probabilities of shape {expected}")
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
        """See ActionSpace."""
        return Categorical(np.eye(self.width)[actions])

    def grid(self) -> NDArray[np.int64]:
        """See ActionSpace."""
        return np.arange(self.width)

    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """See ActionSpace."""
        chosen = np.take_along_axis(propensities, np.asarray(actions)[..., None], axis=-1)
        return np.asarray(np.log(np.maximum(chosen[..., 0], SMALLEST)))

    def unknown(self, propensities: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace."""
        return np.asarray(np.isnan(propensities).all(axis=-1))

    def partly_known(self, propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace."""
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
        """See ActionSpace."""
        if bounds is not None:
            raise AgentError("The actions are a finite set; restrict them by a mask, not bounds.")
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
        """See ActionSpace."""
        return {"kind": self.kind, "names": list(self.names)}


@dataclass(frozen=True)
class Box(ActionSpace):
    """Vectors between finite bounds; networks see them scaled to [−1, 1]."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    """[k]"""
    high: tuple[float, ...]
    """[k]"""
    kind = "box"
    dtype = np.float32
    missing = math.nan

    def __post_init__(self) -> None:
        sizes = {len(self.names), len(self.low), len(self.high)}
        if sizes != {self.width} or not self.width:
            raise ConfigError("A box of actions needs one name, low and high per component.")
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigError(
                    f"The action {name!r} ranges from {low} to {high}; expected finite bounds, "
                    "the lower one first."
                )

    @classmethod
    def of(
        cls, low: NDArray[Any] | Sequence[float], high: Any, names: Sequence[str] | None = None
    ) -> Box:
        """From bounds `[k]`; missing names get defaults."""
        lowest, highest = np.atleast_1d(np.asarray(low)), np.atleast_1d(np.asarray(high))
        if lowest.ndim != 1 or lowest.shape != highest.shape:
            raise ConfigError(
                f"The bounds of the actions have shapes {lowest.shape} and {highest.shape}; "
                "expected two vectors of the same length."
            )
        # as float32 holds them: actions are float32, and those on a bound must lie inside
        with np.errstate(over="ignore"):
            bounds = [tuple(map(float, bound.astype(np.float32))) for bound in (lowest, highest)]
        return cls(_named(names, len(lowest), "components of an action"), *bounds)

    @property
    def shape(self) -> tuple[int, ...]:
        """See ActionSpace."""
        return (self.width,)

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        """See ActionSpace."""
        return ()

    @property
    def draws(self) -> int:
        """See ActionSpace; the first one chooses between the uniform and the normal part."""
        return self.width + 1

    @property
    def log_volume(self) -> float:
        """See ActionSpace."""
        return float(log(2 * self.half).sum())

    @property
    def expected(self) -> str:
        """See ActionSpace."""
        low, high = ([round(value, 6) for value in bound] for bound in (self.low, self.high))
        return f"{self.width} numbers between {low} and {high}"

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Low and high as arrays, [k] each."""
        return np.array(self.low, dtype=np.float32), np.array(self.high, dtype=np.float32)

    @cached_property
    def centre(self) -> Floats:
        """[k]"""
        return np.asarray((np.array(self.low) + np.array(self.high)) / 2)

    @cached_property
    def half(self) -> Floats:
        """Half of each component's range, [k]."""
        return np.asarray((np.array(self.high) - np.array(self.low)) / 2)

    @cached_property
    def scaling(self) -> Floats:
        """Centre, half, low and high as one array [4, k], for compiled code."""
        return np.stack([self.centre, self.half, np.array(self.low), np.array(self.high)])

    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace; what is not a number is outside too."""
        low, high = self.bounds
        inside = (actions >= low) & (actions <= high)
        return np.asarray(~inside.all(axis=-1))

    def encode(self, actions: NDArray[Any] | int) -> NDArray[np.float32]:
        """Scaled to [−1, 1]."""
        return np.asarray((actions - self.centre) / self.half, dtype=np.float32)

    def decode(self, encoded: NDArray[Any]) -> NDArray[np.float32]:
        """Actions `[..., k]` from `encoded[..., k]`; what lies beyond ±1 is clipped."""
        actions = np.asarray(encoded * self.half + self.centre, dtype=np.float32)
        return np.clip(actions, *self.bounds)

    @property
    def levels(self) -> int:
        """See ActionSpace."""
        return 5

    def level(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """In which fifth of its range each component lies, [..., k]."""
        place = (actions - np.array(self.low)) / (2 * self.half) * self.levels
        return np.asarray(np.clip(place.astype(np.int64), 0, self.levels - 1))

    def uniform(self, *rows: int) -> TruncatedNormal:
        """See ActionSpace."""
        mean = np.broadcast_to(self.centre, (*rows, self.width))
        return TruncatedNormal(self, mean, np.ones(self.width), spread=1.0)

    def explore(self, outputs: NDArray[Any], epsilon: Floats, noise: float) -> Policy:
        """A truncated normal around tanh of the outputs; a share ε is uniform."""
        mean = self.centre + self.half * tanh(outputs)
        if noise == 0 and not epsilon.any():
            return self.certain(np.clip(mean, self.low, self.high))
        return TruncatedNormal(self, mean, noise * self.half, spread=epsilon)

    def policy(self, answer: Any, *rows: int) -> TruncatedNormal:
        """See ActionSpace; means beyond the bounds are moved to them."""
        expected = (*rows, self.width)
        wanted = f"means of shape {expected} and standard deviations"
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ConfigError(f"returned {type(answer).__name__}; expected a pair: {wanted}.")
        mean, deviation = (_numbers(part, wanted) for part in answer)
        if mean.shape != expected or deviation.shape not in (expected, (self.width,), ()):
            raise ConfigError(
                f"returned shapes {mean.shape} and {deviation.shape}; expected {wanted}."
            )
        deviation = np.broadcast_to(deviation, expected)
        if not np.isfinite(mean).all():
            raise ConfigError("returned a mean that is not finite.")
        if not (np.isfinite(deviation) & (deviation > 0)).all():
            raise ConfigError("returned a standard deviation that is not a positive number.")
        return TruncatedNormal(self, np.clip(mean, self.low, self.high), deviation)

    def certain(self, actions: NDArray[Any]) -> Certain:
        """See ActionSpace."""
        return Certain(self, np.asarray(actions, dtype=np.float32))

    def grid(self) -> NDArray[np.float32]:
        """Low, middle and high of up to three components, combined; of more, one at a time."""
        if self.width <= 3:
            levels = np.array(list(itertools.product((0.0, -1.0, 1.0), repeat=self.width)))
        else:
            each = np.eye(self.width)
            ones = np.ones((1, self.width))
            levels = np.concatenate([0 * ones, each, -each, ones, -ones])
        return self.decode(levels)

    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """See ActionSpace."""
        return np.asarray(propensities, dtype=np.float64)

    def unknown(self, propensities: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace."""
        return np.asarray(np.isnan(propensities))

    def partly_known(self, propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace; there is one density only."""
        return np.zeros(len(actions), dtype=np.bool_)

    def propensity_faults(
        self, propensities: NDArray[Any], actions: NDArray[Any]
    ) -> Iterator[PropensityFault]:
        """See ActionSpace."""
        for kind, bad, message in (
            ("infinite", np.isposinf(propensities), "a log-density is infinite"),
            ("impossible action", np.isneginf(propensities), "the logged action has density 0"),
        ):
            yield PropensityFault(kind, bad, message, "finite log-densities")

    def decoded(self, policy: Policy) -> Policy:
        """See ActionSpace."""
        if not isinstance(policy, TruncatedNormal):
            raise ConfigError("The policy of a box of actions must be a truncated normal.")
        mean, deviation = policy.mean * self.half + self.centre, policy.deviation * self.half
        return TruncatedNormal(self, mean, deviation, policy.spread)

    def allowed(
        self, mask: Any, bounds: Any, rows: tuple[int, ...] = (), going: Any = True
    ) -> NDArray[np.float32] | None:
        """See ActionSpace; bounds beyond the box's own count as those."""
        if mask is not None:
            raise AgentError("The actions are a box; restrict them by bounds, not by a mask.")
        if bounds is None:
            return None
        shape = (*rows, self.width)
        try:
            lower, upper = (np.asarray(bound, dtype=np.float32) for bound in bounds)
            if {lower.shape[-1:], upper.shape[-1:]} != {shape[-1:]}:
                raise ValueError
            given = np.broadcast_to(lower, shape), np.broadcast_to(upper, shape)
        except (TypeError, ValueError) as error:
            raise AgentError(
                f"Bounds must be two arrays of {self.width} numbers each, the lower one first, "
                f"found {bounds!r:.80}."
            ) from error
        low, high = np.maximum(given[0], self.bounds[0]), np.minimum(given[1], self.bounds[1])
        # not "low > high": a bound that is not a number must be found too
        if ((~(low <= high)).any(axis=-1) & going).any():
            raise AgentError(
                f"Bounds must leave an action in every component: expected lower ≤ upper inside "
                f"{self.expected}."
            )
        return np.stack([low, high], axis=-2)

    def describe(self) -> dict[str, Any]:
        """See ActionSpace."""
        own = {"names": list(self.names), "low": list(self.low), "high": list(self.high)}
        return {"kind": self.kind, **own}


@dataclass(frozen=True)
class Categorical(Policy):
    """Probabilities of all actions."""

    probabilities: Floats
    """[..., A]"""

    def draw(self, uniforms: Floats) -> NDArray[np.int64]:
        """See Policy."""
        chances = self.probabilities
        action = (chances.cumsum(axis=-1) <= uniforms).sum(axis=-1)
        # Rounding in the sum may leave the last probability a hair below 1; an action that cannot
        # be taken must never be drawn.
        last = chances.shape[-1] - 1 - (chances[..., ::-1] > 0).argmax(axis=-1)
        return np.asarray(np.minimum(action, last))

    def log_probability(self, actions: NDArray[Any]) -> Floats:
        """See Policy."""
        chosen = np.take_along_axis(self.probabilities, np.asarray(actions)[..., None], axis=-1)
        return np.asarray(np.log(np.maximum(chosen[..., 0], SMALLEST)))

    def logged(self, actions: NDArray[Any]) -> Floats:
        """The probabilities of all actions."""
        return self.probabilities

    @property
    def encoded_mean(self) -> Floats:
        """The probabilities."""
        return self.probabilities

    def take(self, rows: NDArray[Any]) -> Categorical:
        """See Policy."""
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
    mean: Floats
    """[..., k], before it is cut off"""
    deviation: Floats
    """[k] or [..., k]"""
    spread: float | Floats = 0.0
    """The probability of a uniform action instead, for all rows or [...]"""
    bounds: NDArray[Any] | None = None
    """[..., 2, k]: where the distribution is cut off, if not at the bounds of the box"""

    def draw(self, uniforms: Floats) -> NDArray[np.float32]:
        """See Policy."""
        low, high = self._ends()
        actions = low + uniforms[..., 1:] * (high - low)
        if np.any(self._spread < 1):
            side, lower, upper = self._edges()
            share = np.where(side < 0, 1 - uniforms[..., 1:], uniforms[..., 1:])
            places = lower + share * (upper - lower)
            normal = self.mean + side * self.deviation * normal_quantile(places)
            actions = np.where(uniforms[..., :1] < self._spread[..., None], actions, normal)
        return np.asarray(np.clip(actions, low, high), dtype=np.float32)

    def log_probability(self, actions: NDArray[Any]) -> Floats:
        """See Policy."""
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

    def logged(self, actions: NDArray[Any]) -> Floats:
        """The log-density of the actions."""
        return self.log_probability(actions)

    @property
    def encoded_mean(self) -> Floats:
        """See Policy."""
        _, lower, upper = self._edges()
        bounds = (np.array(bound) for bound in (self.space.low, self.space.high))
        low, high = (np.exp(-(((at - self.mean) / self.deviation) ** 2) / 2) for at in bounds)
        moved = (low - high) / np.maximum(upper - lower, SMALLEST) / math.sqrt(2 * math.pi)
        centre = self.space.encode(self.mean + self.deviation * moved)
        return np.asarray((1 - self._spread[..., None]) * centre, dtype=np.float64)

    def take(self, rows: NDArray[Any]) -> TruncatedNormal:
        """See Policy."""
        deviation = self.deviation if self.deviation.ndim == 1 else self.deviation[rows]
        spread = self._spread[rows] if self._spread.ndim else self.spread
        ends = self.bounds if self.bounds is None or self.bounds.ndim == 2 else self.bounds[rows]
        return TruncatedNormal(self.space, self.mean[rows], deviation, spread, ends)

    def within(self, allowed: NDArray[Any]) -> TruncatedNormal:
        """See Policy; bounds more than some eight deviations away leave the nearest one."""
        return TruncatedNormal(self.space, self.mean, self.deviation, self.spread, allowed)

    @property
    def _spread(self) -> Floats:
        return np.asarray(self.spread, dtype=np.float64)

    def _ends(self) -> tuple[Floats, Floats]:
        """Where the distribution is cut off, [..., k] each."""
        if self.bounds is None:
            return np.array(self.space.low), np.array(self.space.high)
        ends = np.asarray(self.bounds, dtype=np.float64)
        return ends[..., 0, :], ends[..., 1, :]

    def _edges(self) -> tuple[Floats, Floats, Floats]:
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
    def encoded_mean(self) -> Floats:
        """See Policy."""
        return np.asarray(self.space.encode(self.actions), dtype=np.float64)

    def draw(self, uniforms: Floats) -> NDArray[np.float32]:
        """See Policy."""
        return self.actions

    def log_probability(self, actions: NDArray[Any]) -> Floats:
        """Infinite for the action."""
        taken = (np.asarray(actions) == self.actions).all(axis=-1)
        return np.asarray(np.where(taken, np.inf, -np.inf))

    def logged(self, actions: NDArray[Any]) -> Floats:
        """See `log_probability`."""
        return self.log_probability(actions)

    def take(self, rows: NDArray[Any]) -> Certain:
        """See Policy."""
        return Certain(self.space, self.actions[rows])

    def within(self, allowed: NDArray[Any]) -> Certain:
        """The nearest action that is allowed."""
        nearest = np.clip(self.actions, allowed[..., 0, :], allowed[..., 1, :])
        return Certain(self.space, np.asarray(nearest, dtype=np.float32))


def space_from(description: Any) -> ActionSpace:
    """What `describe` wrote; a ConfigError says what is wrong with anything else."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    names = description.get("names") if isinstance(description, Mapping) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("An action space needs a list of names.")
    if kind == Finite.kind:
        return Finite(tuple(names))
    if kind != Box.kind:
        raise ConfigError(f"An action space is finite or a box, found {kind!r:.80}.")
    bounds = [description.get("low"), description.get("high")]
    for bound in bounds:
        plain = isinstance(bound, list) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in bound
        )
        if not plain:
            raise ConfigError("The bounds of a box of actions must be lists of numbers.")
    low, high = (tuple(map(float, bound)) for bound in bounds)
    return Box(tuple(names), low, high)


def _numbers(answer: Any, expected: str) -> Floats:
    try:
        return np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"returned {answer!r:.80}; expected {expected}.") from None


def _named(names: Sequence[str] | None, count: int, what: str) -> tuple[str, ...]:
    if names is not None and len(names) != count:
        raise ConfigError(f"{len(names)} names were given for {count} {what}.")
    return tuple(names) if names is not None else tuple(f"action_{i}" for i in range(count))

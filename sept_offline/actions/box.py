"""A box of actions: vectors between finite bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..elementary import Doubles, log, tanh
from ..errors import AgentError, ConfigError
from .policies import Certain, Policy, TruncatedNormal
from .space import ActionSpace, PropensityFault, named, numbers

HALVES = (5, 2, 1)
"""Levels on each side of the centre in a grid of one, two and three components."""


@dataclass(frozen=True)
class Box(ActionSpace):
    """Vectors between finite bounds; networks see them scaled to [−1, 1]."""

    names: tuple[str, ...]
    """Names of the components, `[k]`."""
    low: tuple[float, ...]
    """Lower bounds, `[k]`."""
    high: tuple[float, ...]
    """Upper bounds, `[k]`."""
    kind = "box"
    dtype = np.float32
    missing = math.nan

    def __post_init__(self) -> None:
        sizes = {len(self.names), len(self.low), len(self.high)}
        if sizes != {self.width} or not self.width:
            raise ConfigError("Continuous actions need one name, low and high per component.")
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
        return cls(named(names, len(lowest), "components of an action"), *bounds)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    @property
    def propensity_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def draws(self) -> int:
        """See ActionSpace; the first one chooses between the uniform and the normal part."""
        return self.width + 1

    @property
    def log_volume(self) -> float:
        return float(log(2 * self.half).sum())

    @property
    def expected(self) -> str:
        low, high = ([round(value, 6) for value in bound] for bound in (self.low, self.high))
        if self.width == 1:
            return f"1 number from {low[0]} to {high[0]}"
        return f"{self.width} numbers from {low} to {high}"

    @cached_property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Low and high as arrays, [k] each."""
        return np.array(self.low, dtype=np.float32), np.array(self.high, dtype=np.float32)

    @cached_property
    def centre(self) -> Doubles:
        """[k]"""
        return np.asarray((np.array(self.low) + np.array(self.high)) / 2)

    @cached_property
    def half(self) -> Doubles:
        """Half of each component's range, [k]."""
        return np.asarray((np.array(self.high) - np.array(self.low)) / 2)

    @cached_property
    def scaling(self) -> Doubles:
        """Centre, half, low and high as one array [4, k], for compiled code."""
        return np.stack([self.centre, self.half, np.array(self.low), np.array(self.high)])

    def outside(self, actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace; NaN counts as outside."""
        low, high = self.bounds
        inside = (actions >= low) & (actions <= high)
        return np.asarray(~inside.all(axis=-1))

    def encode(self, actions: NDArray[Any] | int) -> NDArray[np.float32]:
        """Scaled to [−1, 1]."""
        return np.asarray((actions - self.centre) / self.half, dtype=np.float32)

    def decode(self, encoded: NDArray[Any]) -> NDArray[np.float32]:
        """Actions `[..., k]` from `encoded[..., k]`; values beyond ±1 are clipped."""
        actions = np.asarray(encoded * self.half + self.centre, dtype=np.float32)
        return np.clip(actions, *self.bounds)

    @property
    def levels(self) -> int:
        return 5

    def level(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """In which fifth of its range each component lies, [..., k]."""
        place = (actions - np.array(self.low)) / (2 * self.half) * self.levels
        return np.asarray(np.clip(place.astype(np.int64), 0, self.levels - 1))

    def uniform(self, *rows: int) -> TruncatedNormal:
        mean = np.broadcast_to(self.centre, (*rows, self.width))
        return TruncatedNormal(self, mean, np.ones(self.width), spread=1.0)

    def explore(self, outputs: NDArray[Any], epsilon: Doubles, noise: float) -> Policy:
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
        mean, deviation = (numbers(part, wanted) for part in answer)
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
        return Certain(self, np.asarray(actions, dtype=np.float32))

    def grid(self) -> NDArray[np.float32]:
        """See ActionSpace; evenly spaced levels of up to three components, combined.

        These are 11 levels of one component, 5 of two and 3 of three. Of more components only one
        at a time leaves the centre, or all do.
        """
        if self.width <= len(HALVES):
            half = HALVES[self.width - 1]
            steps = sorted((step / half for step in range(-half, half + 1)), key=abs)
            levels = np.array(list(itertools.product(steps, repeat=self.width)))
        else:
            each = np.eye(self.width)
            ones = np.ones((1, self.width))
            levels = np.concatenate([0 * ones, each, -each, ones, -ones])
        return self.decode(levels)

    def log_propensity(self, propensities: NDArray[Any], actions: NDArray[Any]) -> Doubles:
        return np.asarray(propensities, dtype=np.float64)

    def unknown(self, propensities: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(np.isnan(propensities))

    def partly_known(self, propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See ActionSpace; there is one density only."""
        return np.zeros(len(actions), dtype=np.bool_)

    def propensity_faults(
        self, propensities: NDArray[Any], actions: NDArray[Any]
    ) -> Iterator[PropensityFault]:
        for kind, bad, message in (
            ("infinite", np.isposinf(propensities), "a log-density is infinite"),
            ("impossible action", np.isneginf(propensities), "the logged action has density 0"),
        ):
            yield PropensityFault(kind, bad, message, "finite log-densities")

    def decoded(self, policy: Policy) -> Policy:
        if not isinstance(policy, TruncatedNormal):
            raise ConfigError("The policy of continuous actions must be a truncated normal.")
        mean, deviation = policy.mean * self.half + self.centre, policy.deviation * self.half
        return TruncatedNormal(self, mean, deviation, policy.spread)

    def allowed(
        self, mask: Any, bounds: Any, rows: tuple[int, ...] = (), going: Any = True
    ) -> NDArray[np.float32] | None:
        """See ActionSpace; bounds beyond the box's own count as those."""
        if mask is not None:
            raise AgentError("The actions are continuous; restrict them with bounds, not a mask.")
        if bounds is None:
            return None
        shape = (*rows, self.width)
        try:
            lower, upper = (np.asarray(bound, dtype=np.float64) for bound in bounds)
            if {lower.shape[-1:], upper.shape[-1:]} != {shape[-1:]}:
                raise ValueError
            given = _inwards(np.broadcast_to(lower, shape), np.broadcast_to(upper, shape))
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
        described = {"names": list(self.names), "low": list(self.low), "high": list(self.high)}
        return {"kind": self.kind, **described}


def _inwards(low: Doubles, high: Doubles) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Bounds as float32, rounded inwards where that leaves an action between them."""
    with np.errstate(over="ignore"):
        lower, upper = low.astype(np.float32), high.astype(np.float32)
    inner = np.where(lower < low, np.nextafter(lower, np.float32(np.inf)), lower)
    outer = np.where(upper > high, np.nextafter(upper, np.float32(-np.inf)), upper)
    fits = inner <= outer
    return np.where(fits, inner, lower), np.where(fits, outer, upper)

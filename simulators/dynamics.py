"""The record of a simulator: pure dynamics over a batch of rows, and the actions they take."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Observations = NDArray[np.float32]
Actions = NDArray[Any]
Advance = Callable[[Array, Actions, Array, Integers, Array, Array, Mask], None]


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
            f"An action of {name!r} must be an integer from 0 to {self.count - 1}, got {action!r}."
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
            f"An action of {name!r} must be a vector between {list(self.low)} and "
            f"{list(self.high)}, got {action!r:.200}."
        )


@dataclass(frozen=True)
class HiddenParameter:
    """One hidden parameter: one of `choices`, or else admissible where above < p <= most.

    By default it is relative to a nominal value: above -1, at most 1.
    """

    name: str
    default: float = 0.0
    choices: tuple[float, ...] | None = None
    above: float = -1.0
    most: float = 1.0

    def check(self, value: Any) -> float:
        """`value` as a float, or ValueError when it is not admissible."""
        allowed = (
            f"a number p with {self.above:g} < p <= {self.most:g}"
            if self.choices is None
            else f"one of {', '.join(f'{choice:g}' for choice in self.choices)}"
        )
        is_number = isinstance(value, Real | np.number) and not isinstance(value, bool)
        number = float(value) if is_number else math.nan
        between = self.above < number <= self.most
        admissible = between if self.choices is None else number in self.choices
        if not admissible:
            raise ValueError(f"Hidden parameter {self.name!r} must be {allowed}, got {value!r}.")
        return number


@dataclass(frozen=True)
class Dynamics:
    """A family's dynamics, and what an environment has to know to be built around them.

    advance: the compiled kernel; `(state[n, s], action[n] or [n, k], hidden[n, h], elapsed[n])` in,
        `(next state[n, s], reward[n], terminated[n])` written to the last three arguments, row by
        row, so that a row never depends on its batch. The next state may be the state itself.
    observe: state[n, s] float64 to observation[n, d] float32.
    hidden: the h hidden parameters, in the order of the columns of hidden[n, h].
    observation_names, observation_low, observation_high: [d].
    start_low, start_high: [s], the start state is uniform between them; drawn only if they differ.
    action_names: of numbered actions, or of the components of vectors.
    action_low, action_high: [k], the bounds of vectors; None for numbered actions.
    from_raw: populations[n, d] to state[n, s], for reset's option "raw_state", if there is one.
    from_observation: observations[n, d] to state[n, s], where the two differ.
    """

    name: str
    advance: Advance
    observe: Callable[[Array], Observations]
    hidden: tuple[HiddenParameter, ...]
    observation_names: tuple[str, ...]
    observation_low: tuple[float, ...]
    observation_high: tuple[float, ...]
    start_low: tuple[float, ...]
    start_high: tuple[float, ...]
    action_names: tuple[str, ...]
    train_steps: int
    action_low: tuple[float, ...] | None = None
    action_high: tuple[float, ...] | None = None
    from_raw: Callable[[Array], Array] | None = None
    from_observation: Callable[[Array], Array] | None = None

    @cached_property
    def actions(self) -> Numbered | Bounded:
        """What an action is, and the check of one."""
        if self.action_low is None or self.action_high is None:
            return Numbered(len(self.action_names))
        return Bounded(self.action_low, self.action_high)

    def step(
        self, state: Array, action: Actions, hidden: Array, elapsed: Integers
    ) -> tuple[Array, Array, Mask]:
        """(next state[n, s], reward[n], terminated[n]) of state[n, s], actions, hidden[n, h].

        `elapsed[n]` counts the actions since the start of each row's episode.
        """
        state = np.ascontiguousarray(state, dtype=np.float64)
        after = np.empty_like(state)
        reward = np.empty(len(state))
        terminated = np.empty(len(state), dtype=np.bool_)
        self.advance(
            state,
            np.ascontiguousarray(action, dtype=self.actions.empty(0).dtype),
            np.ascontiguousarray(hidden, dtype=np.float64),
            np.ascontiguousarray(elapsed, dtype=np.int64),
            after,
            reward,
            terminated,
        )
        return after, reward, terminated

    def hidden_row(self, hidden: Mapping[str, float] | None) -> Array:
        """The hidden parameters of one instance as a row [h]; missing ones take their default."""
        given = {} if hidden is None else hidden
        if not isinstance(given, Mapping):
            raise ValueError(
                f"The hidden parameters of an instance must be a dict of names and numbers, "
                f"got {hidden!r}."
            )
        names = [parameter.name for parameter in self.hidden]
        for name in given:
            if name not in names:
                raise ValueError(
                    f"Family {self.name!r} has no hidden parameter {name!r}; "
                    f"it has {', '.join(names)}."
                )
        return np.array([p.check(given.get(p.name, p.default)) for p in self.hidden])

    def hidden_rows(
        self, hidden: Mapping[str, float] | Sequence[Mapping[str, float]] | None, rows: int
    ) -> Array:
        """Hidden parameters [rows, h] from one dict for all rows or from one dict a row."""
        if hidden is None or isinstance(hidden, Mapping):
            return np.tile(self.hidden_row(hidden), (rows, 1))
        if not isinstance(hidden, Sequence) or len(hidden) != rows:
            raise ValueError(
                f"`hidden` must be one dict or a list of {rows} dicts, one per environment; "
                f"got {hidden!r:.200}."
            )
        return np.stack([self.hidden_row(one) for one in hidden])

    def given_states(self, options: Mapping[str, Any], rows: int) -> Array | None:
        """The start states [rows, s] that reset's `options` ask for, or None when they do not."""
        kinds = ("state",) if self.from_raw is None else ("state", "raw_state")
        for option in options:
            if option not in kinds:
                raise ValueError(
                    f"Unknown reset option {option!r}; expected one of {', '.join(kinds)}."
                )
        if len(options) != 1:
            if options:
                raise ValueError("Pass either 'state' or 'raw_state' to reset, not both.")
            return None
        [(kind, value)] = options.items()
        shape = (rows, len(self.observation_names))
        try:
            given = np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Reset option {kind!r} must hold numbers, got {value!r}.") from error
        if given.shape != shape or not np.isfinite(given).all():
            raise ValueError(
                f"Reset option {kind!r} must be finite numbers of shape {shape}, "
                f"got shape {given.shape}: {value!r:.200}."
            )
        if kind == "raw_state" and self.from_raw is not None:
            if (given < 0.0).any():
                raise ValueError(f"Populations cannot be negative, got raw_state {value!r:.200}.")
            return self.from_raw(given)
        low, high = np.array(self.observation_low), np.array(self.observation_high)
        # Compared as float32: an observation that was rounded up to a bound may be handed back.
        rounded = given.astype(np.float32)
        if (rounded < low.astype(np.float32)).any() or (rounded > high.astype(np.float32)).any():
            raise ValueError(
                f"Reset option 'state' must lie in the observation space, between {low.tolist()} "
                f"and {high.tolist()}, got {value!r:.200}."
            )
        inside = np.clip(given, low, high)
        return inside if self.from_observation is None else self.from_observation(inside)

    @property
    def start_is_fixed(self) -> bool:
        """Whether every episode starts in the same state, so that nothing is drawn."""
        return self.start_low == self.start_high

    def draw_starts(self, random: np.random.Generator, count: int) -> Array:
        """The next `count` start states [count, s] of the stream `random`.

        One call for k states and k calls for one give the same states.
        """
        low, high = np.array(self.start_low), np.array(self.start_high)
        starts: Array = low + (high - low) * random.random((count, len(low)))
        return starts


def as_float32(state: Array) -> Observations:
    """The observation of a family whose state is observed as it is."""
    return state.astype(np.float32)

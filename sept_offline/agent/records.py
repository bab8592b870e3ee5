"""The parts of an agent as named arrays and a JSON-ready description, and back.

A class that derives from `Record` lists in `stored` what its files contain:

    class HistoryContext(Context):
        kind = "history"
        stored = (
            Value("steps", count),
            Value("action_width", action_count, key="num_actions"),
            Weights("scaler", Standardiser.from_arrays),
        )

Each entry names an attribute, which is also an argument of the constructor, and the function that
reads and checks it: one of the functions at the end of this module, or the part's own. The
constructor checks that the parts fit together.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from ..limits import LONGEST_SEGMENT, MOST_ACTIONS
from .networks import Arrays

Description = Mapping[str, Any]
Kind = TypeVar("Kind")
Plain = TypeVar("Plain")


@dataclass(frozen=True)
class Stored(ABC):
    """One attribute of a record in its files, under `key` where that differs from its name."""

    name: str
    reader: Callable[..., Any] | None = None
    _: KW_ONLY
    key: str = ""

    @property
    def place(self) -> str:
        """The name in the files."""
        return self.key or self.name

    @abstractmethod
    def describe(self, value: Any) -> dict[str, Any]:
        """The entries of `value` in the description."""

    @abstractmethod
    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        """The value that was written; an AgentError if it is invalid."""


@dataclass(frozen=True)
class Value(Stored):
    """A plain value in the description, or a tuple of them: `reader(description, name)`.

    A value without a reader is computed by the constructor; if the description contradicts it, the
    file is damaged.
    """

    def describe(self, value: Any) -> dict[str, Any]:
        """The value under its name."""
        return {self.place: list(value) if isinstance(value, tuple) else value}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        assert self.reader is not None
        return self.reader(description, self.place)


@dataclass(frozen=True)
class Weights(Stored):
    """An array, or a part of arrays alone, such as a network: `reader(arrays, name)`.

    If it may be None, the entry `flag` of the description says so, by the first of `says`.
    """

    flag: str = ""
    says: tuple[Any, Any] = (False, True)

    def describe(self, value: Any) -> dict[str, Any]:
        """The entry that says whether there is any."""
        return {self.flag: self.says[value is not None]} if self.flag else {}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        assert self.reader is not None
        if self.flag:
            absent, present = self.says
            flag = field(description, self.flag, type(present))
            if flag == absent:
                return None
            if flag != present:
                raise AgentError(
                    f"The agent's description has {self.flag!r} as {flag!r:.40}, expected "
                    f"{absent!r} or {present!r}."
                )
        return self.reader(arrays, f"{prefix}.{self.place}")


@dataclass(frozen=True)
class Part(Stored):
    """A part with its own description: `reader(arrays, description, name)`; None if `optional`."""

    optional: bool = False

    def describe(self, value: Any) -> dict[str, Any]:
        """The description of the part under its name."""
        return {self.place: None if value is None else value.describe()}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        assert self.reader is not None
        if self.optional and description.get(self.place) is None:
            return None
        part = field(description, self.place, dict)
        return self.reader(arrays, part, f"{prefix}.{self.place}")


class Record:
    """A part of an agent; see the head of this module."""

    kind = ""
    """Its name in descriptions; empty if nothing else can take its place."""
    stored: ClassVar[tuple[Stored, ...]] = ()
    earlier: ClassVar[Description] = {}
    """Entries that descriptions of earlier versions lack, with the values that these imply."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All arrays, each under a name that starts with `prefix`."""
        arrays: dict[str, NDArray[Any]] = {}
        for each in self.stored:
            value, place = getattr(self, each.name), f"{prefix}.{each.place}"
            if isinstance(value, np.ndarray):
                arrays[place] = value
            elif hasattr(value, "to_arrays"):
                arrays |= value.to_arrays(place)
        return arrays

    def describe(self) -> dict[str, Any]:
        """Everything except the arrays, JSON-ready."""
        description: dict[str, Any] = {"kind": self.kind} if self.kind else {}
        for each in self.stored:
            description |= each.describe(getattr(self, each.name))
        return description

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Description, prefix: str) -> Self:
        """The record that `to_arrays(prefix)` and `describe()` wrote."""
        whole = {**cls.earlier, **description}
        given = (each for each in cls.stored if each.reader is not None)
        record = cls(**{each.name: each.read(arrays, whole, prefix) for each in given})
        for each in cls.stored:
            name, value = each.place, getattr(record, each.name)
            if each.reader is None and whole.get(name, value) != value:
                raise AgentError(f"{name!r} in the agent's description contradicts its parts.")
        return record


def named(kinds: Mapping[str, Kind], description: Description, what: str) -> Kind:
    """The one of `kinds` that a description names."""
    kind = field(description, "kind", str)
    if kind not in kinds:
        raise AgentError(
            f"There is no {what} {kind!r:.40}; a later version may have written this agent."
        )
    return kinds[kind]


def field(record: Any, name: str, kind: type[Plain]) -> Plain:
    """`record[name]`, which must be of `kind`."""
    if not isinstance(record, Mapping) or name not in record:
        raise AgentError(f"The agent's description lacks {name!r}; the agent is damaged.")
    value = record[name]
    wrong_flag = isinstance(value, bool) and kind is not bool
    if wrong_flag or not isinstance(value, kind):
        raise AgentError(
            f"The agent's description has {name!r} as {type(value).__name__}, "
            f"expected {kind.__name__}; the agent is damaged."
        )
    return value


def count(record: Any, name: str, most: int = LONGEST_SEGMENT) -> int:
    """`record[name]`, a whole number from 1 to `most`, as memory is allocated by it."""
    value = field(record, name, int)
    if not 1 <= value <= most:
        raise AgentError(
            f"The agent's description has {name!r} out of range: expected 1 to {most:,}."
        )
    return value


def action_count(record: Any, name: str) -> int:
    """`record[name]`, the number of actions, or of the columns of an encoded one."""
    return count(record, name, MOST_ACTIONS)


def number(record: Any, name: str) -> float:
    """`record[name]`, a finite number."""
    value = field(record, name, float)
    if not math.isfinite(value):
        raise AgentError(f"The agent's {name} is {value}, expected a finite number.")
    return value


def positive(record: Any, name: str) -> float:
    """`record[name]`, a finite number above 0."""
    value = number(record, name)
    if value <= 0:
        raise AgentError(f"The agent's {name} is {value}, expected a finite number above 0.")
    return value


def number_or_none(record: Mapping[str, Any], name: str) -> float | None:
    """`record[name]`, a finite number; None if it is null or missing."""
    return None if record.get(name) is None else number(record, name)


def strings(record: Any, name: str) -> tuple[str, ...]:
    """`record[name]`, which must be a list of strings."""
    values = field(record, name, list)
    if not all(isinstance(value, str) for value in values):
        raise AgentError(f"The agent's description needs a list of strings as {name!r}.")
    return tuple(values)


def pair(record: Any, name: str) -> tuple[float, float]:
    """`record[name]`, which must be two finite numbers, the smaller one first."""
    values = field(record, name, list)
    plain = [value for value in values if isinstance(value, int | float)]
    if len(values) != 2 or len(plain) != 2 or not -math.inf < plain[0] < plain[1] < math.inf:
        raise AgentError(f"The agent's description needs two increasing numbers as {name!r}.")
    return float(plain[0]), float(plain[1])

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
reads and checks it. The constructor checks that the parts fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .fields import field
from .networks import Arrays

Description = Mapping[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Value:
    """A plain value in the description, or a tuple of them.

    `key` is its name in the files where that differs. A value without a reader is computed by the
    constructor; if the description contradicts it, the file is damaged.
    """

    name: str
    reader: Callable[[Description, str], Any] | None = None
    _: KW_ONLY
    key: str = ""

    def describe(self, value: Any) -> dict[str, Any]:
        """The entries of `value` in the description."""
        return {self.key or self.name: list(value) if isinstance(value, tuple) else value}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        """The value that was written, or an error that says what is wrong with it."""
        assert self.reader is not None
        return self.reader(description, self.key or self.name)


@dataclass(frozen=True)
class Weights:
    """An array, or a part of arrays alone, such as a network.

    If it may be None, the entry `flag` of the description says so, by the first of `says`.
    """

    name: str
    reader: Callable[[Arrays, str], Any]
    _: KW_ONLY
    key: str = ""
    flag: str = ""
    says: tuple[Any, Any] = (False, True)

    def describe(self, value: Any) -> dict[str, Any]:
        """The entry that says whether there is any."""
        return {self.flag: self.says[value is not None]} if self.flag else {}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        """The part that was written, or an error that says what is wrong with it."""
        if self.flag:
            absent, present = self.says
            said = field(description, self.flag, type(present))
            if said == absent:
                return None
            if said != present:
                raise AgentError(
                    f"The agent's description has {self.flag!r} as {said!r:.40}, expected "
                    f"{absent!r} or {present!r}."
                )
        return self.reader(arrays, f"{prefix}.{self.key or self.name}")


@dataclass(frozen=True)
class Part:
    """A part with a description; an `optional` one may be None."""

    name: str
    reader: Callable[..., Any]
    _: KW_ONLY
    key: str = ""
    optional: bool = False

    def describe(self, value: Any) -> dict[str, Any]:
        """The description of the part `value`, under its name."""
        return {self.key or self.name: None if value is None else value.describe()}

    def read(self, arrays: Arrays, description: Description, prefix: str) -> Any:
        """The part that was written, or an error that says what is wrong with it."""
        name = self.key or self.name
        if self.optional and description.get(name) is None:
            return None
        return self.reader(arrays, field(description, name, dict), f"{prefix}.{name}")


Stored = Value | Weights | Part


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
            value, place = getattr(self, each.name), f"{prefix}.{each.key or each.name}"
            if isinstance(value, np.ndarray):
                arrays[place] = value
            elif hasattr(value, "to_arrays"):
                arrays |= value.to_arrays(place)
        return arrays

    def describe(self) -> dict[str, Any]:
        """What is needed beside the arrays, JSON-ready."""
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
            name, value = each.key or each.name, getattr(record, each.name)
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

"""Typed fields of an agent's JSON; a missing or mistyped one is an error that names it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import AgentError
from ..limits import LONGEST_SEGMENT, MOST_ACTIONS

Value = TypeVar("Value")


def field(record: Any, name: str, kind: type[Value]) -> Value:
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

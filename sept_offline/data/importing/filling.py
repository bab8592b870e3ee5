"""Rules for missing values: the last one seen, zero, the mean of all, or a value that is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.importing.mapping import ImportMapping
from sept_offline.data.records import Int64
from sept_offline.errors import DataError
from sept_offline.family import suggest

Rule = str | float


@dataclass(frozen=True)
class Fills:
    """A rule, "previous", "mean" or a number, for some columns."""

    observations: Mapping[int, Rule]
    """By the position of the column."""
    otherwise: Rule | None
    """For every other observation."""
    following: Mapping[int, Rule]
    """For columns of next observations that have a rule of their own, by position."""
    reward: Rule | None
    action: str | None
    """"previous", a label or, of a continuous action, a number."""


def fills_of(mapping: ImportMapping) -> Fills:
    """The rules of a mapping, checked against its columns."""
    observations: dict[int, Rule] = {}
    otherwise: Rule | None = None
    reward: Rule | None = None
    action: str | None = None
    names, after = list(mapping.observations), list(mapping.next_observations)
    following: dict[int, Rule] = {}
    known = ["observations", *names, *after, str(mapping.reward), str(mapping.action)]
    for column, text in mapping.fill.items():
        if column == "observations" and column not in names:
            otherwise = _rule(column, text)
        elif column in names:
            observations[names.index(column)] = _rule(column, text)
        elif column in after:
            following[after.index(column)] = _rule(column, text)
        elif column == mapping.reward:
            reward = _rule(column, text)
        elif column == mapping.action:
            action = _action_rule(column, text, mapping.bins is not None)
        else:
            raise DataError(
                f"--fill {column}={text}: there is no such column among observations, reward and "
                f"action{suggest(column, known)}."
            )
    return Fills(observations, otherwise, following, reward, action)


def fill(values: NDArray[Any], rule: Rule, first: Int64) -> int:
    """Fill NaN of values[n] in place; first[n]: where each row's episode begins. How many were.

    A mean is known when all rows have been seen: its places are counted now and stay NaN.
    """
    missing = np.isnan(values)
    count = int(missing.sum())
    if not count or rule == "mean":
        return count
    if rule == "previous":
        here = np.arange(len(values))
        source = np.maximum.accumulate(np.where(missing, first, here))
        values[missing] = values[source[missing]]
        return count - int(np.isnan(values).sum())
    values[missing] = rule
    return count


def _action_rule(column: str, text: str, continuous: bool) -> str:
    if continuous and text != "previous" and not math.isfinite(_float(text)):
        raise DataError(f"--fill {column}={text}: expected previous or, with --bins, a number.")
    if not continuous and text in ("mean", "zero"):
        raise DataError(f"--fill {column}={text}: fill an action by previous or a label.")
    return text


def _rule(column: str, text: str) -> Rule:
    if text in ("previous", "mean"):
        return text
    value = 0.0 if text == "zero" else _float(text)
    if not math.isfinite(value):
        raise DataError(f"--fill {column}={text}: expected previous, zero, mean or a number.")
    return value


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

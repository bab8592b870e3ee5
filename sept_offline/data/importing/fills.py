"""Rules for missing values: the last one seen, zero, the mean of all, or a value that is named.

Several are tried in turn: "previous,mean" is the mean where an episode begins with none.
"""

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
Rules = tuple[Rule, ...]
"""Tried in turn; none where there is nothing to do."""
PREVIOUS: Rules = ("previous",)


@dataclass(frozen=True)
class Fills:
    """Rules, each "previous", "mean" or a number, for some columns."""

    observations: Mapping[int, Rules]
    """By the position of the column."""
    otherwise: Rules
    """For every other observation."""
    following: Mapping[int, Rules]
    """For columns of next observations that have their own rule, by position."""
    reward: Rules
    action: tuple[str, ...]
    """"previous", a label or, of a continuous action, a number."""

    @property
    def label(self) -> str | None:
        """The label, or number, by which a missing action is filled."""
        return next((rule for rule in self.action if rule != "previous"), None)


def fills_of(mapping: ImportMapping) -> Fills:
    """The rules of a mapping, checked against its columns."""
    observations: dict[int, Rules] = {}
    otherwise: Rules = ()
    reward: Rules = ()
    action: tuple[str, ...] = ()
    names, after = list(mapping.observations), list(mapping.next_observations)
    following: dict[int, Rules] = {}
    known = ["observations", *names, *after, str(mapping.reward), str(mapping.action)]
    for column, text in mapping.fill.items():
        if column == "observations" and column not in names:
            otherwise = _rules(column, text)
        elif column in names:
            observations[names.index(column)] = _rules(column, text)
        elif column in after:
            following[after.index(column)] = _rules(column, text)
        elif column == mapping.reward:
            reward = _rules(column, text)
        elif column == mapping.action:
            action = _action_rules(column, text, mapping.bins is not None)
        else:
            raise DataError(
                f"--fill {column}={text}: there is no such column among observations, reward and "
                f"action{suggest(column, known)}."
            )
    return Fills(observations, otherwise, following, reward, action)


def fill(values: NDArray[Any], rules: Rules, first: Int64) -> int:
    """Fill NaN of values[n] in place; first[n]: where each row's episode begins. How many were.

    A mean is known when all rows have been seen: its places are counted now and stay NaN.
    """
    count = int(np.isnan(values).sum())
    for rule in rules:
        missing = np.isnan(values)
        if rule == "mean" or not missing.any():
            return count
        if rule == "previous":
            here = np.arange(len(values))
            source = np.maximum.accumulate(np.where(missing, first, here))
            values[missing] = values[source[missing]]
        else:
            values[missing] = rule
    return count - int(np.isnan(values).sum())


def _action_rules(column: str, text: str, continuous: bool) -> tuple[str, ...]:
    # A label may hold a comma: only the first can part two rules.
    first, comma, rest = (part.strip() for part in text.partition(","))
    rules = (first, rest) if comma and first == "previous" else (text,)
    label = rules[-1]
    if continuous and label != "previous" and not math.isfinite(_float(label)):
        raise DataError(f"--fill {column}={text}: expected previous or, with --bins, a number.")
    if not continuous and label in ("mean", "zero", ""):
        raise DataError(f"--fill {column}={text}: fill an action by previous or a label.")
    return rules


def _rules(column: str, text: str) -> Rules:
    rules = tuple(_rule(column, part.strip()) for part in text.split(","))
    if any(rule != "previous" for rule in rules[:-1]) or rules[1:] == PREVIOUS:
        raise DataError(
            f"--fill {column}={text}: only previous leaves values missing that another rule can "
            "fill, as in previous,mean."
        )
    return rules


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

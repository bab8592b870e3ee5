"""The second pass, over all rows: actions, the behaviour's probabilities, means."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import SUM_TOLERANCE, ActionSpace, Box, Finite
from sept_offline.data.records import Float64, Int64
from sept_offline.data.source import DTYPES
from sept_offline.data.spool import Spool, in_blocks
from sept_offline.errors import DataError
from sept_offline.tools.importing.episodes import Assembly
from sept_offline.tools.importing.reading import NOTHING, Reading
from sept_offline.tools.importing.rows import Mistaken, natural

ROUNDED = 0.01
"""Maximum deviation of a sum of probabilities from 1 that counts as rounding."""
_PLAIN = re.compile(r"0|-?[1-9][0-9]{0,99}")
# No leading zeros: 01 is a code, and not the number 1.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,99})(\.[0-9]{0,99})?|-?[0-9]\.[0-9]{1,99}[eE][+-][0-9]{2}")


@dataclass(frozen=True)
class Actions:
    """The actions of a dataset, and how what was logged becomes them."""

    space: ActionSpace
    names: tuple[str, ...] | None
    """[A], where they are more than 0 … A-1, or [k]"""
    table: Int64 | None = None
    """From the number of a label to an action."""
    edges: Float64 | None = None
    """[A-1], between the bins of a continuous action"""

    @classmethod
    def finite(
        cls,
        count: int,
        names: tuple[str, ...] | None,
        table: Int64 | None = None,
        edges: Float64 | None = None,
    ) -> Actions:
        """One of `count` actions."""
        return cls(Finite.of(count, names), names, table, edges)


def settle(assembly: Assembly) -> Actions:
    """Finish the columns on disk; refuse what has turned out not to be possible."""
    reading, columns = assembly.reading, assembly.columns
    mapping, findings = reading.mapping, reading.findings
    if not mapping.box and mapping.bins is None:
        _check_labels(reading)
    findings.raise_if_bad()
    if not columns.steps:
        raise DataError("No episode has any steps; nothing was imported.")
    if mapping.box:
        actions = _boxed(assembly)
    else:
        actions = _labelled(reading) if mapping.bins is None else _binned(assembly)
        _settle_actions(columns, actions)
    _settle_means(assembly)
    if "chances" in columns.shapes:
        _settle_probabilities(reading, columns, actions.space.width)
        findings.raise_if_bad()
    return actions


def _boxed(assembly: Assembly) -> Actions:
    """The box between the named bounds, or those of the data rounded outwards."""
    seen = assembly.actions
    names = tuple(map(assembly.action_name, range(assembly.width)))
    span = seen.high - seen.low
    low: NDArray[Any] = np.minimum(_rounded(seen.low, span, np.floor), seen.low)
    high: NDArray[Any] = np.maximum(_rounded(seen.high, span, np.ceil), seen.high)
    low = low if assembly.low is None else assembly.low
    high = high if assembly.high is None else assembly.high
    if assembly.low is None or assembly.high is None:
        assembly.findings.counts["bounds from the data"] = assembly.width
    for name, lower, upper in zip(names, low.tolist(), high.tolist(), strict=True):
        if not lower < upper:
            raise DataError(
                f"The action {name!r} ranges from {lower:g} to {upper:g}, so there is nothing to "
                "choose; name its bounds with --action-low and --action-high, or leave it out."
            )
    return Actions(Box.of(low, high, names), names)


def _rounded(values: Float64, span: Float64, outwards: np.ufunc) -> Float64:
    """[k], extreme values as bounds, outwards to two digits of the range that was seen."""
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(span)) - 1)
        # 0.3 as float32 is a little more than 0.3: not a reason to go up to 0.31
        rounded = outwards(np.round(values / unit, 5)) * unit
        return np.asarray(np.where(span > 0, rounded, values))


def _binned(assembly: Assembly) -> Actions:
    """Bins of equal counts of a continuous action."""
    bins = assembly.reading.mapping.bins or 0
    values = assembly.sample()
    edges = np.quantile(values, np.arange(1, bins) / bins)
    edges = np.unique(edges[(edges > values.min()) & (edges <= values.max())])
    if len(edges) < 1:
        raise DataError(
            f"The action {assembly.action_name(0)!r} takes a single value and cannot be "
            "binned; an agent needs at least two actions."
        )
    bounds = ["", *(f"{edge:.4g}" for edge in edges), ""]
    names = tuple(
        f"{low} ≤ x < {high}" if low and high else f"x < {high}" if high else f"x ≥ {low}"
        for low, high in itertools.pairwise(bounds)
    )
    assembly.findings.counts["bins"] = len(names)
    return Actions.finite(len(names), names, edges=edges)


def _check_labels(reading: Reading) -> None:
    """Raise Mistaken if a word for a missing value, such as NA, was read as a label of numbers."""
    words, declared = reading.labels.list, reading.mapping.actions
    odd = [word for word in words if word in NOTHING]
    others = [word for word in words if word not in NOTHING]
    if reading.kind != "csv" or not odd:
        return
    if declared:
        among = not set(odd) & set(declared)
    else:
        among = bool(others) and all(_number(word, worded=False) is not None for word in others)
    if among and not reading.look.nothing_is_missing:
        raise Mistaken(nothing_is_missing=True)
    reading.findings.counts["labels for nothing"] = len(odd)


def _labelled(reading: Reading) -> Actions:
    """The actions behind the labels: numbers where all are numbers, names otherwise."""
    mapping, words = reading.mapping, reading.labels.list
    numbers = [_number(word, reading.worded) for word in words]
    if mapping.actions:
        actions = _declared(words, numbers, mapping.actions)
    elif all(number is not None for number in numbers):
        actions = _numbered(reading, words, [number for number in numbers if number is not None])
    else:
        actions = _named(words, sorted(words, key=natural), mapping.probabilities)
    used = 0 if actions.table is None else len(set(actions.table.tolist()))
    reading.findings.counts["spellings merged"] = len(words) - used
    return actions


def _numbered(reading: Reading, words: list[str], values: list[Fraction]) -> Actions:
    mapping = reading.mapping
    broken = [word for word, value in zip(words, values, strict=True) if value.denominator > 1]
    if broken:
        raise DataError(
            f"The action {mapping.action!r} holds {len(broken):,} numbers that are not integers, "
            f"first {broken[0]}, so it is not discrete; keep its numbers with --continuous, bin "
            "it, for example with --bins 5, or list its values in order with --actions."
        )
    whole = [int(value) for value in values]
    count = _columns_of_probabilities(reading) or len(set(whole))
    if min(whole) >= 0 and max(whole) < count:
        return Actions.finite(count, None, np.asarray(whole, dtype=np.int64))
    order = [str(value) for value in sorted(set(whole))]
    return _named([str(value) for value in whole], order, mapping.probabilities)


def _columns_of_probabilities(reading: Reading) -> int:
    """How many actions the named probabilities are of."""
    return sum(reading.widths["chances"]) if reading.mapping.probabilities else 0


def _named(words: list[str], order: list[str], columns: tuple[str, ...]) -> Actions:
    if columns:
        order = _by_columns(order, columns)
    place = {word: position for position, word in enumerate(order)}
    return Actions.finite(len(order), tuple(order), np.asarray([place[word] for word in words]))


def _declared(
    words: list[str], numbers: list[Fraction | None], declared: tuple[str, ...]
) -> Actions:
    place: dict[str | Fraction, int] = {word: position for position, word in enumerate(declared)}
    for position, word in enumerate(declared):
        number = _number(word, worded=False)
        if number is not None:
            place.setdefault(number, position)
    table = []
    for word, number in zip(words, numbers, strict=True):
        code = place.get(word, place.get(number) if number is not None else None)
        if code is None:
            raise DataError(
                f"The action {word!r} is logged but is not among --actions {','.join(declared)}."
            )
        table.append(code)
    plain = declared == tuple(str(position) for position in range(len(declared)))
    return Actions.finite(
        len(declared), None if plain else declared, np.asarray(table, dtype=np.int64)
    )


def _by_columns(labels: list[str], columns: tuple[str, ...]) -> list[str]:
    """The labels in the order of the columns that name them."""
    order = []
    for column in columns:
        fitting = [label for label in labels if label == column]
        fitting = fitting or [label for label in labels if column.endswith(f"_{label}")]
        if len(fitting) == 1:
            order.append(fitting[0])
    if len(order) != len(columns) or set(order) != set(labels):
        raise DataError(
            f"The {len(columns)} columns of --probabilities need an order; list the actions in the "
            f"same order with --actions (logged are {', '.join(labels)})."
        )
    return order


def _number(word: str, worded: bool) -> Fraction | None:
    """Exactly; `worded`: from a column of strings, where 1.0 is another label than 1."""
    return Fraction(word) if (_PLAIN if worded else _NUMBER).fullmatch(word) else None


def _settle_actions(columns: Spool, actions: Actions) -> None:
    """Turn the numbers of labels into actions by the table, or values by the edges of bins."""
    raw, settled = columns.column("actions"), columns.column("actions", "<i8")
    for block in in_blocks(raw, settled):
        values = raw.array[block]
        if actions.edges is not None:
            settled.array[block] = np.searchsorted(actions.edges, values, side="right")
        elif actions.table is not None:
            settled.array[block] = actions.table[values.astype(np.int64)]


def _settle_means(assembly: Assembly) -> None:
    """Fill values that are still missing with the mean of their column."""
    ranges = assembly.observations
    for position in range(assembly.dim):
        if "mean" in (*assembly.rules(position), *assembly.following_rules(position)):
            if not ranges.known[position]:
                name = assembly.observation_name(position)
                raise DataError(f"The column {name!r} has no values and therefore no mean.")
            _settle_mean(assembly.columns, "observations", position, float(ranges.mean[position]))
    if "mean" in assembly.fills.reward:
        if not assembly.rewards.known[0]:
            raise DataError("No step has a reward, so rewards have no mean.")
        _settle_mean(assembly.columns, "rewards", 0, float(assembly.rewards.mean[0]))


def _settle_mean(columns: Spool, name: str, position: int, mean: float) -> None:
    column = columns.column(name)
    for block in in_blocks(column):
        values = column.array[block]
        values = values[:, position] if values.ndim == 2 else values
        missing = np.isnan(values)
        if missing.any():
            values[missing] = mean


def _settle_probabilities(reading: Reading, columns: Spool, count: int) -> None:
    """[N, A] from the probability of the action taken, or of all actions."""
    findings, (width,) = reading.findings, columns.shapes["chances"]
    if width > 1 and width != count:
        raise DataError(
            f"--probabilities names {width} columns for {count} actions; name one for each."
        )
    logged, taken = columns.column("chances"), columns.column("actions", "<i8")
    settled = columns.column("propensities", DTYPES["propensities"], (count,))
    columns.shapes["propensities"] = (count,)
    for block in in_blocks(logged, taken, settled):
        chances, actions = np.array(logged.array[block]), taken.array[block]
        rows = np.arange(len(actions))
        missed = np.zeros(len(actions), dtype=np.bool_)
        if width == 1 and count > 1:
            alone = np.full((len(actions), count), np.nan)
            alone[rows, actions] = chances[:, 0]
            if count == 2:
                alone[rows, 1 - actions] = 1 - chances[:, 0]
            chances = alone
        else:
            chances[np.isnan(chances).any(axis=1)] = np.nan
            total = chances.sum(axis=1)
            missed = np.abs(total - 1) > ROUNDED
            rounded = (np.abs(total - 1) > SUM_TOLERANCE) & ~missed
            chances[rounded] /= total[rounded, None]
            findings.counts["probabilities made to sum to 1"] += int(rounded.sum())
        chance = chances[rows, actions]
        findings.counts["steps without probabilities"] += int(np.isnan(chance).sum())
        outside = ((chances < 0) | (chances > 1)).any(axis=1)
        for kind, bad, problem in (
            ("probabilities' sum", missed, "do not sum to 1"),
            ("probabilities' range", outside, "are not within 0 … 1"),
            ("probability taken", chance <= 0, "are 0 for the very action that was taken"),
        ):
            if not bad.any():
                continue
            findings.refuse(
                kind,
                columns.column("row").array[block][bad],
                f"The probabilities of {{count}} steps {problem} (first {{place}}); correct them, "
                "or leave them out and the behaviour will be estimated.",
            )
        settled.array[block] = chances

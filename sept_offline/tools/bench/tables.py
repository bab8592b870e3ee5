"""The tables of a bench, for Markdown, a terminal or a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Row = dict[str, Any]
"""A record of the summary, or the statistics of one of its figures."""
Columns = Sequence[tuple[str, Callable[[Row], str]]]
"""Heads, and the cell of a row below each."""

NOTE = """Steps: steps to solve, probe included, or the limit where an episode was not solved. ±:
standard error over training seeds. Brackets: 95 % bootstrap intervals over training seeds and test
instances. A single seed has neither. Intervals of few seeds are too narrow: where seeds differ more
than instances do, intervals of two seeds cover the truth in 60 % of cases, of five seeds in 80 %.
Seeds with the same data seed share their logs, so the intervals do not cover other logs. Score:
(return − random) / (best known − random) of each instance, or the return where these are not known.
IQM: interquartile mean. Needs: inputs of the agent besides observations. Learns: whether it takes
gradient steps during the test episode. Identified: share of new probes in training instances whose
nearest latents belong to the same instance. Separated: the same for test episodes. R² of hidden: of
the hidden parameters of test instances, predicted from z by a ridge regression on training
segments. The paper trains online."""


@dataclass(frozen=True)
class Table:
    """A title, column heads, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As a Markdown table."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"


def make_tables(summary: Sequence[Row]) -> list[Table]:
    """Three tables per family: performance, paired differences, times."""
    tables = []
    for family in dict.fromkeys(row["family"] for row in summary):
        rows = [row for row in summary if row["family"] == family]
        tables.append(_table(f"{family}: test episodes", PERFORMANCE, rows))
        compared = [row for row in rows if row["against"]]
        if compared:
            title = f"{family}: differences, paired by seed and instance"
            tables.append(_table(title, _differences(rows), compared))
        tables.append(_table(f"{family}: seconds", TIMES, rows))
    return tables


def markdown(tables: Sequence[Table], warnings: Sequence[str] = ()) -> str:
    """All tables as one page, after the warnings."""
    warned = [f"**Not comparable:** {' '.join(warnings)}", ""] if warnings else []
    return "\n".join([NOTE, "", *warned, *(table.markdown() for table in tables)])


def _table(title: str, columns: Columns, rows: Sequence[Row]) -> Table:
    """Without columns of dashes, and without a preset or variant that never changes."""
    kept: dict[str, list[str]] = {}
    for name, show in columns:
        values = [show(row) for row in rows]
        constant = name in ("preset", "variant") and len(set(values)) == 1
        if set(values) != {"–"} and not constant:
            kept[name] = values
    return Table(title, tuple(kept), tuple(zip(*kept.values(), strict=True)))


def _differences(rows: Sequence[Row]) -> Columns:
    """A column per rival and figure that any row has a difference in."""
    columns = list(NAMES)
    for rival in dict.fromkeys(rival for row in rows for rival in row["against"]):
        for column, word in (("score", "score"), ("steps_to_solve", "steps")):
            if any(_gap(row, rival, column) for row in rows):
                show = partial(_difference, rival=rival, column=column)
                columns.append((f"{word} − {rival}'s", show))
    return columns


def _difference(row: Row, rival: str, column: str) -> str:
    return _interval(_gap(row, rival, column))


def _method(row: Row) -> str:
    return str(row["method"]) + (" (estimated μ)" if row["behaviour_estimated"] else "")


def _score(row: Row) -> Row | None:
    score: Row | None = row["normalised"] or row["return"]
    return score


def _gap(row: Row, rival: str, column: str) -> Row | None:
    against = row["against"].get(rival)
    if against is None:
        return None
    if column == "score":
        column = "normalised" if row["normalised"] else "return"
    gap: Row | None = against[column]
    return gap


def _worst(row: Row) -> str:
    """The steps of the worst seed, or its score where there is nothing to solve."""
    if row["steps_to_solve"]:
        return _number(row["steps_to_solve"]["most"]) + " steps"
    score = _score(row)
    return "–" if score is None else _number(score["least"])


def _explained(shares: dict[str, float] | None) -> str:
    """One number where all parameters have the same R², else the mean and the best."""
    if not shares:
        return "–"
    values = list(shares.values())
    if max(values) - min(values) < 5e-4:
        return f"{values[0]:.3f}"
    best = max(shares, key=lambda name: shares[name])
    return f"{sum(values) / len(values):.2f}, {best} {shares[best]:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.3g}"


def _error(value: float) -> str:
    """A standard error with two digits."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.1e}"


def _percent(statistics: Row | None) -> str:
    return "–" if statistics is None else f"{statistics['mean']:.1%}"


def _with_error(statistics: Row | None) -> str:
    if statistics is None:
        return "–"
    error = statistics["se"]
    return _number(statistics["mean"]) + ("" if error is None else " ± " + _error(error))


def _interval(statistics: Row | None, name: str = "mean") -> str:
    if statistics is None:
        return "–"
    low, high = statistics["low"], statistics["high"]
    between = "–" if low is None else f"{_number(low)}, {_number(high)}"
    return f"{_number(statistics[name])} [{between}]"


NAMES: Columns = (
    ("method", _method),
    ("preset", lambda row: row["preset"]),
    ("variant", lambda row: row["variant"]),
)
PERFORMANCE: Columns = (
    *NAMES,
    ("needs", lambda row: ", ".join(row["needs"]) or "–"),
    ("learns", lambda row: "yes" if row["learns"] else "–"),
    ("budget", lambda row: row["budget"] or "–"),
    ("seeds", lambda row: str(row["seeds"])),
    ("episodes", lambda row: str(row["episodes"])),
    ("solved", lambda row: _percent(row["solved"])),
    ("steps", lambda row: _with_error(row["steps_to_solve"])),
    ("paper", lambda row: _with_error(row["paper"].get("steps_to_solve"))),
    ("return", lambda row: _with_error(row["return"])),
    ("paper's return", lambda row: _with_error(row["paper"].get("return"))),
    ("score", lambda row: _with_error(_score(row))),
    ("IQM of score", lambda row: _interval(_score(row), "iqm")),
    ("worst seed", _worst),
    ("identified", lambda row: _number(row["identification"])),
    ("separated", lambda row: _number(row["told_apart"])),
    ("R² of hidden", lambda row: _explained(row["explained"])),
)
TIMES: Columns = (
    *NAMES,
    ("training", lambda row: _with_error(row["fit_seconds"])),
    ("processor time", lambda row: _with_error(row["fit_cpu_seconds"])),
    ("paper's training", lambda row: _with_error(row["paper"].get("fit_seconds"))),
    ("test episode", lambda row: _with_error(row["seconds"])),
    ("paper's test episode", lambda row: _with_error(row["paper"].get("seconds"))),
    ("µs per action", lambda row: _with_error(row["act_microseconds"])),
)

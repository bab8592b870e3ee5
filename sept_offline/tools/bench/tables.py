"""The tables of a bench, for Markdown, a terminal or a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NOTE = """Steps: steps to solve, probe included, or the limit where an episode was not solved. ±:
standard error over training seeds. Brackets: 95 % bootstrap intervals over training seeds and test
instances. A single seed has neither. Intervals of few seeds are too narrow: where seeds differ more
than instances do, intervals of two seeds cover the truth in 60 % of cases, of five seeds in 80 %.
Seeds with the same data seed share their logs, so the intervals do not cover other logs. Score:
(return − random) / (best known − random) of each instance, or the return where these are not known.
IQM: interquartile mean. Needs: what the agent gets beside observations. Learns: whether it takes
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


def make_tables(summary: Sequence[dict[str, Any]]) -> list[Table]:
    """Three tables per family: performance, paired differences, times."""
    tables = []
    for family in dict.fromkeys(row["family"] for row in summary):
        rows = [row for row in summary if row["family"] == family]
        tables += [_performance(family, rows), _differences(family, rows), _times(family, rows)]
    return [_trimmed(table) for table in tables if table.rows]


def markdown(tables: Sequence[Table], warnings: Sequence[str] = ()) -> str:
    """All tables as one page, after the warnings."""
    warned = [f"**Not comparable:** {' '.join(warnings)}", ""] if warnings else []
    return "\n".join([NOTE, "", *warned, *(table.markdown() for table in tables)])


def _performance(family: str, rows: list[dict[str, Any]]) -> Table:
    columns = (
        "method",
        "preset",
        "variant",
        "needs",
        "learns",
        "budget",
        "seeds",
        "episodes",
        "solved",
        "steps",
        "paper",
        "return",
        "paper's return",
        "score",
        "IQM of score",
        "worst seed",
        "identified",
        "separated",
        "R² of hidden",
    )
    return Table(
        f"{family}: test episodes",
        columns,
        tuple(
            (
                *_names(row),
                ", ".join(row["needs"]) or "–",
                "yes" if row["learns"] else "–",
                row["budget"] or "–",
                str(row["seeds"]),
                str(row["episodes"]),
                _percent(row["solved"]),
                _with_error(row["steps_to_solve"]),
                _with_error(row["paper"].get("steps_to_solve")),
                _with_error(row["return"]),
                _with_error(row["paper"].get("return")),
                _with_error(_score(row)),
                _interval(_score(row), "iqm"),
                _worst(row),
                _number(row["identification"]),
                _number(row["told_apart"]),
                _explained(row["explained"]),
            )
            for row in rows
        ),
    )


def _differences(family: str, rows: list[dict[str, Any]]) -> Table:
    rivals = list(dict.fromkeys(rival for row in rows for rival in row["against"]))
    shown = [
        (rival, column, word)
        for rival in rivals
        for column, word in (("score", "score"), ("steps_to_solve", "steps"))
        if any(_gap(row, rival, column) for row in rows)
    ]
    return Table(
        f"{family}: differences, paired by seed and instance",
        ("method", "preset", "variant", *(f"{word} − {rival}'s" for rival, _, word in shown)),
        tuple(
            (*_names(row), *(_interval(_gap(row, rival, column)) for rival, column, _ in shown))
            for row in rows
            if row["against"]
        ),
    )


def _times(family: str, rows: list[dict[str, Any]]) -> Table:
    return Table(
        f"{family}: seconds",
        (
            "method",
            "preset",
            "variant",
            "training",
            "processor time",
            "paper's training",
            "test episode",
            "paper's test episode",
            "µs per action",
        ),
        tuple(
            (
                *_names(row),
                _with_error(row["fit_seconds"]),
                _with_error(row["fit_cpu_seconds"]),
                _with_error(row["paper"].get("fit_seconds")),
                _with_error(row["seconds"]),
                _with_error(row["paper"].get("seconds")),
                _with_error(row["act_microseconds"]),
            )
            for row in rows
        ),
    )


def _trimmed(table: Table) -> Table:
    """Without columns of dashes, and without a preset or variant that never changes."""
    kept = []
    for place, name in enumerate(table.columns):
        values = {row[place] for row in table.rows}
        constant = name in ("preset", "variant") and len(values) == 1
        if values != {"–"} and not constant:
            kept.append(place)
    return Table(
        table.title,
        tuple(table.columns[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in table.rows),
    )


def _names(row: dict[str, Any]) -> tuple[str, str, str]:
    estimated = " (estimated μ)" if row["behaviour_estimated"] else ""
    return row["method"] + estimated, row["preset"], row["variant"]


def _score(row: dict[str, Any]) -> dict[str, Any] | None:
    score: dict[str, Any] | None = row["normalised"] or row["return"]
    return score


def _gap(row: dict[str, Any], rival: str, column: str) -> dict[str, Any] | None:
    against = row["against"].get(rival)
    if against is None:
        return None
    if column == "score":
        column = "normalised" if row["normalised"] else "return"
    gap: dict[str, Any] | None = against[column]
    return gap


def _worst(row: dict[str, Any]) -> str:
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


def _percent(statistics: dict[str, Any] | None) -> str:
    return "–" if statistics is None else f"{statistics['mean']:.1%}"


def _with_error(statistics: dict[str, Any] | None) -> str:
    if statistics is None:
        return "–"
    error = statistics["se"]
    return _number(statistics["mean"]) + ("" if error is None else " ± " + _error(error))


def _interval(statistics: dict[str, Any] | None, name: str = "mean") -> str:
    if statistics is None:
        return "–"
    low, high = statistics["low"], statistics["high"]
    between = "–" if low is None else f"{_number(low)}, {_number(high)}"
    return f"{_number(statistics[name])} [{between}]"

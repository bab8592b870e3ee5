"""The tables of a bench: figures as a person reads them, in Markdown and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NOTE = """Steps are to solve, the probe's included, the limit where unsolved. ± is the standard
error over training seeds; brackets are 95 % bootstrap intervals that resample training seeds and,
for all seeds alike, test instances. A single seed has neither. Intervals of few seeds are too
narrow: where seeds differ more than instances do, those of two hold the truth 60 times in a
hundred, of five 80 times. Seeds of one data seed share their logs, so that neither tells of other
logs. IQM is the mean of the middle half. The score is (return − random) / (best known − random)
of each instance, where that is known, else the return. Needs: what the agent is given beside
observations; learns: gradient steps are taken in the test episode. Identified: fresh probes of
training instances whose latent lies among its own instance's; told apart: test episodes whose
latent lies among others of their instance; R²: of the hidden parameters of test instances, read
off z by a ridge regression on training segments. The paper trains online."""


@dataclass(frozen=True)
class Table:
    """A title, column heads, and rows of ready text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """As GitHub draws it."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"


def make_tables(summary: Sequence[dict[str, Any]]) -> list[Table]:
    """Of each family: how well, against whom, how long."""
    tables = []
    for family in dict.fromkeys(row["family"] for row in summary):
        own = [row for row in summary if row["family"] == family]
        tables += [_performance(family, own), _differences(family, own), _times(family, own)]
    return [_trimmed(table) for table in tables if table.rows]


def markdown(tables: Sequence[Table], warnings: Sequence[str] = ()) -> str:
    """All tables as one page, what is wrong with them first."""
    warned = [f"**Not alike:** {' '.join(warnings)}", ""] if warnings else []
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
        "told apart",
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
            "of a processor",
            "paper's training",
            "test episode",
            "paper's test episode",
            "µs an action",
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
    """Without columns that say nothing: all dashes, or the preset or variant where there is one."""
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
    found: dict[str, Any] | None = row["normalised"] or row["return"]
    return found


def _gap(row: dict[str, Any], rival: str, column: str) -> dict[str, Any] | None:
    against = row["against"].get(rival)
    if against is None:
        return None
    if column == "score":
        column = "normalised" if row["normalised"] else "return"
    found: dict[str, Any] | None = against[column]
    return found


def _worst(row: dict[str, Any]) -> str:
    """The worst seed's steps, where there is something to solve; else its score."""
    if row["steps_to_solve"]:
        return _number(row["steps_to_solve"]["most"]) + " steps"
    score = _score(row)
    return "–" if score is None else _number(score["least"])


def _explained(found: dict[str, float] | None) -> str:
    """One figure where all parameters are told alike, else the mean and the best."""
    if not found:
        return "–"
    values = list(found.values())
    if max(values) - min(values) < 5e-4:
        return f"{values[0]:.3f}"
    best = max(found, key=lambda name: found[name])
    return f"{sum(values) / len(values):.2f}, {best} {found[best]:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.3g}"


def _error(value: float) -> str:
    """Two digits are enough of a standard error."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.1e}"


def _percent(found: dict[str, Any] | None) -> str:
    return "–" if found is None else f"{found['mean']:.1%}"


def _with_error(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    return _number(found["mean"]) + ("" if found["se"] is None else " ± " + _error(found["se"]))


def _interval(found: dict[str, Any] | None, name: str = "mean") -> str:
    if found is None:
        return "–"
    if found["low"] is None:
        return f"{_number(found[name])} [–]"
    return f"{_number(found[name])} [{_number(found['low'])}, {_number(found['high'])}]"

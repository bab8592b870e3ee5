"""The summary of a bench, one record per family, preset, variant and method, and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import FamilyError
from sept_offline.family import known_family
from sept_offline.latent.identification import explained, vote
from sept_offline.methods import METHODS
from sept_offline.settings import read_toml
from sept_offline.tools.bench.plan import BASE
from sept_offline.tools.bench.statistics import grid, paired, summarise
from sept_offline.tools.bench.store import grouped, read_table
from sept_offline.versions import OWN

PAPER = Path(__file__).with_name("paper.toml")
RIVALS = ("avg", "oracle", "sept")
FIGURES = ("steps_to_solve", "return", "normalised", "solved", "seconds", "act_microseconds")
NEIGHBOURS = 5
"""Latents that vote on the instance of a test episode."""
PAIRED = ("normalised", "return", "steps_to_solve")

Row = Mapping[str, Any]
"""A row of a table, a record of the summary, or the statistics of one of its figures."""
Key = tuple[Any, ...]
"""Values of `KEYS`."""
KEYS = ("family", "preset", "variant", "method")


def summarise_bench(out: Path) -> list[dict[str, Any]]:
    """From the tables in `out`, in the order of the tables."""
    tables = (read_table(out, name) for name in ("results", "cells", "latents"))
    return summarise_rows(*tables)


def summarise_rows(
    results: Sequence[Row], cells: Sequence[Row], latents: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """From rows of the tables `results`, `cells` and `latents`."""
    episodes, fits, segments = (grouped(rows, *KEYS) for rows in (results, cells, latents))
    return [
        _summary(key, episodes, fits[key], segments.get(key, []))
        for key in sorted(fits, key=_order)
        if key in episodes
    ]


def unlike(cells: Sequence[Row]) -> list[str]:
    """Differences that make cells of a bench not comparable, one sentence each."""
    sentences = []
    for family in dict.fromkeys(cell["family"] for cell in cells):
        of_family = [cell for cell in cells if cell["family"] == family]
        written = sorted({json.loads(cell["versions"])[OWN] for cell in of_family})
        splits = sorted({cell["split"] for cell in of_family})
        logs: dict[tuple[str, int], set[str]] = {}
        for cell in of_family:
            logs.setdefault((cell["variant"], cell["data_seed"]), set()).add(cell["content_hash"])
        mixed = [f"{name}, {seed}" for (name, seed), hashes in logs.items() if len(hashes) > 1]
        if len(written) > 1:
            sentences.append(f"{family}: cells of several versions ({', '.join(written)}).")
        if len(splits) > 1:
            sentences.append(f"{family}: cells tested on several splits ({', '.join(splits)}).")
        if mixed:
            named = "; ".join(mixed)
            sentences.append(f"{family}: cells with different logs of one data seed ({named}).")
    return sentences


def _summary(
    key: Key, episodes: Mapping[Key, list[Row]], fits: list[Row], segments: list[Row]
) -> dict[str, Any]:
    family, preset, variant, method = key
    played = episodes[key]
    identified = [fit["identification"] for fit in fits if fit["identification"] is not None]
    summary: dict[str, Any] = {
        "family": family,
        "preset": preset,
        "variant": variant,
        "method": method,
        "needs": sorted({need for fit in fits for need in fit["needs"]}),
        "learns": any(fit["learns"] for fit in fits),
        "budget": next((fit["budget"] for fit in fits if fit["budget"]), None),
        "behaviour_estimated": any(fit["behaviour_estimated"] for fit in fits),
        "seeds": len(fits),
        "episodes": len(played),
        "identification": float(np.mean(identified)) if identified else None,
        **_of_test_instances(family, played, fits, segments),
    }
    for figure in FIGURES:
        summary[figure] = summarise(grid(played, figure)[2])
    for figure in ("fit_seconds", "fit_cpu_seconds"):
        summary[figure] = summarise(np.array([[fit[figure]] for fit in fits], dtype=np.float64))
    summary["paper"] = {
        figure: {
            name: None if value is None else float(value)
            for name, value in zip(("mean", "se"), values[method], strict=True)
        }
        for figure, values in _published(family).items()
        if method in values
    }
    summary["against"] = {
        rival: {
            column: paired(played, episodes[(family, preset, variant, rival)], column)
            for column in PAIRED
        }
        for rival in RIVALS
        if rival != method and (family, preset, variant, rival) in episodes
    }
    return summary


def _of_test_instances(
    family: str, episodes: list[Row], fits: list[Row], segments: list[Row]
) -> dict[str, Any]:
    """How well z separates test instances and predicts hidden parameters: means over seeds."""
    apart, hidden = [], []
    for fit in fits:
        played = [row for row in episodes if row["seed"] == fit["seed"]]
        encoded = [row for row in segments if row["seed"] == fit["seed"]]
        apart.append(separated(played))
        hidden.append(hidden_explained(played, encoded, family, fit["split"]))
    shares = [share for share in apart if share is not None]
    # A parameter that is the same in all test instances with a latent has no share in that seed.
    known: dict[str, list[float]] = {}
    for values in hidden:
        for name, share in (values or {}).items():
            known.setdefault(name, []).append(share)
    return {
        "told_apart": float(np.mean(shares)) if shares else None,
        "explained": {name: float(np.mean(of_seeds)) for name, of_seeds in known.items()} or None,
    }


def separated(episodes: Sequence[Row]) -> float | None:
    """Share of test episodes of a seed whose nearest neighbours in z are of the same instance.

    None unless every instance was played at least three times.
    """
    inferred = [row for row in episodes if row["latent"] is not None]
    names = sorted({row["instance"] for row in inferred})
    labels = np.array([names.index(row["instance"]) for row in inferred], dtype=np.int64)
    if len(names) < 2 or np.bincount(labels).min() < 3:
        return None
    latents = _latents(inferred, "latent")
    latents = latents / np.maximum(latents.std(axis=0), 1e-6)
    # No more neighbours than the smallest instance has other episodes.
    count = min(NEIGHBOURS, int(np.bincount(labels).min()) - 1)
    named = [
        vote(np.delete(latents, i, 0), np.delete(labels, i), latents[i : i + 1], count)
        for i in range(len(inferred))
    ]
    return float((np.concatenate(named) == labels).mean())


def hidden_explained(
    episodes: Sequence[Row], segments: Sequence[Row], family: str, split: str
) -> dict[str, float] | None:
    """R² of each hidden parameter on test instances, by a ridge regression on training segments.

    None where the hidden parameters are not known, or do not vary.
    """
    try:
        record = known_family(family)
        truths = dict(zip(record.instance_ids(split), record.instances(split), strict=True))
    except FamilyError:
        return None
    known = [row for row in segments if row["hidden"] is not None]
    asked = [row for row in episodes if row["latent"] is not None and row["instance"] in truths]
    if not known or not asked:
        return None
    # The many segments of an instance share one JSON text.
    read = {text: json.loads(text) for text in dict.fromkeys(row["hidden"] for row in known)}
    names = list(read[known[0]["hidden"]])
    targets = np.array([[read[row["hidden"]][name] for name in names] for row in known])
    truth = np.array([[truths[row["instance"]].get(name, 0.0) for name in names] for row in asked])
    varied = (targets.std(axis=0) > 0) & (truth.std(axis=0) > 0)
    if not varied.any():
        return None
    shares = explained(
        _latents(known, "z"), targets[:, varied], _latents(asked, "latent"), truth[:, varied]
    )
    kept = [name for name, varies in zip(names, varied, strict=True) if varies]
    return dict(zip(kept, map(float, shares), strict=True))


def _latents(rows: Sequence[Row], column: str) -> NDArray[np.float32]:
    return np.array([row[column] for row in rows], dtype=np.float32)


def _published(family: str) -> dict[str, dict[str, Sequence[float | None]]]:
    """The figures of the paper, or those that the family itself states."""
    paper: dict[str, dict[str, Sequence[float | None]]] = read_toml(PAPER).get(family, {})
    if paper:
        return paper
    try:
        published = known_family(family).published
    except FamilyError:
        return {}
    return {"steps_to_solve": {method: (value, None) for method, value in published.items()}}


def _order(key: Key) -> tuple[Any, ...]:
    """Families by name, the default preset and the base variant first, methods as registered."""
    family, preset, variant, method = key
    known = list(METHODS)
    place = known.index(method) if method in known else len(known)
    return family, preset != "default", preset, variant != BASE, variant, place, method


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

"""The top of a page: the answer, one sentence and four figures, and the verdicts of the fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sept_offline.tools.bench.figures.figure import short
from sept_offline.tools.bench.figures.rows import studies
from sept_offline.tools.report.comparison import Difference, paired_difference
from sept_offline.tools.report.page import (
    Answer,
    Block,
    Note,
    Section,
    Tile,
    count,
    number,
    percent,
    plural,
    with_error,
)
from sept_offline.tools.report.sources import BenchFolder, Evaluated, Run, comparable

BOUNDS = ("avg", "oracle")
"""Methods that the answer compares with: one policy for all, and one that knows what is hidden."""
KINDS = {"usable": "good", "doubtful": "note", "not usable": "warning"}
"""Verdict of a fit → how it is shown."""
COLUMNS = {"steps": "steps_to_solve", "score": "normalised", "return": "return"}
"""What differences may count → the figure of a summary."""
Statistics = Mapping[str, Any]


@dataclass(frozen=True)
class MethodResult:
    """The test episodes of one method in one family."""

    method: str
    family: str
    episodes: int
    solved: float | None
    steps: Statistics | None
    score: Statistics | None
    total: Statistics | None
    gaps: Mapping[str, Difference] = field(default_factory=dict)
    """Method of `BOUNDS` → difference in `unit`."""

    @property
    def unit(self) -> str:
        """What the differences count: steps where there is something to solve, else the score."""
        if self.steps is not None:
            return "steps"
        return "score" if self.score is not None else "return"

    @property
    def success(self) -> str:
        """The share of solved episodes, else the score."""
        if self.solved is not None:
            return percent(self.solved)
        return with_error(self.score)

    @property
    def effort(self) -> str:
        """Steps to solve, else the return."""
        return with_error(self.steps if self.steps is not None else self.total)


def answer(
    runs: Sequence[Run], benches: Sequence[BenchFolder], sections: Sequence[Section]
) -> Answer:
    """What the sources show; `sections` are searched for warnings."""
    outcomes = [_run_outcome(group) for group in comparable(runs).values()]
    outcomes += [outcome for bench in benches for outcome in _bench_outcomes(bench)]
    if not outcomes:
        sentence, tiles = _untested(runs)
    elif len(outcomes) == 1:
        sentence, tiles = _sentence(outcomes[0]), _single_tiles(outcomes[0])
    else:
        sentence, tiles = _short_sentence(outcomes), _several_tiles(outcomes)
    return Answer(sentence, [*tiles, _verdict_tile(runs, sections)])


def _leading(methods: Sequence[str]) -> int:
    """The index of the method that the answer is about: sept, else the first that is no bound."""
    if "sept" in methods:
        return methods.index("sept")
    return next((n for n, method in enumerate(methods) if method not in BOUNDS), 0)


def _run_outcome(group: Sequence[Evaluated]) -> MethodResult:
    run, results = group[_leading([entry.run.method for entry in group])]
    summary = results.summary()
    family = results.family
    if results.instances != "test":
        family += f" ({results.instances})"
    outcome = _outcome(run.name, family, summary, summary["solved"])
    column = "total" if outcome.unit == "return" else COLUMNS[outcome.unit]
    gaps: dict[str, Difference] = {}
    for bound in BOUNDS:
        rival = next((entry for entry in group if entry.run.method == bound != run.method), None)
        gap = None if rival is None else paired_difference(results, rival.results, column)
        if gap is not None:
            gaps[bound] = gap
    return replace(outcome, gaps=gaps)


def _bench_outcomes(bench: BenchFolder) -> list[MethodResult]:
    """One per family, at the base of its first preset."""
    outcomes = []
    for study in studies(bench.rows):
        place = (study.family, study.preset, study.base)
        rows = [r for r in bench.summary if (r["family"], r["preset"], r["variant"]) == place]
        if not study.first or not rows:
            continue
        row = rows[_leading([row["method"] for row in rows])]
        solved = row["solved"]["mean"] if row["solved"] else None
        outcome = _outcome(row["method"], study.family, row, solved)
        gaps = {
            bound: Difference(gap["mean"], gap["low"], gap["high"])
            for bound in BOUNDS
            if (gap := row["against"].get(bound, {}).get(COLUMNS[outcome.unit])) is not None
        }
        outcomes.append(replace(outcome, gaps=gaps))
    return outcomes


def _outcome(method: str, family: str, summary: Statistics, solved: float | None) -> MethodResult:
    figures = (summary[name] for name in COLUMNS.values())
    return MethodResult(method, family, summary["episodes"], solved, *figures)


def _sentence(outcome: MethodResult) -> str:
    episodes = f"{plural(outcome.episodes, 'test episode')} of {outcome.family}"
    if outcome.solved is not None and outcome.steps is not None:
        start = (
            f"{outcome.method} solved {percent(outcome.solved)} of {episodes}, in "
            f"{number(outcome.steps['mean'])} steps on average"
        )
    elif outcome.score is not None:
        start = (
            f"{outcome.method} reached {percent(outcome.score['mean'])} of the achievable return "
            f"in {episodes}"
        )
    else:
        earned = number(outcome.total["mean"]) if outcome.total is not None else "–"
        start = f"{outcome.method} earned a mean return of {earned} in {episodes}"
    gaps = [_gap_words(bound, gap, outcome.unit) for bound, gap in outcome.gaps.items()]
    return f"{start}{': ' if gaps else ''}{' and '.join(gaps)}."


def _gap_words(bound: str, gap: Difference, unit: str) -> str:
    if gap.mean == 0:
        return f"the same as {bound}"
    size, more, less = short(abs(gap.mean)), "more", "less"
    if unit == "steps":
        less = "fewer"
    elif unit == "score":
        size = f"{percent(abs(gap.mean))} of the achievable return"
    return f"{size} {more if gap.mean > 0 else less} than {bound}"


def _short_sentence(outcomes: Sequence[MethodResult]) -> str:
    """All families in one sentence; the tiles hold the differences."""
    families: dict[str, list[str]] = {}
    method = outcomes[0].method
    for outcome in outcomes:
        if outcome.solved is not None:
            clause = f"solved {percent(outcome.solved)} of the test episodes of"
        elif outcome.score is not None:
            clause = f"reached {percent(outcome.score['mean'])} of the achievable return in"
        else:
            clause = f"earned a mean return of {outcome.effort} in"
        if outcome.method != method:
            clause = f"{outcome.method} {clause}"
        families.setdefault(clause, []).append(outcome.family)
    clauses = [f"{clause} {_listed(names)}" for clause, names in families.items()]
    return f"{method} {', and '.join(clauses)}."


def _listed(words: Sequence[str]) -> str:
    """One, two and three."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _single_tiles(outcome: MethodResult) -> list[Tile]:
    success = Tile("Solved", [("", outcome.success)], plural(outcome.episodes, "test episode"))
    if outcome.solved is None:
        note = "share of the achievable return" if outcome.score else "no reference return is known"
        success = Tile("Score", [("", outcome.success)], note)
    effort = Tile("Return", [("", outcome.effort)], "mean of the test episodes")
    if outcome.steps is not None:
        effort = Tile("Steps to solve", [("", outcome.effort)], "probe included")
    against = Tile("Against avg and oracle", [("", "–")], "not compared with avg or oracle")
    if outcome.gaps:
        lines = [(bound, f"{_signed(gap)} {outcome.unit}") for bound, gap in outcome.gaps.items()]
        bounds = [
            f"{bound} {number(gap.low)} … {number(gap.high)}"
            for bound, gap in outcome.gaps.items()
            if gap.low is not None
        ]
        note = f"95 % intervals: {', '.join(bounds)}" if bounds else ""
        against = Tile("Against avg and oracle", lines, note)
    return [success, effort, against]


def _several_tiles(outcomes: Sequence[MethodResult]) -> list[Tile]:
    """A line per family in each tile."""
    methods = {outcome.method for outcome in outcomes}
    success, effort, gaps = [], [], []
    for outcome in outcomes:
        name = outcome.family if len(methods) == 1 else f"{outcome.family}, {outcome.method}"
        solved, steps = outcome.solved, outcome.steps
        success.append((name, percent(solved) if solved is not None else _mean(outcome.score)))
        effort.append(
            (name, f"{_mean(steps)} steps" if steps else f"return {_mean(outcome.total)}")
        )
        differences = [outcome.gaps.get(bound) for bound in BOUNDS]
        gaps.append((name, " · ".join("–" if gap is None else _signed(gap) for gap in differences)))
    note = f"{' · '.join(BOUNDS)}; in steps, else in score, else in return"
    return [
        Tile("Solved, or score", success, "score: share of the achievable return"),
        Tile("Steps to solve, or return", effort, "steps include the probe"),
        Tile("Against avg and oracle", gaps, note),
    ]


def _mean(statistics: Statistics | None) -> str:
    return "–" if statistics is None else short(statistics["mean"])


def _untested(runs: Sequence[Run]) -> tuple[str, list[Tile]]:
    """What is known before any test episode: the estimate of `ope`, or nothing."""
    judged, name = next(((r.judged, r.name) for r in runs if r.judged is not None), (None, ""))
    if judged is None:
        names = " and ".join(run.name for run in runs) or "This bench"
        sentence = f"{names} {'have' if len(runs) > 1 else 'has'} no test episodes yet."
        earned = Tile("Steps or return", [("", "–")], "no test episodes")
    else:
        estimate = judged.estimators[judged.headline]
        sentence = (
            f"{name} has no test episodes; from logs alone its return is estimated at "
            f"{number(estimate.mean)}, and the logged episodes earned "
            f"{number(judged.logged_return)} (ope: {judged.verdict})."
        )
        earned = Tile(
            "Return, from logs",
            [("", number(estimate.mean))],
            f"{percent(judged.confidence)} interval: {number(estimate.low)} … "
            f"{number(estimate.high)}",
        )
    solved, against = (
        Tile(label, [("", "–")], "no test episodes")
        for label in ("Solved", "Against avg and oracle")
    )
    return sentence, [solved, earned, against]


def _verdict_tile(runs: Sequence[Run], sections: Sequence[Section]) -> Tile:
    """The verdicts of the fits, and how many warnings the page holds."""
    warnings = sum(
        isinstance(block, Note) and block.kind == "warning"
        for section in sections
        if section.name != "verdict"
        for block in section.blocks
    )
    counted = f"{plural(warnings, 'warning')} below" if warnings else "no warnings"
    verdicts = [(run.name, verdict) for run in runs if (verdict := fit_verdict(run)) is not None]
    kind = "warning" if warnings else "good"
    if not verdicts:
        return Tile("Warnings", [("", count(warnings) if warnings else "none")], "", kind)
    kinds = {KINDS[verdict] for _, verdict in verdicts} | {kind}
    worst = next(name for name in ("warning", "note", "good") if name in kinds)
    lines = verdicts if len(runs) > 1 else [("", verdicts[0][1])]
    return Tile("Verdict", lines, counted, worst)


def _signed(gap: Difference) -> str:
    return f"{'+' if gap.mean > 0 else ''}{short(gap.mean)}"


def fit_verdict(run: Run) -> str | None:
    """The verdict of the fit; None where the run has none."""
    verdict = run.record.get("verdict")
    return str(verdict) if verdict in KINDS else None


def verdicts(runs: Sequence[Run]) -> Section:
    """A line per run with its reasons; empty where no run has a verdict."""
    blocks: list[Block] = []
    for run in runs:
        verdict = fit_verdict(run)
        if verdict is not None:
            blocks.append(Note(f"{run.name}: {verdict}.", KINDS[verdict]))
            blocks += [Note(str(reason)) for reason in run.record.get("reasons") or []]
    return Section(
        "verdict",
        "Verdict",
        "Whether the agent is fit for use, estimated from the logs alone: shorter fits are "
        "compared in learned dynamics. Test episodes in a simulator, below, are better evidence.",
        blocks,
    )

"""The section on the logs: instances, returns, behaviour, coverage of segments, warnings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sept_offline.data import Dataset, inspect, validate
from sept_offline.data.summary import Summary
from sept_offline.errors import SeptError
from sept_offline.tools.bench.figures.figure import INSTANCES
from sept_offline.tools.report.charts import bars_plot, boxes_plot, label
from sept_offline.tools.report.page import (
    OPEN,
    Block,
    Chart,
    Facts,
    Heading,
    Note,
    Section,
    Table,
    count,
    distinct,
    number,
    percent,
    plural,
    shown_path,
)
from sept_offline.tools.report.sources import Run

CHECKED = 20_000_000
"""Most steps for which the page checks every number."""


def logs(runs: Sequence[Run]) -> Section:
    """One part per dataset and share of it, however many runs learned from it."""
    blocks: list[Block] = []
    seen: set[str] = set()
    known = {_learned(run) for run in runs if run.data is not None}
    for run in runs:
        if run.data is None:
            blocks.append(Note(f"{run.name}: {run.missing['data']}"))
        elif _learned(run) not in seen:
            seen.add(_learned(run))
            if len(known) > 1:
                names = ", ".join(other.name for other in runs if _learned(other) == _learned(run))
                blocks.append(Heading(f"{shown_path(str(run.data.path))} ({names})"))
            if held := _held_out(run):
                without = count(sum(end - first for first, end in held))
                blocks.append(Note(f"Without the {without} episodes held out by fit --hold-out."))
            steps = run.record["config"].get("probe_steps")
            blocks += _dataset(run.data, steps if isinstance(steps, int) else None, len(seen))
    return Section(
        "logged",
        "What was logged",
        "The episodes that everything below was learned from, separated by instance.",
        blocks,
    )


def _held_out(run: Run) -> list[list[int]]:
    """The ranges of episodes that were held out of its fit."""
    ranges: list[list[int]] = (run.record.get("held_out") or {}).get("episodes") or []
    return ranges


def _learned(run: Run) -> str:
    """What tells the episodes it learned from apart from those of other runs."""
    return f"{run.record.get('content_hash')} without {_held_out(run)}"


def _dataset(data: Dataset, probe_steps: int | None, place: int) -> list[Block]:
    try:
        summary = inspect(data, probe_steps)
    except SeptError as problem:
        return [Note(f"inspect: {problem}", "warning")]
    names = distinct(data.metadata.action_names or [str(a) for a in range(data.action_space.width)])
    return [
        _facts(summary),
        *_warnings(data, summary),
        _returns(data, summary, place),
        _behaviour(summary, names, place),
        _coverage(summary, place),
        _table(summary),
    ]


def _facts(summary: Summary) -> Facts:
    behaviours = ", ".join(f"{name} {count(n)}" for name, n in summary.behaviours.items() if n)
    known = summary.known_propensities
    return Facts(
        [
            ("instances", count(summary.instances)),
            ("episodes", count(summary.episodes)),
            ("steps", count(summary.steps)),
            ("observed columns", count(summary.observation_dim)),
            ("actions", _actions(summary)),
            ("mean return", number(summary.return_mean)),
            ("behaviour", behaviours or "not named"),
            ("probabilities logged", percent(known)),
            ("instance predicted from actions alone", _leak(summary)),
        ]
    )


def _actions(summary: Summary) -> str:
    if summary.num_actions is not None:
        return count(summary.num_actions)
    return f"vectors of {plural(len(summary.action_space['names']), 'number')}"


def _leak(summary: Summary) -> str:
    if summary.leak is None:
        return "–"
    return f"{percent(summary.leak.accuracy)} (chance: {percent(summary.leak.chance)})"


def _warnings(data: Dataset, summary: Summary) -> list[Block]:
    blocks: list[Block] = [Note(text, "warning") for text in summary.warnings]
    if data.num_steps > CHECKED:
        steps = count(data.num_steps)
        return [*blocks, Note(f"{steps} steps were not checked: run sept-offline validate.")]
    try:
        report = validate(data.path, summary.probe_steps)
    except SeptError as error:
        return [*blocks, Note(f"validate: {error}", "warning")]
    for problem in (*report.errors, *report.warnings):
        where = f"{problem.message} ({problem.where}; {count(problem.count)} in all)"
        blocks.append(Note(f"validate: {where}", "warning"))
    if not report.problems and not summary.warnings:
        blocks.append(Note("No warnings from validate and inspect.", "good"))
    return blocks


def _returns(data: Dataset, summary: Summary, place: int) -> Chart:
    index = data.episode_index
    first = np.cumsum(index.length) - index.length
    totals = np.add.reduceat(data.columns("rewards")["rewards"], first)
    codes = [data.instances.index(row.instance) for row in summary.table]
    return Chart(
        f"returns-{place}",
        "Returns of the logged episodes",
        "Boxes: the middle half of an instance's episodes. Whiskers: the smallest and the largest "
        "return.",
        boxes_plot(
            [row.instance for row in summary.table],
            [totals[index.instance == code] for code in codes],
            "instance",
            "return of an episode",
        ),
    )


def _behaviour(summary: Summary, actions: Sequence[str], place: int) -> Chart:
    instances = [label(name) for name in distinct([row.instance for row in summary.table])]
    vectors = summary.num_actions is None
    about = "Share of each action in all logged steps of an instance."
    if vectors:
        about = "Mean of each component of the actions in all logged steps of an instance."
    values = {
        name: [(row.action_frequencies or row.action_means)[place] for row in summary.table]
        for place, name in enumerate(actions)
    }
    colours = [INSTANCES[place % len(INSTANCES)] for place in range(len(actions))]
    return Chart(
        f"behaviour-{place}",
        "Actions of the behaviour",
        about,
        bars_plot(
            instances,
            values,
            "instance",
            "mean" if vectors else "share of steps",
            colours,
            stacked=not vectors,
            height=280,
        ),
    )


def _coverage(summary: Summary, place: int) -> Chart:
    steps = plural(summary.probe_steps, "step")
    if summary.num_actions is None:
        about = f"Share of the range of the actions that occurs in the first {steps}."
    else:
        about = (
            f"Distinct action sequences among the first {steps}, out of all "
            f"{count(summary.num_actions)}^{summary.probe_steps} possible ones."
        )
    return Chart(
        f"coverage-{place}",
        "Coverage of initial segments",
        f"{about} A probe can be evaluated only on actions that were logged.",
        bars_plot(
            [label(name) for name in distinct([row.instance for row in summary.table])],
            {"coverage": [row.coverage for row in summary.table]},
            "instance",
            "coverage",
            ["#009E73"],
            height=240,
        ),
    )


def _table(summary: Summary) -> Table:
    columns = ("instance", "episodes", "steps", "return", "lowest", "highest", "length", "ended")
    rows = [
        (
            row.instance,
            count(row.episodes),
            count(row.steps),
            number(row.return_mean),
            number(row.return_min),
            number(row.return_max),
            number(row.length_mean),
            percent(row.terminated),
        )
        for row in summary.table
    ]
    return Table(
        "Instances",
        columns,
        rows,
        note="Return and length: means over episodes. Ended: share that terminated, not truncated.",
        folded=len(rows) > OPEN,
    )

"""What was logged: instances, returns, coverage of initial segments, behaviour, warnings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sept_offline.bench.figures.look import INSTANCES
from sept_offline.data import Dataset, inspect, validate
from sept_offline.data.summary import Summary
from sept_offline.errors import SeptError
from sept_offline.report.blocks import Block, Chart, Facts, Heading, Note, Section, Table
from sept_offline.report.charts import bars_chart, boxes_chart, label
from sept_offline.report.sources import Run
from sept_offline.report.text import count, distinct, figure, percent, plural, shown_path

CHECKED = 20_000_000
"""Steps up to which every number is checked while one waits for the page."""
OPEN = 12
"""Rows up to which a table starts open."""


def logged(runs: Sequence[Run]) -> Section:
    """A part a dataset, however many runs learned from it."""
    blocks: list[Block] = []
    seen: set[str] = set()
    known = {run.data.content_hash for run in runs if run.data is not None}
    for run in runs:
        if run.data is None:
            blocks.append(Note(f"{run.name}: {run.missing['data']}"))
        elif run.data.content_hash not in seen:
            seen.add(run.data.content_hash)
            if len(known) > 1:
                blocks.append(Heading(shown_path(str(run.data.path))))
            if run.record.get("held_out"):
                share = percent(run.record["held_out"].get("share"))
                blocks.append(Note(f"Without the {share} that fit --hold-out kept back."))
            blocks += _dataset(run.data, run.record["config"].get("probe_steps"), len(seen))
    return Section(
        "logged",
        "What was logged",
        "The episodes that everything below was learned from, separated by instance.",
        blocks,
    )


def _dataset(data: Dataset, probe_steps: int | None, number: int) -> list[Block]:
    try:
        found = inspect(data, probe_steps)
    except SeptError as problem:
        return [Note(f"inspect: {problem}", "warning")]
    names = distinct(data.metadata.action_names or [str(a) for a in range(data.num_actions)])
    return [
        _facts(found),
        *_warnings(data, found),
        _returns(data, found, number),
        _behaviour(found, names, number),
        _coverage(found, number),
        _table(found),
    ]


def _facts(found: Summary) -> Facts:
    behaviours = ", ".join(f"{name} {count(n)}" for name, n in found.behaviours.items() if n)
    known = found.known_propensities
    return Facts(
        [
            ("instances", count(found.instances)),
            ("episodes", count(found.episodes)),
            ("steps", count(found.steps)),
            ("observed columns", count(found.observation_dim)),
            ("actions", count(found.num_actions)),
            ("mean return", figure(found.return_mean)),
            ("behaviour", behaviours or "not named"),
            ("probabilities logged", percent(known)),
            ("told by actions alone", _leak(found)),
        ]
    )


def _leak(found: Summary) -> str:
    if found.leak is None:
        return "–"
    return f"{percent(found.leak.accuracy)} (chance {percent(found.leak.chance)})"


def _warnings(data: Dataset, found: Summary) -> list[Block]:
    blocks: list[Block] = [Note(text, "warning") for text in found.warnings]
    if data.num_steps > CHECKED:
        steps = count(data.num_steps)
        return [*blocks, Note(f"{steps} steps are many: sept-offline validate checks them.")]
    try:
        report = validate(data.path, found.probe_steps)
    except SeptError as problem:
        return [*blocks, Note(f"validate: {problem}", "warning")]
    for one in (*report.errors, *report.warnings):
        where = f"{one.message} ({one.where}; {count(one.count)} in all)"
        blocks.append(Note(f"validate: {where}", "warning"))
    if not report.problems and not found.warnings:
        blocks.append(Note("validate and inspect have nothing to warn of.", "good"))
    return blocks


def _returns(data: Dataset, found: Summary, number: int) -> Chart:
    index = data.episode_index
    first = np.cumsum(index.length) - index.length
    totals = np.add.reduceat(data.columns("rewards")["rewards"], first)
    codes = [data.instances.index(row.instance) for row in found.table]
    figure_ = boxes_chart(
        [row.instance for row in found.table],
        [totals[index.instance == code] for code in codes],
        "instance",
        "return of an episode",
    )
    return Chart(
        f"returns-{number}",
        "Returns of the logged episodes",
        "Boxes hold the middle half of an instance's episodes, whiskers reach the least and the "
        "greatest.",
        figure_,
    )


def _behaviour(found: Summary, actions: Sequence[str], number: int) -> Chart:
    instances = [label(name) for name in distinct([row.instance for row in found.table])]
    shares = {
        name: [row.action_frequencies[place] for row in found.table]
        for place, name in enumerate(actions)
    }
    colours = [INSTANCES[place % len(INSTANCES)] for place in range(len(actions))]
    return Chart(
        f"behaviour-{number}",
        "Actions of the behaviour",
        "Share of each action in all logged steps of an instance.",
        bars_chart(
            instances, shares, "instance", "share of steps", colours, stacked=True, height=280
        ),
    )


def _coverage(found: Summary, number: int) -> Chart:
    steps = plural(found.probe_steps, "step")
    return Chart(
        f"coverage-{number}",
        "Coverage of initial segments",
        f"Distinct action sequences among the first {steps}, out of all "
        f"{count(found.num_actions)}^{found.probe_steps} there are. A probe can only be judged on "
        "what was tried.",
        bars_chart(
            [label(name) for name in distinct([row.instance for row in found.table])],
            {"coverage": [row.coverage for row in found.table]},
            "instance",
            "share of sequences",
            ["#009E73"],
            height=240,
        ),
    )


def _table(found: Summary) -> Table:
    columns = ("instance", "episodes", "steps", "return", "least", "greatest", "length", "ended")
    rows = [
        (
            row.instance,
            count(row.episodes),
            count(row.steps),
            figure(row.return_mean),
            figure(row.return_min),
            figure(row.return_max),
            figure(row.length_mean),
            percent(row.terminated),
        )
        for row in found.table
    ]
    return Table(
        "Instances",
        columns,
        rows,
        note="Return and length are means of episodes; ended: terminated, not cut.",
        folded=len(rows) > OPEN,
    )

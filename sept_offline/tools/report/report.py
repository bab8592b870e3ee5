"""A report: one page from runs and benches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sept_offline.progress import Progress, Silent
from sept_offline.tools.bench.figures.figure import ordered, style_of
from sept_offline.tools.report.answer import answer, verdicts
from sept_offline.tools.report.charts import ink
from sept_offline.tools.report.comparison import bench_blocks, comparison
from sept_offline.tools.report.episodes import episodes, run_colour
from sept_offline.tools.report.logs import logs
from sept_offline.tools.report.page import (
    Block,
    Note,
    Page,
    Section,
    check_installed,
    shown_path,
    write,
)
from sept_offline.tools.report.provenance import provenance
from sept_offline.tools.report.sources import BenchFolder, Run, close, read_sources
from sept_offline.tools.report.stages import stages

ALONE = "Give several runs, or a bench, to compare them here."
NOTHING = "There is nothing to show."
NO_LOGS = "A bench names its logs by content hash, under How it was made."

SECTIONS = (logs, stages, episodes, comparison)
"""The sections on runs, in the order of the page; how it was made comes last."""


def write_report(
    sources: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    dataset: str | Path | None = None,
    progress: Progress | None = None,
) -> int:
    """Write one HTML page about runs (of `fit`) and benches; returns its size in bytes.

    A run is shown with its logs, if they are still where they were (`dataset` names their new
    place), and with its last evaluation. What is missing leaves one line that says how to get it.
    """
    check_installed()
    runs, benches = read_sources([Path(source) for source in sources], dataset)
    try:
        return write(build(runs, benches, progress or Silent()), Path(out))
    finally:
        close(runs)


def build(runs: Sequence[Run], benches: Sequence[BenchFolder], progress: Progress) -> Page:
    """The page, section by section; an empty section keeps its title and one line."""
    progress.start("report", len(SECTIONS) + 1, "sections")
    added = bench_blocks(benches) | {"logged": [] if runs else [Note(NO_LOGS)]}
    progress.update(1)
    sections = []
    for make_section in SECTIONS:
        section = make_section(runs)
        sections.append(_with(section, added.get(section.name, [])))
        progress.update(1 + len(sections))
    progress.finish()
    sections.append(provenance(runs, benches))
    fit_verdicts = verdicts(runs)
    if fit_verdicts.blocks:
        sections.insert(0, fit_verdicts)
    return Page(
        title=_title(runs, benches),
        subtitle=_subtitle(runs, benches),
        answer=answer(runs, benches, sections),
        sections=[s if s.blocks else _with(s, [Note(_empty(s))]) for s in sections],
        methods=_methods(runs, benches),
    )


def _empty(section: Section) -> str:
    return ALONE if section.name == "against" else NOTHING


def _with(section: Section, blocks: Sequence[Block]) -> Section:
    return replace(section, blocks=[*section.blocks, *blocks])


def _title(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> str:
    names = [run.record.get("family") or "own logs" for run in runs]
    names += [row["family"] for bench in benches for row in bench.rows.cells]
    return f"sept-offline · {', '.join(dict.fromkeys(str(name) for name in names))}"


def _subtitle(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> str:
    parts = [
        f"run {shown_path(run.path)} ({run.method}, seed {run.record['seed']})" for run in runs
    ]
    parts += [f"bench {shown_path(b.path)} ({len(b.rows.cells)} cells)" for b in benches]
    return " · ".join(parts)


def _methods(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> list[tuple[str, str, str]]:
    """What the switches at the top of the page show and hide; a single method needs none."""
    switches = {run.name: (run.name, run_colour(run, runs)) for run in runs if run.results}
    for method in ordered(row["method"] for bench in benches for row in bench.rows.cells):
        style = style_of(method)
        switches.setdefault(method, (style.title, style.colour))
    if len(switches) < 2:
        return []
    return [(key, title, ink(colour)) for key, (title, colour) in switches.items()]

"""From runs and benches to one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sept_offline.bench.figures.look import look, ordered
from sept_offline.progress import Progress, Silent
from sept_offline.report.against import against
from sept_offline.report.benched import bench_sections
from sept_offline.report.blocks import Block, Note, Page, Section
from sept_offline.report.charts import colour_of
from sept_offline.report.episodes import episodes, run_colour
from sept_offline.report.learned import learned
from sept_offline.report.logged import logged
from sept_offline.report.made import made
from sept_offline.report.page import check_installed, write
from sept_offline.report.sources import BenchFolder, Run, close, read_sources
from sept_offline.report.text import shown_path
from sept_offline.report.verdicts import verdicts

ALONE = "With several runs, or with a bench, they stand beside each other here."
NOTHING = "There is nothing to show."
NO_LOGS = "A bench names its logs by their content, under How it was made."

SECTIONS = (logged, learned, episodes, against)
"""What runs show, in the order of the page; how it was made comes last."""


def write_report(
    sources: Sequence[str | Path],
    out: str | Path = "report.html",
    *,
    dataset: str | Path | None = None,
    progress: Progress | None = None,
) -> int:
    """Write one HTML page of runs (of `fit`) and benches; the bytes it has.

    A run is shown with its logs where they are still to be found (`dataset` says where they have
    moved) and with its last evaluation, if there was one. What is missing leaves one line behind.
    """
    check_installed()
    runs, benches = read_sources([Path(one) for one in sources], dataset)
    try:
        return write(build(runs, benches, progress or Silent()), Path(out))
    finally:
        close(runs)


def build(runs: Sequence[Run], benches: Sequence[BenchFolder], progress: Progress) -> Page:
    """The page, section by section; an empty one keeps its title and one line."""
    progress.start("report", len(SECTIONS) + 1, "sections")
    added = bench_sections(benches) | {"logged": [] if runs else [Note(NO_LOGS)]}
    progress.update(1)
    parts = []
    for section in SECTIONS:
        own = section(runs)
        parts.append(_with(own, added.get(own.name, [])))
        progress.update(1 + len(parts))
    progress.finish()
    parts.append(made(runs, benches))
    first = verdicts(runs)
    if first.blocks:
        parts.insert(0, first)
    return Page(
        title=_title(runs, benches),
        subtitle=_subtitle(runs, benches),
        sections=[part if part.blocks else _with(part, [Note(_empty(part))]) for part in parts],
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
    said = [f"run {shown_path(run.path)} ({run.method}, seed {run.record['seed']})" for run in runs]
    said += [f"bench {shown_path(bench.path)} ({len(bench.rows.cells)} cells)" for bench in benches]
    return " · ".join(said)


def _methods(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> list[tuple[str, str, str]]:
    """What the switches at the top of the page show and hide; fewer than two need none."""
    found = [(run.name, run.name, run_colour(run, runs)) for run in runs if run.results is not None]
    for method in ordered(row["method"] for bench in benches for row in bench.rows.cells):
        if method not in [key for key, *_ in found]:
            found.append((method, look(method).name, colour_of(method)))
    return found if len(found) > 1 else []

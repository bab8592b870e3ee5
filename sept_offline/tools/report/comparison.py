"""Comparisons: runs by one table and paired differences, benches by their tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sept_offline.errors import one_line
from sept_offline.evaluation import Results
from sept_offline.seeding import generator
from sept_offline.tools.bench.figures import catalogue
from sept_offline.tools.bench.figures.figure import Missing, Picture
from sept_offline.tools.bench.summary import NOTE, make_tables, unlike
from sept_offline.tools.report.charts import plot
from sept_offline.tools.report.page import (
    Block,
    Chart,
    Heading,
    Note,
    Section,
    Table,
    count,
    interval,
    number,
    percent,
    shown_path,
    with_error,
)
from sept_offline.tools.report.sources import BenchFolder, Evaluated, Run, comparable

RESAMPLES = 4000
FIELDS = (("steps_to_solve", "steps"), ("total", "return"), ("normalised", "share"))


LEARNED = ("training", "probe", "latent")
AGAINST = ("against", "reward-ablations", "solved-ablations")
TITLES = {
    "reward-baselines": "Cumulative reward",
    "reward-ablations": "Cumulative reward, ablations",
    "reward-switch": "Cumulative reward, the 2D switch",
    "solved-baselines": "Percent solved",
    "solved-ablations": "Percent solved, ablations",
    "solved-switch": "Percent solved, the 2D switch",
    "training": "Training",
    "probe": "The probe's reward",
    "latent-beta": "The latent plane for several β",
    "latent-hidden": "The latent plane by hidden parameter",
    "latent": "The latent plane",
}
"""Beginning of a figure's name → title; the longest match counts."""


@dataclass(frozen=True)
class Difference:
    """A mean difference over shared instances and its 95 % interval, if there are two or more."""

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        """−26.6 [−31.1, −22.7]."""
        return interval(self.mean, self.low, self.high)


def comparison(runs: Sequence[Run]) -> Section:
    """Runs that are comparable, if there are two or more; else nothing."""
    blocks: list[Block] = []
    for (family, split, limit), group in comparable(runs).items():
        if len(group) > 1:
            title = f"{family} · {split} · at most {limit} steps"
            blocks += [_table(group, title), *_differences(group, family)]
    if len(runs) > 1 and not blocks:
        line = "No two of these runs were evaluated in the same instances with the same limit."
        blocks.append(Note(line))
    return Section(
        "against",
        "Against others",
        "All methods in the same instances. The paper trains online, in the simulator; the "
        "methods here learn from logs only.",
        blocks,
    )


def paired_difference(results: Results, other: Results, field: str) -> Difference | None:
    """`results` minus `other`, instance by instance; None where they share no instance."""
    left, right = results.by_instance(field), other.by_instance(field)
    gaps = np.array(
        [
            float(value) - float(beside)
            for instance, value in left.items()
            if value is not None and (beside := right.get(instance)) is not None
        ]
    )
    if not len(gaps):
        return None
    if len(gaps) < 2:
        return Difference(float(gaps.mean()), None, None)
    size = (RESAMPLES, len(gaps))
    draws = generator(0, "report", "differences").integers(len(gaps), size=size)
    low, high = np.percentile(gaps[draws].mean(axis=1), (2.5, 97.5))
    return Difference(float(gaps.mean()), float(low), float(high))


def _table(group: Sequence[Evaluated], title: str) -> Table:
    rows = []
    for run, results in group:
        summary = results.summary()
        published = run.family.published.get(run.method) if run.family is not None else None
        rows.append(
            (
                run.name,
                ", ".join(summary["needs"]) or "–",
                "yes" if summary["learns"] else "–",
                count(summary["episodes"]),
                percent(summary["solved"]),
                *(with_error(summary[key]) for key in ("steps_to_solve", "return", "normalised")),
                number(published),
                f"{summary['act_microseconds']:.0f}",
            )
        )
    columns = ["method", "needs", "learns", "episodes", "solved", "steps", "return"]
    columns += ["share", "paper's steps", "µs"]
    return Table(
        title,
        columns,
        rows,
        note="± is the standard error over instances. Steps: to solve, or the limit where an "
        "episode was not solved. Share: of the achievable return; 0 is a random agent, 1 the best "
        "known return in that instance. Needs: what the agent gets besides observations. Learns: "
        "whether it takes gradient steps during the episode. µs: time of the agent per action.",
    )


def _differences(group: Sequence[Evaluated], family: str) -> list[Block]:
    """Each run against the first, instance by instance."""
    first, *others = group
    rows = []
    for run, results in others:
        gaps = [paired_difference(results, first.results, field) for field, _ in FIELDS]
        cells = ["–" if gap is None else str(gap) for gap in gaps]
        rows.append((f"{run.name} − {first.run.name}", *cells))
    kept = [n for n in range(len(FIELDS)) if any(row[n + 1] != "–" for row in rows)]
    if not kept:
        return []
    return [
        Table(
            f"{family}: differences, paired by instance",
            ("runs", *(FIELDS[n][1] for n in kept)),
            [(row[0], *(row[n + 1] for n in kept)) for row in rows],
            note="Brackets are 95 % bootstrap intervals over instances, for these agents. They do "
            "not include the variation between training seeds; a bench does.",
        )
    ]


def bench_blocks(benches: Sequence[BenchFolder]) -> dict[str, list[Block]]:
    """The blocks that benches add to each section of a page."""
    sections: dict[str, list[Block]] = {"learned": [], "episodes": [], "against": []}
    for place, bench in enumerate(benches):
        figures = catalogue(bench.rows)
        for section, blocks in sections.items():
            added: list[Block] = [
                _chart(figure, place)
                for figure in figures
                if isinstance(figure, Picture) and section_of(figure.name) == section
            ]
            if section == "against":
                added = [*_bench_tables(bench), *added, *_missing(figures)]
            if added and len(benches) > 1:
                blocks.append(Heading(shown_path(bench.path)))
            blocks += added
    if benches:
        line = "A bench keeps no observations: its episodes cannot be played, those of a run can."
        sections["episodes"].append(Note(line))
    return sections


def section_of(name: str) -> str:
    """The section of the page that contains a figure."""
    if name.startswith(LEARNED):
        return "learned"
    return "against" if name.startswith(AGAINST) else "episodes"


def _chart(picture: Picture, place: int) -> Chart:
    matches = [start for start in TITLES if picture.name.startswith(f"{start}-")]
    title = TITLES[max(matches, key=len)] if matches else "Score along an axis"
    return Chart(
        f"bench-{place}-{picture.name}",
        f"{title} · {picture.figure.title}",
        picture.caption,
        plot(picture.figure),
    )


def _bench_tables(bench: BenchFolder) -> list[Block]:
    return [
        *(Note(text, "warning") for text in unlike(bench.rows.cells)),
        *(Table(table.title, table.columns, table.rows) for table in make_tables(bench.summary)),
        Note(one_line(NOTE)),
    ]


def _missing(figures: Sequence[Picture | Missing]) -> list[Block]:
    lines = [f"{f.kind}, {f.family}: {f.wants}" for f in figures if isinstance(f, Missing)]
    return [Note(f"Not drawn for lack of data: {'; '.join(lines)}.")] if lines else []

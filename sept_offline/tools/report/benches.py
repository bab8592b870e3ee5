"""A bench on a page: its tables and figures, drawn from what it has kept."""

from __future__ import annotations

from collections.abc import Sequence

from sept_offline.tools.bench.figures.catalogue import catalogue
from sept_offline.tools.bench.figures.figure import Missing, Picture
from sept_offline.tools.bench.summary import unlike
from sept_offline.tools.bench.tables import NOTE, make_tables
from sept_offline.tools.report.blocks import Block, Chart, Heading, Note, Table
from sept_offline.tools.report.charts import plot
from sept_offline.tools.report.sources import BenchFolder
from sept_offline.tools.report.text import shown_path

LEARNED = ("training", "probe", "latent")
AGAINST = ("against", *(f"{kind}-ablations" for kind in ("reward", "solved")))
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
                added = [*_tables(bench), *added, *_missing(figures)]
            if added and len(benches) > 1:
                blocks.append(Heading(shown_path(bench.path)))
            blocks += added
    if benches:
        line = "A bench keeps no observations: its episodes cannot be played, those of a run can."
        sections["episodes"].append(Note(line))
    return sections


def section_of(name: str) -> str:
    """The section of the page in which a figure stands."""
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


def _tables(bench: BenchFolder) -> list[Block]:
    return [
        *(Note(text, "warning") for text in unlike(bench.rows.cells)),
        *(Table(table.title, table.columns, table.rows) for table in make_tables(bench.summary)),
        Note(" ".join(NOTE.split())),
    ]


def _missing(figures: Sequence[Picture | Missing]) -> list[Block]:
    lines = [f"{f.kind}, {f.family}: {f.wants}" for f in figures if isinstance(f, Missing)]
    return [Note(f"Not drawn for lack of data: {'; '.join(lines)}.")] if lines else []

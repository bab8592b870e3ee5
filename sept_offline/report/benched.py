"""A bench as sections: its tables and figures, from what it has kept; nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence

from sept_offline.bench.figures.catalogue import Missing, Picture, catalogue
from sept_offline.bench.summary import summarise_rows, unlike
from sept_offline.bench.tables import NOTE, make_tables
from sept_offline.report.blocks import Block, Chart, Heading, Note, Table
from sept_offline.report.pictures import picture
from sept_offline.report.sources import BenchFolder
from sept_offline.report.text import shown_path

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
"""By how a figure's name begins; the longest that fits."""


def bench_sections(benches: Sequence[BenchFolder]) -> dict[str, list[Block]]:
    """The blocks that benches add to each section of a page."""
    found: dict[str, list[Block]] = {"learned": [], "episodes": [], "against": []}
    for place, bench in enumerate(benches):
        drawn = catalogue(bench.rows)
        for kind, blocks in found.items():
            own: list[Block] = [
                _chart(one, place)
                for one in drawn
                if isinstance(one, Picture) and section_of(one.name) == kind
            ]
            if kind == "against":
                own = [*_tables(bench), *own, *_missing(drawn)]
            if own and len(benches) > 1:
                blocks.append(Heading(shown_path(bench.path)))
            blocks += own
    if benches:
        line = "A bench keeps no observations, so that its episodes cannot be played: a run can."
        found["episodes"].append(Note(line))
    return found


def section_of(name: str) -> str:
    """Where a figure belongs on the page."""
    if name.startswith(LEARNED):
        return "learned"
    return "against" if name.startswith(AGAINST) else "episodes"


def _chart(one: Picture, place: int) -> Chart:
    fits = [start for start in TITLES if one.name.startswith(f"{start}-")]
    title = TITLES[max(fits, key=len)] if fits else "Along an axis"
    shown = getattr(one.content, "title", "")
    return Chart(
        f"bench-{place}-{one.name}", f"{title} · {shown}", one.caption, picture(one.content)
    )


def _tables(bench: BenchFolder) -> list[Block]:
    rows = bench.rows
    tables = make_tables(summarise_rows(rows.results, rows.cells, rows.latents))
    warned = [Note(text, "warning") for text in unlike(rows.cells)]
    return [
        *warned,
        *(Table(one.title, one.columns, one.rows) for one in tables),
        Note(" ".join(NOTE.split())),
    ]


def _missing(drawn: Sequence[Picture | Missing]) -> list[Block]:
    lines = [f"{one.kind}, {one.family}: {one.wants}" for one in drawn if isinstance(one, Missing)]
    return [Note(f"Not drawn, for want of data: {'; '.join(lines)}.")] if lines else []

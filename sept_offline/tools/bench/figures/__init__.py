"""The figures of a bench, drawn from its four tables; nothing is trained for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sept_offline.files import refuse_links, write_text
from sept_offline.tools.bench.figures.axes import axis_pictures
from sept_offline.tools.bench.figures.curves import SWITCH, episode_pictures, training_pictures
from sept_offline.tools.bench.figures.figure import Missing, Picture
from sept_offline.tools.bench.figures.paper import (
    INSTALL,
    can_draw,
    check_matplotlib,
    draw,
    save,
    style,
)
from sept_offline.tools.bench.figures.plane import BETA_FAMILY, plane_pictures
from sept_offline.tools.bench.figures.rows import Bench, read_bench, studies
from sept_offline.tools.bench.store import UNSAFE

__all__ = ["INSTALL", "Drawn", "can_draw", "draw_figures"]


FOLDER = "figures"
INDEX = "figures.md"
KINDS = (episode_pictures, training_pictures, plane_pictures, axis_pictures)
"""In the order in which the index shows them."""


def catalogue(bench: Bench) -> list[Picture | Missing]:
    """All figures in the order in which the index shows them; nothing is drawn yet."""
    entries: list[Picture | Missing] = []
    known = studies(bench)
    for study in known:
        figures = [entry for kind in KINDS for entry in kind(study)]
        # Other presets rarely run everything, so what they lack is not reported.
        entries += [entry for entry in figures if study.first or isinstance(entry, Picture)]
    families = {study.family for study in known}
    for kind, family in (("switch", SWITCH), ("latent-beta", BETA_FAMILY)):
        if family not in families:
            entries.append(Missing(kind, family, f"the family {family}"))
    return entries


@dataclass(frozen=True)
class Drawn:
    """The names of the figures on disk, and the figures that had no data."""

    names: tuple[str, ...]
    missing: tuple[Missing, ...]
    families: frozenset[str]

    @property
    def left_out(self) -> str:
        """One line about figures without data; empty where all were drawn."""
        kinds: dict[str, list[str]] = {}
        for figure in self.missing:
            kinds.setdefault(figure.kind, []).append(figure.family)
        names = ", ".join(
            kind if self.families <= set(where) else f"{kind} ({', '.join(where)})"
            for kind, where in kinds.items()
        )
        return f"Not drawn for lack of data: {names}." if names else ""


def draw_figures(out: Path) -> Drawn:
    """Draw all that the tables in `out` have data for, into OUT/figures, and index them."""
    check_matplotlib()
    refuse_links(out, [FOLDER])
    pictures, missing = [], []
    bench = read_bench(out)
    for entry in catalogue(bench):
        if isinstance(entry, Missing):
            missing.append(entry)
        else:
            # Tables name the families: a name must not become a path.
            pictures.append(replace(entry, name=UNSAFE.sub("_", entry.name)))
    with style():
        for picture in pictures:
            save(draw(picture.figure), out / FOLDER / picture.name)
    write_text(out / INDEX, index(pictures, missing))
    families = frozenset(row["family"] for row in bench.cells)
    return Drawn(tuple(picture.name for picture in pictures), tuple(missing), families)


def index(pictures: list[Picture], missing: list[Missing]) -> str:
    """All figures with their captions, as one page."""
    lines = ["# Figures", "", "Drawn from the tables of this folder, without training.", ""]
    for picture in pictures:
        path = f"{FOLDER}/{picture.name}"
        lines += [
            f"![{picture.name}]({path}.png)",
            "",
            f"{picture.caption} ([SVG]({path}.svg))",
            "",
        ]
    if missing:
        lines += ["Not drawn for lack of data:", ""]
        lines += [f"- {figure.kind}-{figure.family}: needs {figure.wants}" for figure in missing]
        lines.append("")
    return "\n".join(lines)

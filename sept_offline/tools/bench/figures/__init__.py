"""The figures of a bench, drawn from its four tables; nothing is trained for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sept_offline.files import refuse_links, write_text
from sept_offline.tools.bench.figures.catalogue import Missing, Picture, catalogue
from sept_offline.tools.bench.figures.paper import FORMATS, INSTALL, can_draw, check_matplotlib
from sept_offline.tools.bench.figures.rows import read_bench
from sept_offline.tools.bench.store import UNSAFE

__all__ = ["FOLDER", "FORMATS", "INSTALL", "Drawn", "can_draw", "draw_figures"]

FOLDER = "figures"
INDEX = "figures.md"


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
    from sept_offline.tools.bench.figures.paper import save, style

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
            save(picture.draw(), out / FOLDER / picture.name)
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

"""The figures of a bench, drawn from its four tables; nothing is trained for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sept_offline.bench.figures.canvas import FORMATS, INSTALL, can_draw, check_matplotlib
from sept_offline.bench.figures.catalogue import Missing, Picture, catalogue
from sept_offline.bench.figures.rows import read_bench
from sept_offline.bench.store import UNSAFE
from sept_offline.files import refuse_links, write_text

__all__ = ["FOLDER", "FORMATS", "INSTALL", "Drawn", "can_draw", "draw_figures"]

FOLDER = "figures"
INDEX = "figures.md"


@dataclass(frozen=True)
class Drawn:
    """The names of the figures that are on disk now, and of those that had no data."""

    names: tuple[str, ...]
    missing: tuple[Missing, ...]
    families: frozenset[str]

    @property
    def left_out(self) -> str:
        """One line on those that had none; empty where all were drawn."""
        kinds: dict[str, list[str]] = {}
        for one in self.missing:
            kinds.setdefault(one.kind, []).append(one.family)
        names = ", ".join(
            kind if self.families <= set(where) else f"{kind} ({', '.join(where)})"
            for kind, where in kinds.items()
        )
        return f"Not drawn, for want of data: {names}." if names else ""


def draw_figures(out: Path) -> Drawn:
    """Draw all that the tables in `out` have data for, into OUT/figures, and index them."""
    check_matplotlib()
    refuse_links(out, [FOLDER])
    from sept_offline.bench.figures.canvas import save, style

    pictures, missing = [], []
    bench = read_bench(out)
    for found in catalogue(bench):
        if isinstance(found, Missing):
            missing.append(found)
        else:
            # Named after what stands in the tables: a name is never a path.
            pictures.append(replace(found, name=UNSAFE.sub("_", found.name)))
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
        lines += ["Not drawn, for want of data:", ""]
        lines += [f"- {one.kind}-{one.family}: needs {one.wants}" for one in missing]
        lines.append("")
    return "\n".join(lines)

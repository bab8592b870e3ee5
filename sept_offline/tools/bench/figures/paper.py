"""Figures on paper: drawn with matplotlib, 8 cm wide, in files whose bytes repeat."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sept_offline.errors import ConfigError, one_line
from sept_offline.files import write_atomically
from sept_offline.limits import check_regular
from sept_offline.tools.bench.figures.figure import Dots, Figure, Intervals, Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure as Sheet

INSTALL = 'Figures need matplotlib, which is not installed: pip install "sept-offline[report]".'
FORMATS = ("png", "svg")
CENTIMETRE = 1 / 2.54
WIDTH = 8.0
"""Width of a figure in centimetres: a column of a paper."""
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0.0, (4.0, 1.5)),
    "short": (0.0, (2.0, 0.8)),
    "dotted": (0.0, (1.0, 1.2)),
    "chained": (0.0, (5.0, 1.2, 1.0, 1.2)),
}
SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "cross": "P",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
}
STYLE: dict[str, Any] = {
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.0,
    "legend.handletextpad": 0.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.1,
    "savefig.dpi": 300,
    # Ids of SVG elements are drawn from this instead of at random.
    "svg.hashsalt": "sept-offline",
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Raise if matplotlib is missing, or cannot read its settings in the current folder."""
    if not can_draw():
        raise ConfigError(INSTALL)
    settings = Path("matplotlibrc")
    if settings.exists() and not settings.is_dir():
        check_regular(settings, ConfigError)
    try:
        import matplotlib  # noqa: F401
    except ValueError as problem:
        raise ConfigError(
            f"Matplotlib cannot read {settings} in this folder: {one_line(problem)}."
        ) from problem


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our settings on matplotlib's defaults; the user's settings are restored afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def draw(figure: Figure) -> Sheet:
    """The figure as matplotlib draws it."""
    sheet, panels = _panels(figure)
    coloured: PathCollection | None = None
    for axes, panel in zip(panels, figure.panels, strict=True):
        _apply_scales(axes, panel)
        for mark in panel.marks:
            if isinstance(mark, Line):
                _draw_line(axes, mark)
            elif isinstance(mark, Intervals):
                _draw_intervals(axes, mark)
            else:
                dots = _draw_dots(axes, mark)
                if mark.values is not None:
                    coloured = dots
                    if not figure.colour_bar:
                        bar = sheet.colorbar(dots, ax=axes, aspect=25)
                        bar.outline.set_linewidth(0.4)
                        bar.ax.tick_params(labelsize=5.5, length=1.5)
        if panel.title:
            axes.set_title(panel.title)
            axes.locator_params(nbins=4)
    if figure.legend:
        _legend(sheet, panels, figure)
    if figure.colour_bar and coloured is not None:
        sheet.colorbar(coloured, ax=panels, label=figure.colour_bar, shrink=0.7, aspect=30)
    if any(panel.title for panel in figure.panels):
        sheet.suptitle(figure.title, fontsize=7.5)
    else:
        panels[0].set_title(figure.title, loc="left")
    return sheet


def _panels(figure: Figure) -> tuple[Sheet, list[Axes]]:
    """An empty sheet and its axes in reading order."""
    from matplotlib.figure import Figure as Sheet

    count, columns = len(figure.panels), figure.columns
    rows = -(-count // columns)
    size = (WIDTH * CENTIMETRE, (figure.panel_height * rows + 0.9) * CENTIMETRE)
    sheet = Sheet(figsize=size, layout="constrained")
    panels = list(sheet.subplots(rows, columns, squeeze=False).flat)
    for spare in panels[count:]:
        spare.remove()
    return sheet, panels[:count]


def _apply_scales(axes: Axes, panel: Panel) -> None:
    for side, scale in (("x", panel.across), ("y", panel.up)):
        properties: dict[str, Any] = {f"{side}label": scale.label}
        if scale.log:
            properties[f"{side}scale"] = "log"
        if scale.limits is not None:
            properties[f"{side}lim"] = scale.limits
        axes.set(**properties)
        if scale.ticks:
            axis = axes.xaxis if side == "x" else axes.yaxis
            names = [_broken(name) for _, name in scale.ticks]
            axis.set_ticks([place for place, _ in scale.ticks], labels=names)
            axis.minorticks_off()


def _broken(name: str) -> str:
    """A mixture of behaviours, such as random:0.5+replay:0.5, on a line each; 1e+06 on one."""
    return name.replace("+", "\n+ ") if name[:1].isalpha() else name


def _draw_line(axes: Axes, line: Line) -> None:
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=line.colour, alpha=0.13, lw=0)
    axes.plot(
        *(line.x, line.y),
        color=line.colour,
        linestyle=DASHES[line.dash],
        linewidth=1.5 if line.strong else 1.1,
        label=line.name,
    )
    axes.margins(x=0.02)


def _draw_intervals(axes: Axes, points: Intervals) -> None:
    axes.errorbar(
        *(points.x, points.y),
        yerr=np.maximum([points.y - points.low, points.high - points.y], 0.0),
        color=points.colour,
        linestyle=DASHES[points.dash] if points.joined else "none",
        marker="o",
        markersize=3.5,
        capsize=1.5,
        elinewidth=0.8,
        label=points.name,
    )
    for x, y, hollow in zip(points.x, points.y, points.hollow, strict=True):
        if hollow:
            axes.plot(x, y, "o", markersize=3.5, mfc="white", mec=points.colour, zorder=5)


def _draw_dots(axes: Axes, dots: Dots) -> PathCollection:
    if dots.values is not None:
        return axes.scatter(dots.x, dots.y, s=4, c=dots.values, cmap="viridis", linewidths=0)
    return axes.scatter(
        *(dots.x, dots.y),
        s=4,
        c=dots.colour,
        marker=SYMBOLS[dots.symbol],
        alpha=0.6,
        linewidths=0,
        label=dots.name,
    )


def _legend(sheet: Sheet, panels: Sequence[Axes], figure: Figure) -> None:
    """Every name once, below all panels."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    names = [name for name in figure.legend if name in handles]
    dotted = any(isinstance(mark, Dots) for panel in figure.panels for mark in panel.marks)
    sheet.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=len(names) if len(names) <= 4 else min(4, -(-len(names) // 2)),
        markerscale=2.5 if dotted else 1.0,
    )


def save(sheet: Sheet, path: Path) -> None:
    """As PNG and as SVG, without the date and the versions that made them."""
    # Laid out once: to measure every label again for the second file takes longer than drawing it.
    sheet.draw_without_rendering()
    sheet.set_layout_engine("none")
    nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    for kind in FORMATS:
        write = partial(_write, sheet, kind, nothing[kind])
        write_atomically(path.with_name(f"{path.name}.{kind}"), write)


def _write(sheet: Sheet, kind: str, metadata: dict[str, Any], path: Path) -> None:
    sheet.savefig(path, format=kind, metadata=metadata)

"""Paper for figures: one style for all, 8 cm wide, and files that are the same byte for byte."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sept_offline.errors import ConfigError
from sept_offline.files import write_atomically
from sept_offline.limits import check_regular

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = 'Figures need matplotlib, which is not installed: pip install "sept-offline[report]".'
FORMATS = ("png", "svg")
CENTIMETRE = 1 / 2.54
WIDTH = 8.0
"""Of a figure in centimetres: a column of a paper."""
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
    """Whether matplotlib is there."""
    return importlib.util.find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Refuse where it is missing, or cannot read the settings that lie in the current folder."""
    if not can_draw():
        raise ConfigError(INSTALL)
    settings = Path("matplotlibrc")
    if settings.exists() and not settings.is_dir():
        check_regular(settings, ConfigError)
    try:
        import matplotlib  # noqa: F401
    except ValueError as problem:
        words = " ".join(str(problem).split())
        raise ConfigError(
            f"Matplotlib cannot read {settings} in this folder: {words}."
        ) from problem


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our settings on matplotlib's own defaults, whatever the user's are; theirs come back."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)  # type: ignore[arg-type]
        yield


def sheet(
    rows: int, columns: int = 1, height: float = 5.0, share_x: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of panels, each so many centimetres high, in reading order."""
    from matplotlib.figure import Figure

    size = (WIDTH * CENTIMETRE, (height * rows + 0.9) * CENTIMETRE)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=share_x)
    return figure, list(panels.flat)


def save(figure: Figure, path: Path) -> None:
    """As PNG and as SVG, without the date and the versions that made them."""
    # Laid out once: to measure every label again for the second file takes longer than drawing it.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    nothing = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
    for kind in FORMATS:
        write = partial(_write, figure, kind, nothing[kind])
        write_atomically(path.with_name(f"{path.name}.{kind}"), write)


def _write(figure: Figure, kind: str, metadata: dict[str, Any], path: Path) -> None:
    figure.savefig(path, format=kind, metadata=metadata)

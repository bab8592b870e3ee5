"""What all pictures of the pages share: colours for every kind of sight, and how they are saved."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, GREY, PALE = "#333333", "#8C8C8C", "#E6E6E6"
PROBE, CONTROL = "#E69F00", "#0072B2"
INSTANCES, MARKERS = ("#009E73", "#CC79A7"), ("o", "^")
WALL, GOAL = "#444444", "#D7EAD3"

plt.rcParams.update(
    {
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.edgecolor": GREY,
        "axes.labelcolor": INK,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "text.color": INK,
    }
)


def bare(panel: Axes) -> None:
    """No frame on the sides that say nothing."""
    panel.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Without the version of the library, so that the same picture is the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    print(path)

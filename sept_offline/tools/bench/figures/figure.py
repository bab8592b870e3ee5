"""A figure before it is drawn: panels, their scales and marks, and how methods look in all figures.

Each medium draws it once: `paper` writes files with matplotlib, `report.charts` makes charts of
Plotly. Colours are `#RRGGBB`; a page may replace black by the ink of its theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sept_offline.elementary import Doubles
from sept_offline.methods import METHODS

Dash = Literal["solid", "dashed", "short", "dotted", "chained"]
Symbol = Literal[
    "circle",
    "square",
    "diamond",
    "cross",
    "triangle-up",
    "triangle-down",
    "triangle-left",
    "triangle-right",
]
BLACK = "#000000"


@dataclass(frozen=True)
class Line:
    """A line through x, y `[n]`, with a band from low to high `[n]` where there is one."""

    name: str
    x: Doubles
    y: Doubles
    low: Doubles | None = None
    high: Doubles | None = None
    colour: str = BLACK
    dash: Dash = "solid"
    method: str = ""
    """By which a page shows and hides it."""
    strong: bool = False
    seeds: int = 0
    """Training seeds behind it, for its caption."""


@dataclass(frozen=True)
class Intervals:
    """Points x, y `[n]`, each with an interval from low to high `[n]`; NaN where it has none."""

    name: str
    x: Doubles
    y: Doubles
    low: Doubles
    high: Doubles
    hollow: Sequence[bool]
    notes: Sequence[str]
    """What a page says about each point."""
    colour: str = BLACK
    dash: Dash = "solid"
    method: str = ""
    joined: bool = True
    """Whether a line connects the points."""


@dataclass(frozen=True)
class Dots:
    """Points x, y `[n]` in one colour, or coloured by `values` `[n]`."""

    name: str
    x: Doubles
    y: Doubles
    notes: Sequence[str]
    colour: str = BLACK
    symbol: Symbol = "circle"
    values: Doubles | None = None


Mark = Line | Intervals | Dots


@dataclass(frozen=True)
class Scale:
    """One axis of a panel; without `ticks` or `limits` the medium chooses them."""

    label: str = ""
    ticks: Sequence[tuple[float, str]] = ()
    limits: tuple[float, float] | None = None
    log: bool = False


@dataclass(frozen=True)
class Panel:
    """Marks that share two scales."""

    marks: Sequence[Mark]
    across: Scale
    up: Scale
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels in reading order, `columns` of them side by side."""

    title: str
    panels: Sequence[Panel]
    legend: Sequence[str] = ()
    """Names of marks in the order of the legend; no legend where empty."""
    columns: int = 1
    panel_height: float = 5.0
    """On paper, in centimetres."""
    colour_bar: str = ""
    """Label of one colour scale for all panels; where empty, each panel has its own."""


@dataclass(frozen=True)
class Picture:
    """A figure that has its data: the name of its files, its caption, and the figure itself."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Missing:
    """A figure that a family has no data for, and the data it needs."""

    kind: str
    family: str
    wants: str


@dataclass(frozen=True)
class Style:
    """The title of a method, its colour and its dash."""

    title: str
    colour: str
    dash: Dash = "solid"


# Colours of Okabe and Ito and of Tol, which people with colour blindness can distinguish. Methods
# of one figure that look the same in greyscale have different dashes.
PENS: dict[str, tuple[str, Dash]] = {
    "sept": ("#0072B2", "solid"),
    "avg": ("#8C8C8C", "solid"),
    "oracle": (BLACK, "dashed"),
    "epopt": ("#E69F00", "solid"),
    "maml": ("#CC79A7", "chained"),
    "bnn": ("#D55E00", "dotted"),
    "dpt": ("#56B4E9", "dashed"),
    "history": ("#009E73", "short"),
    "focal": ("#332288", "dotted"),
    "unicorn": ("#AA4499", "short"),
    "csro": ("#117733", "chained"),
    "bati": ("#AA3377", "dashed"),
    "sept-np": ("#882255", "dashed"),
    "totalvar": ("#999933", "chained"),
    "maxent": ("#44AA99", "dotted"),
    "dynasept": ("#EE3377", "solid"),
}
"""In the order in which figures name the methods."""
STYLES = {name: Style(METHODS[name].title or name, *pen) for name, pen in PENS.items()}
BASELINES = tuple(name for name in STYLES if not METHODS[name].ablation)
ABLATIONS = ("sept", *(name for name in STYLES if METHODS[name].ablation))
INSTANCES = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *(BLACK, "#56B4E9", "#D55E00", "#999933"),
)
"""Colours of instances in the latent plane, for up to eight of them."""
SYMBOLS: tuple[Symbol, ...] = (
    *("circle", "square", "triangle-up", "diamond"),
    *("triangle-down", "triangle-left", "triangle-right", "cross"),
)
"""Symbols of the same instances."""


def style_of(method: str) -> Style:
    """The style of a method; an unknown one keeps its name and is grey."""
    return STYLES.get(method, Style(method, "#BBBBBB"))


def ordered(methods: Iterable[str]) -> list[str]:
    """The methods in the order in which all figures name them."""
    known = list(STYLES)
    return sorted(set(methods), key=lambda m: (known.index(m) if m in known else len(known), m))


RESAMPLED = (
    "95 % bootstrap intervals over training seeds and test instances; a single seed has none, "
    "and seeds with the same data seed share their logs"
)
"""What bands and bars are, for captions."""


def seeds_caption(counted: Iterable[tuple[str, int]]) -> str:
    """Training seeds of (method, seeds); a single number where all methods have the same."""
    counts: dict[str, set[int]] = {}
    for method, count in counted:
        counts.setdefault(method, set()).add(count)
    ranges = {
        method: str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        for method, seeds in counts.items()
    }
    if len({frozenset(seeds) for seeds in counts.values()}) == 1:
        (shared,) = set(ranges.values())
        return f"{shared} training seed{'' if shared == '1' else 's'}."
    words = [f"{style_of(method).title} {ranges[method]}" for method in ordered(ranges)]
    return f"Training seeds: {', '.join(words)}."


def short(number: float) -> str:
    """Three digits and a true minus."""
    return f"{number:.3g}".replace("-", "−")

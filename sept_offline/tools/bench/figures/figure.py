"""A figure before it is drawn: panels, their scales, and the marks in them.

Each medium draws it once: `paper` writes files with matplotlib, `report.charts` makes charts of
Plotly. Colours are `#RRGGBB`; a page may replace black by the ink of its theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
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
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    colour: str = BLACK
    dash: Dash = "solid"
    method: str = ""
    """By which a page shows and hides it."""
    strong: bool = False


@dataclass(frozen=True)
class Intervals:
    """Points x, y `[n]`, each with an interval from low to high `[n]`; NaN where it has none."""

    name: str
    x: Array
    y: Array
    low: Array
    high: Array
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
    x: Array
    y: Array
    notes: Sequence[str]
    colour: str = BLACK
    symbol: Symbol = "circle"
    values: Array | None = None


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

"""What a figure shows, before a pen is chosen: on paper by matplotlib, on a page by Plotly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sept_offline.bench.figures.axes import Axis
from sept_offline.bench.figures.curves import Curve
from sept_offline.bench.figures.plane import Plane


@dataclass(frozen=True)
class Curves:
    """Panels one below another, each a label and its curves; `across` is under the last."""

    panels: Sequence[tuple[str, Sequence[Curve]]]
    title: str
    across: str
    named: bool = True
    """Whether the curves need a legend."""
    height: float = 5.0
    """Of a panel on paper, in centimetres."""


@dataclass(frozen=True)
class AlongAxis:
    """A line a method along an axis, with intervals; `label` is what is measured."""

    axis: Axis
    title: str
    label: str
    across: str


@dataclass(frozen=True)
class ByInstance:
    """A panel a latent plane, coloured by instance."""

    planes: Sequence[Plane]
    title: str


@dataclass(frozen=True)
class ByHidden:
    """A panel a hidden parameter, or several that move together; `shares` are R² of a line in z."""

    plane: Plane
    shares: dict[tuple[str, ...], float]
    title: str


Content = Curves | AlongAxis | ByInstance | ByHidden

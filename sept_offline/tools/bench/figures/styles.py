"""How a method is named and drawn in every figure: one title, one colour, one dash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sept_offline.methods import METHODS
from sept_offline.tools.bench.figures.figure import BLACK, Dash, Symbol


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

"""How a method looks and is called in every figure: one colour, one dash, one name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Dash = tuple[float, tuple[float, ...]] | str


@dataclass(frozen=True)
class Look:
    """A method's name as the paper writes it, its colour and its dash."""

    name: str
    colour: str
    dash: Dash = "-"


DASHED, SHORT, DOTTED = (0.0, (4.0, 1.5)), (0.0, (2.0, 0.8)), (0.0, (1.0, 1.2))
CHAINED = (0.0, (5.0, 1.2, 1.0, 1.2))

# Colours of Okabe and Ito, and of Tol, who chose them for all kinds of sight; those that two
# methods of one figure might still share in grey print differ in their dash.
LOOKS = {
    "sept": Look("SEPT", "#0072B2"),
    "avg": Look("Avg", "#8C8C8C"),
    "oracle": Look("Oracle", "#000000", DASHED),
    "epopt": Look("EPOpt-adv", "#E69F00"),
    "maml": Look("MAML", "#CC79A7", CHAINED),
    "bnn": Look("BNN", "#D55E00", DOTTED),
    "dpt": Look("DPT", "#56B4E9", DASHED),
    "history": Look("History", "#009E73", SHORT),
    "sept-np": Look("SEPT-NP", "#882255", DASHED),
    "totalvar": Look("TotalVar", "#999933", CHAINED),
    "maxent": Look("MaxEnt", "#44AA99", DOTTED),
    "dynasept": Look("DynaSEPT", "#EE3377"),
}
BASELINES = ("sept", "avg", "oracle", "epopt", "maml", "bnn", "dpt", "history")
ABLATIONS = ("sept", "sept-np", "totalvar", "maxent", "dynasept")
INSTANCES = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *("#000000", "#56B4E9", "#D55E00", "#999933"),
)
"""Of instances in the latent plane, while there are few; their markers differ too."""
MARKERS = "os^Dv<>P"


def look(method: str) -> Look:
    """A method that is not known here keeps its own name, in grey."""
    return LOOKS.get(method, Look(method, "#BBBBBB"))


def ordered(methods: Iterable[str]) -> list[str]:
    """In the order in which all figures name them."""
    known = list(LOOKS)
    return sorted(set(methods), key=lambda m: (known.index(m) if m in known else len(known), m))

"""Captions of figures: final values, intervals, and the number of seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sept_offline.tools.bench.figures.axes import Axis
from sept_offline.tools.bench.figures.curves import Curve, in_order
from sept_offline.tools.bench.figures.rows import Row
from sept_offline.tools.bench.figures.styles import ordered, style_of

RESAMPLED = (
    "95 % bootstrap intervals over training seeds and test instances; a single seed has none, "
    "and seeds with the same data seed share their logs"
)
BAND = f"bands are {RESAMPLED}"
BARS = f"bars are {RESAMPLED}"
SPREAD = "bands go from the lowest seed to the highest"


def seeds(counts: dict[str, set[int]]) -> str:
    """The numbers of training seeds; a single number where all methods have the same."""
    if len({frozenset(numbers) for numbers in counts.values()}) == 1:
        return f"{_counted(next(iter(counts.values())))}."
    words = [f"{style_of(m).title} {_range(counts[m])}" for m in ordered(counts)]
    return f"Training seeds: {', '.join(words)}."


def seeds_of(curves: Iterable[Curve]) -> str:
    """The numbers of training seeds of curves."""
    counts: dict[str, set[int]] = {}
    for curve in curves:
        counts.setdefault(curve.method, set()).add(curve.seeds)
    return seeds(counts)


def ends(curves: Sequence[Curve], unit: str = "") -> str:
    """Where the curves end, the highest first."""
    last = sorted(in_order(curves), key=lambda curve: -curve.mean[-1])
    words = [f"{style_of(curve.method).title} {value(curve.mean[-1])}{unit}" for curve in last]
    return ", ".join(words)


def best(axis: Axis) -> str:
    """Where on the axis each method stands highest."""
    words = []
    for method in axis.methods:
        top = max(axis.of(method), key=lambda point: point.mean)
        words.append(f"{style_of(method).title} at {top.value} ({value(top.mean)})")
    return ", ".join(words)


def absent(wanted: Iterable[str], found: Iterable[str]) -> str:
    """Methods that belong in the figure and have no cells."""
    missing = [style_of(method).title for method in ordered(set(wanted) - set(found))]
    return f" Without {', '.join(missing)}: no cells." if missing else ""


def budgets(cells: Iterable[Row], shown: Iterable[str]) -> str:
    """Methods with a budget other than the usual one, such as a reduced one."""
    budget = {cell["method"]: cell["budget"] for cell in cells if cell["budget"]}
    words = [f"{style_of(m).title} {budget[m]}" for m in ordered(set(budget) & set(shown))]
    return f" Budgets: {', '.join(words)}." if words else ""


def value(number: float) -> str:
    """Three digits, with a true minus."""
    return f"{number:.3g}".replace("-", "−")


def _counted(counts: set[int]) -> str:
    return f"{_range(counts)} training seed{'' if counts == {1} else 's'}"


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"

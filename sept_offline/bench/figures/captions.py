"""What a figure shows, in words: who stands where, of how many seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sept_offline.bench.figures.axes import Axis
from sept_offline.bench.figures.curves import Curve, in_order
from sept_offline.bench.figures.look import look, ordered
from sept_offline.bench.figures.rows import Row

RESAMPLED = (
    "95 % bootstrap intervals that resample training seeds and, for all seeds alike, test "
    "instances; a single seed has none, and seeds of one data seed share their logs"
)
BAND = f"bands are {RESAMPLED}"
BARS = f"bars are {RESAMPLED}"
SPREAD = "bands go from the lowest seed to the highest"


def seeds(counts: dict[str, set[int]]) -> str:
    """How many training seeds: once, where all have as many."""
    if len({frozenset(own) for own in counts.values()}) == 1:
        return f"{_counted(next(iter(counts.values())))}."
    words = [f"{look(m).name} {_range(counts[m])}" for m in ordered(counts)]
    return f"Training seeds: {', '.join(words)}."


def seeds_of(curves: Iterable[Curve]) -> str:
    """The same, of curves."""
    counts: dict[str, set[int]] = {}
    for curve in curves:
        counts.setdefault(curve.method, set()).add(curve.seeds)
    return seeds(counts)


def ends(curves: Sequence[Curve], unit: str = "") -> str:
    """Where the curves end, the highest first."""
    last = sorted(in_order(curves), key=lambda curve: -curve.mean[-1])
    words = [f"{look(curve.method).name} {value(curve.mean[-1])}{unit}" for curve in last]
    return ", ".join(words)


def best(axis: Axis) -> str:
    """Where on the axis each method stands highest."""
    words = []
    for method in axis.methods:
        top = max(axis.of(method), key=lambda point: point.mean)
        words.append(f"{look(method).name} at {top.value} ({value(top.mean)})")
    return ", ".join(words)


def absent(wanted: Iterable[str], found: Iterable[str]) -> str:
    """Methods that belong in the figure and have no cells."""
    missing = [look(method).name for method in ordered(set(wanted) - set(found))]
    return f" Without {', '.join(missing)}: no cells." if missing else ""


def budgets(cells: Iterable[Row], shown: Iterable[str]) -> str:
    """Methods that ran on a budget of their own, such as a reduced one."""
    own = {cell["method"]: cell["budget"] for cell in cells if cell["budget"]}
    words = [f"{look(m).name} {own[m]}" for m in ordered(set(own) & set(shown))]
    return f" Budgets: {', '.join(words)}." if words else ""


def value(number: float) -> str:
    """Three digits, with a true minus."""
    return f"{number:.3g}".replace("-", "−")


def _counted(counts: set[int]) -> str:
    return f"{_range(counts)} training seed{'' if counts == {1} else 's'}"


def _range(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"

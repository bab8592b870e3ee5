"""Numbers as a person reads them."""

from __future__ import annotations

import math


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def figure(value: float | None) -> str:
    """Four digits, a true minus, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:,.4g}".replace("-", "−")


def percent(share: float | None) -> str:
    """97.5 %."""
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.3g} %"


def with_error(mean: float | None, error: float | None) -> str:
    """13.4 ± 0.06."""
    if mean is None:
        return "–"
    return figure(mean) + ("" if error is None else f" ± {error:.2g}")


def interval(mean: float, low: float | None, high: float | None) -> str:
    """−26.6 [−31.1, −22.7]."""
    between = "–" if low is None or high is None else f"{figure(low)}, {figure(high)}"
    return f"{figure(mean)} [{between}]"


def plural(number: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"

"""Numbers, names and paths as a person reads them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

LONGEST = 28
"""Characters of a name in a chart; all of it is in the table."""


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def figure(value: float | None) -> str:
    """Four digits at least, a true minus, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:,.4g}"
    return text.replace("-", "−")


def percent(share: float | None) -> str:
    """97.5 %."""
    if share is None or not math.isfinite(share):
        return "–"
    text = f"{100 * share:.2f}".rstrip("0").rstrip(".")
    return f"{text} %"


def with_error(mean: float | None, error: float | None) -> str:
    """13.4 ± 0.06."""
    if mean is None:
        return "–"
    return figure(mean) + ("" if error is None else f" ± {_two(error)}")


def interval(mean: float, low: float | None, high: float | None) -> str:
    """−26.6 [−31.1, −22.7]."""
    between = "–" if low is None or high is None else f"{figure(low)}, {figure(high)}"
    return f"{figure(mean)} [{between}]"


def plural(number: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def shortened(name: str) -> str:
    """A name that leaves room for the chart."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def distinct(names: Sequence[str]) -> list[str]:
    """The names, short enough for a chart; those that are alike then are numbered."""
    short = [shortened(name) for name in names]
    seen: dict[str, int] = {}
    found = []
    for name in short:
        seen[name] = seen.get(name, 0) + 1
        found.append(f"{name} ({seen[name]})" if short.count(name) > 1 else name)
    return found


def shown_path(path: Path | str) -> str:
    """A path that can be shown to others: home is ~, and every byte is a character."""
    text = os.fsencode(str(path)).decode("utf-8", "replace")
    home = str(Path.home())
    return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}{os.sep}") else text


def _two(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"

"""Numbers, names and paths as a person reads them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST = 28
"""Most characters of a name in a chart; tables show all of it."""


def count(value: int) -> str:
    """12,345."""
    return f"{value:,}"


def number(value: float | None) -> str:
    """At least four digits and a true minus; a dash where there is no number."""
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


def with_error(statistics: Mapping[str, Any] | None) -> str:
    """13.4 ± 0.06, from a `mean` and its standard error `se`."""
    if statistics is None:
        return "–"
    error = statistics["se"]
    return number(statistics["mean"]) + ("" if error is None else f" ± {_two(error)}")


def interval(mean: float, low: float | None, high: float | None) -> str:
    """−26.6 [−31.1, −22.7]."""
    between = "–" if low is None or high is None else f"{number(low)}, {number(high)}"
    return f"{number(mean)} [{between}]"


def plural(size: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count(size)} {noun}{'' if size == 1 else 's'}"


def shortened(name: str) -> str:
    """A name that leaves room for the chart."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def distinct(names: Sequence[str]) -> list[str]:
    """The names, short enough for a chart; equal ones are numbered."""
    short = [shortened(name) for name in names]
    seen: dict[str, int] = {}
    numbered = []
    for name in short:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} ({seen[name]})" if short.count(name) > 1 else name)
    return numbered


def shown_path(path: Path | str) -> str:
    """A path that can be shown to others: home is ~, and every byte is a character."""
    text = os.fsencode(str(path)).decode("utf-8", "replace")
    home = str(Path.home())
    return f"~{text[len(home) :]}" if text == home or text.startswith(f"{home}{os.sep}") else text


def _two(value: float) -> str:
    """Two digits, or the whole number."""
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.2g}"

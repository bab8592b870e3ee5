"""Plotly figures as plain dictionaries.

Plotly's own Python objects would check every property and take a second to load; a test does that
instead. A colour `var(--name)` is filled in by the page, so that charts follow light and dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sept_offline.bench.figures.look import Look, look
from sept_offline.report.text import distinct

Trace = dict[str, Any]
Figure = dict[str, Any]

INK, MUTED, GRID, SURFACE = "var(--ink)", "var(--muted)", "var(--grid)", "var(--surface)"
HEIGHT = 340
FEW = 5
"""Categories below which bars would be as broad as they are high."""
POINTS = 500
"""Of a line: more cannot be seen."""
DIGITS = 6
"""Significant digits of numbers in a chart; more would only make the page larger."""
BLACK = "#000000"


@dataclass(frozen=True)
class Line:
    """A line with an optional band; x, y, low, high `[n]`. `method` lets the page switch it."""

    name: str
    x: Sequence[float] | np.ndarray[Any, Any]
    y: Sequence[float] | np.ndarray[Any, Any]
    low: Sequence[float] | np.ndarray[Any, Any] | None = None
    high: Sequence[float] | np.ndarray[Any, Any] | None = None
    colour: str = INK
    dash: str = "solid"
    method: str = ""
    markers: bool = False


def label(text: object) -> str:
    """Text as a chart shows it: Plotly reads a little HTML and its templates; none are meant."""
    return html.escape(str(text), quote=False).replace("%{", "%\u200b{")


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Short and JSON-ready: what is not finite leaves a gap."""
    return [_short(float(value)) for value in values]


def colour_of(method: str) -> str:
    """A method's colour; black ink is white at night."""
    own = look(method).colour
    return INK if own == BLACK else own


def dash_of(own: Look) -> str:
    """A dash of the figures on paper, as Plotly names it."""
    if isinstance(own.dash, str):
        return "solid"
    count, first = len(own.dash[1]), own.dash[1][0]
    if count > 2:
        return "dashdot"
    return "dot" if first < 2 else "dash"


def layout(
    across: str = "", up: str = "", *, height: int = HEIGHT, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The look that all charts share; `more` is laid over it."""
    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "tickcolor": GRID,
        "automargin": True,
    }
    found: dict[str, Any] = {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 34, "b": 48},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {**axis, "title": {"text": label(across)}},
        "yaxis": {**axis, "title": {"text": label(up)}},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hoverlabel": {"bgcolor": SURFACE, "bordercolor": GRID, "font": {"color": INK}},
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": INK},
    }
    return merged(found, more or {})


def lines_chart(
    lines: Sequence[Line],
    across: str,
    up: str,
    *,
    height: int = HEIGHT,
    more: Mapping[str, Any] | None = None,
) -> Figure:
    """Lines with their bands; a legend where there is more than one."""
    data: list[Trace] = []
    for line in lines:
        data += line_traces(line)
    usual = {"showlegend": len(lines) > 1, "hovermode": "x unified"}
    over = merged(usual, more or {})
    return {"data": data, "layout": layout(across, up, height=height, more=over)}


def line_traces(line: Line, axes: Mapping[str, Any] | None = None) -> list[Trace]:
    """A band, if there is one, and the line over it; both go when the legend is clicked."""
    group = line.method or line.name
    shared = {"legendgroup": group, "meta": {"method": line.method}, **(axes or {})}
    line = thinned(line)
    traces: list[Trace] = []
    if line.low is not None and line.high is not None:
        x = [*numbers(line.x), *numbers(reversed(list(line.x)))]
        traces.append(
            {
                "type": "scatter",
                "x": x,
                "y": [*numbers(line.high), *numbers(reversed(list(line.low)))],
                "fill": "toself",
                "fillcolor": line.colour,
                "opacity": 0.15,
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
                "mode": "lines",
                **shared,
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "lines+markers" if line.markers else "lines",
            "name": label(line.name),
            "x": numbers(line.x),
            "y": numbers(line.y),
            "line": {"color": line.colour, "dash": line.dash, "width": 2},
            "hovertemplate": "%{y:.4g}",
            **shared,
        }
    )
    return traces


def thinned(line: Line) -> Line:
    """At most `POINTS` of a line, the ends among them."""
    if len(line.x) <= POINTS:
        return line
    kept = np.linspace(0, len(line.x) - 1, POINTS).round().astype(np.int64)
    x, y = np.asarray(line.x)[kept], np.asarray(line.y)[kept]
    low = None if line.low is None else np.asarray(line.low)[kept]
    high = None if line.high is None else np.asarray(line.high)[kept]
    return replace(line, x=x, y=y, low=low, high=high)


def bars_chart(
    names: Sequence[Any],
    groups: Mapping[str, Sequence[float]],
    across: str,
    up: str,
    colours: Sequence[str],
    *,
    methods: Sequence[str] = (),
    stacked: bool = False,
    height: int = HEIGHT,
) -> Figure:
    """Groups of bars over the same names; names of two levels are [outer, inner].

    `methods`, one a group, lets the page switch them.
    """
    data = [
        {
            "type": "bar",
            "name": label(name),
            "x": names,
            "y": numbers(values),
            "marker": {"color": colour},
            "hovertemplate": "%{y:.3g}",
            "meta": {"method": method},
        }
        for (name, values), colour, method in zip(
            groups.items(), colours, methods or [""] * len(groups), strict=False
        )
    ]
    more = {
        "barmode": "stack" if stacked else "group",
        "bargap": 0.6 if len(names) < FEW and not _nested(names) else 0.2,
        "showlegend": len(groups) > 1,
        # Names such as "12" are names all the same.
        "xaxis": {"type": "multicategory" if _nested(names) else "category"},
    }
    return {"data": data, "layout": layout(across, up, height=height, more=more)}


def boxes_chart(
    names: Sequence[str], values: Sequence[Sequence[float]], across: str, up: str
) -> Figure:
    """A box a name, from five numbers each: the page need not hold every episode."""
    table = np.array([np.percentile(own, (0, 25, 50, 75, 100)) for own in values])
    trace = {
        "type": "box",
        "x": [label(name) for name in distinct(names)],
        "lowerfence": numbers(table[:, 0]),
        "q1": numbers(table[:, 1]),
        "median": numbers(table[:, 2]),
        "q3": numbers(table[:, 3]),
        "upperfence": numbers(table[:, 4]),
        "marker": {"color": "#0072B2"},
        "line": {"width": 1.2},
        "showlegend": False,
    }
    more = {"xaxis": {"type": "category"}, "boxgap": 0.7 if len(names) < FEW else 0.3}
    return {"data": [trace], "layout": layout(across, up, more=more)}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, key by key."""
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merged(old, value)
        found[key] = value
    return found


def _nested(names: Sequence[Any]) -> bool:
    return bool(names) and isinstance(names[0], list)


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None

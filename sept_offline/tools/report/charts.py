"""Charts of a page: figures, bars and boxes as Plotly takes them, in plain dictionaries.

Plotly's own Python objects would check every property and take a second to load; a test does that
instead. A colour `var(--name)` is filled in by the page, so that charts follow light and dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sept_offline.settings import merge
from sept_offline.tools.bench.figures.figure import (
    BLACK,
    Dots,
    Figure,
    Intervals,
    Line,
    Panel,
    Scale,
)
from sept_offline.tools.report.page import distinct, number, shortened

Trace = dict[str, Any]
Plot = dict[str, Any]
"""`data` and `layout` of Plotly."""

INK, MUTED, GRID, SURFACE = "var(--ink)", "var(--muted)", "var(--grid)", "var(--surface)"
HEIGHT = 340
PANEL_HEIGHT, TITLED_HEIGHT = 240, 330
"""Pixels of one of several panels, and of one with a title."""
FEW = 5
"""Categories below which bars are made narrower."""
POINTS = 500
"""Most points of a line: more cannot be seen."""
DIGITS = 6
"""Significant digits of numbers in a chart; more would only make the page larger."""
DASHES = {
    "solid": "solid",
    "dashed": "dash",
    "short": "5px,3px",
    "dotted": "dot",
    "chained": "dashdot",
}


def label(text: object) -> str:
    """Text as a chart shows it: Plotly reads a little HTML and its templates; none are meant."""
    return html.escape(str(text), quote=False).replace("%{", "%\u200b{")


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Short and JSON-ready; values that are not finite leave a gap."""
    return [_short(float(value)) for value in values]


def ink(colour: str) -> str:
    """A colour on the page: black becomes the ink of the theme."""
    return INK if colour == BLACK else colour


def layout(
    across: str = "", up: str = "", *, height: int = HEIGHT, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The layout that all charts share, updated by `more`."""
    axis = {
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "tickcolor": GRID,
        "automargin": True,
    }
    shared: dict[str, Any] = {
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
    return merge(shared, more or {})


def plot(figure: Figure) -> Plot:
    """Any figure; its title is left to the page."""
    titled = any(panel.title for panel in figure.panels)
    rows = -(-len(figure.panels) // figure.columns)
    unified = all(isinstance(mark, Line) for panel in figure.panels for mark in panel.marks)
    more: dict[str, Any] = {
        "showlegend": bool(figure.legend),
        "hovermode": "x unified" if unified else "closest",
    }
    if titled:
        legend = {"y": -0.18 / rows, "yanchor": "top"}
        more |= {"annotations": [], "margin": {"t": 32}, "legend": legend}
    if len(figure.panels) > 1:
        gaps = {"xgap": 0.16, "ygap": 0.32} if titled else {"ygap": 0.3}
        shape = {"rows": rows, "columns": figure.columns, "pattern": "independent"}
        more["grid"] = shape | gaps
    data: list[Trace] = []
    plain = layout()
    for place, panel in enumerate(figure.panels):
        suffix = str(place + 1) if place else ""
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        more[f"xaxis{suffix}"] = plain["xaxis"] | _axis(panel.across)
        more[f"yaxis{suffix}"] = plain["yaxis"] | _axis(panel.up)
        if panel.title:
            more["annotations"].append(_panel_title(panel.title, suffix))
        for trace in _traces(panel):
            data.append(trace | axes | _legend_entry(trace, data, figure.legend))
    height = (
        max(380, TITLED_HEIGHT * rows) if titled else max(HEIGHT, PANEL_HEIGHT * len(figure.panels))
    )
    return {"data": data, "layout": layout(height=height, more=more)}


def lines_plot(
    lines: Sequence[Line], across: str, up: str, limits: tuple[float, float] | None = None
) -> Plot:
    """One panel of lines; a legend where there is more than one."""
    names = [line.name for line in lines]
    panel = Panel(lines, Scale(across), Scale(up, limits=limits))
    return plot(Figure("", [panel], legend=names if len(names) > 1 else ()))


def _axis(scale: Scale) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": {"text": label(scale.label)}}
    if scale.log:
        axis["type"] = "log"
    if scale.ticks:
        axis["tickvals"] = [place for place, _ in scale.ticks]
        axis["ticktext"] = [label(name) for _, name in scale.ticks]
    if scale.limits is not None:
        axis["range"] = list(scale.limits)
    return axis


def _panel_title(title: str, suffix: str) -> dict[str, Any]:
    return {
        "text": label(title),
        "xref": f"x{suffix} domain",
        "yref": f"y{suffix} domain",
        "x": 0,
        "y": 1.02,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _traces(panel: Panel) -> list[Trace]:
    traces: list[Trace] = []
    for mark in panel.marks:
        if isinstance(mark, Line):
            traces += line_traces(mark)
        elif isinstance(mark, Intervals):
            traces.append(_intervals_trace(mark))
        else:
            traces.append(dots_trace(mark))
    return traces


def _legend_entry(trace: Trace, before: Sequence[Trace], legend: Sequence[str]) -> Trace:
    """Show each name in the legend once, in order, for any number of panels."""
    names = [label(name) for name in legend]
    name = trace.get("name")
    if name not in names or any(other.get("name") == name for other in before):
        return {"showlegend": False}
    return {"showlegend": True, "legendrank": names.index(name) + 1}


def line_traces(line: Line) -> list[Trace]:
    """A band, if there is one, and the line over it; both go when the legend is clicked."""
    shared = _switch(line.name, line.method)
    colour = ink(line.colour)
    line = thinned(line)
    traces: list[Trace] = []
    if line.low is not None and line.high is not None:
        traces.append(
            {
                "type": "scatter",
                "x": [*numbers(line.x), *numbers(line.x[::-1])],
                "y": [*numbers(line.high), *numbers(line.low[::-1])],
                "fill": "toself",
                "fillcolor": colour,
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
            "mode": "lines",
            "name": label(line.name),
            "x": numbers(line.x),
            "y": numbers(line.y),
            "line": {"color": colour, "dash": DASHES[line.dash], "width": 2},
            "hovertemplate": "%{y:.4g}",
            **shared,
        }
    )
    return traces


def _intervals_trace(points: Intervals) -> Trace:
    colour = ink(points.colour)
    up, down = points.high - points.y, points.y - points.low
    return {
        "type": "scatter",
        "mode": "lines+markers" if points.joined else "markers",
        "name": label(points.name),
        "x": numbers(points.x),
        "y": numbers(points.y),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": numbers(np.nan_to_num(np.maximum(up, 0.0))),
            "arrayminus": numbers(np.nan_to_num(np.maximum(down, 0.0))),
            "thickness": 1,
            "width": 3,
            "color": colour,
        },
        "line": {"color": colour, "dash": DASHES[points.dash], "width": 2},
        "marker": {
            "size": 8,
            "color": colour,
            "symbol": ["circle-open" if hollow else "circle" for hollow in points.hollow],
        },
        "text": [label(note) for note in points.notes],
        "hovertemplate": "%{text}: %{y:.4g}",
        **_switch(points.name, points.method),
    }


def dots_trace(dots: Dots) -> Trace:
    """Points of one colour, or with a value each."""
    notes = [label(shortened(note)) for note in dots.notes]
    marker: dict[str, Any] = {"color": ink(dots.colour), "symbol": dots.symbol}
    if dots.values is not None:
        notes = [f"{note}: {number(value)}" for note, value in zip(notes, dots.values, strict=True)]
        marker |= {"color": numbers(dots.values), "colorscale": "Viridis"}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(dots.name),
        "legendgroup": label(dots.name),
        "x": numbers(dots.x),
        "y": numbers(dots.y),
        "text": notes,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 5, "opacity": 0.8, **marker},
    }


def _switch(name: str, method: str) -> Trace:
    """By what the legend and the switches of the page show and hide a trace."""
    return {"legendgroup": label(method or name), "meta": {"method": method}}


def thinned(line: Line) -> Line:
    """At most `POINTS` of a line, the ends among them."""
    if len(line.x) <= POINTS:
        return line
    kept = np.linspace(0, len(line.x) - 1, POINTS).round().astype(np.int64)
    low = None if line.low is None else line.low[kept]
    high = None if line.high is None else line.high[kept]
    return replace(line, x=line.x[kept], y=line.y[kept], low=low, high=high)


def bars_plot(
    names: Sequence[Any],
    groups: Mapping[str, Sequence[float]],
    across: str,
    up: str,
    colours: Sequence[str],
    *,
    methods: Sequence[str] = (),
    stacked: bool = False,
    height: int = HEIGHT,
) -> Plot:
    """Groups of bars over the same names; names of two levels are [outer, inner].

    `methods`, one per group, lets the page show and hide them.
    """
    data = [
        {
            "type": "bar",
            "name": label(name),
            "x": names,
            "y": numbers(values),
            "marker": {"color": ink(colour)},
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


def boxes_plot(
    names: Sequence[str], values: Sequence[Sequence[float]], across: str, up: str
) -> Plot:
    """A box per name, from five numbers each: the page need not hold every episode."""
    table = np.array([np.percentile(sample, (0, 25, 50, 75, 100)) for sample in values])
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


def _nested(names: Sequence[Any]) -> bool:
    return bool(names) and isinstance(names[0], list)


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None

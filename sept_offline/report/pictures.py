"""The figures of a bench on a page: the same content as on paper, with Plotly's pen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sept_offline.bench.figures.content import AlongAxis, ByHidden, ByInstance, Content, Curves
from sept_offline.bench.figures.curves import in_order
from sept_offline.bench.figures.drawing import WIDE
from sept_offline.bench.figures.look import INSTANCES, look
from sept_offline.bench.figures.plane import Plane
from sept_offline.report.charts import (
    BLACK,
    INK,
    Figure,
    Line,
    Trace,
    colour_of,
    dash_of,
    label,
    layout,
    line_traces,
    numbers,
)
from sept_offline.report.text import figure, shortened

PANEL = 240
"""Pixels of one of several panels."""


def picture(content: Content) -> Figure:
    """Any of them."""
    if isinstance(content, Curves):
        return _curves(content)
    if isinstance(content, AlongAxis):
        return _axis(content)
    if isinstance(content, ByInstance):
        return _planes([(plane, plane.title, _by_instance(plane)) for plane in content.planes])
    shares = content.shares.items()
    return _planes(
        [
            (content.plane, f"{', '.join(names)}: R² {share:.2f}", _by_hidden(content, names[0]))
            for names, share in shares
        ]
    )


def _curves(content: Curves) -> Figure:
    data: list[Trace] = []
    seen: set[str] = set()
    for place, (_, curves) in enumerate(content.panels):
        for curve in in_order(curves):
            own = look(curve.method)
            line = Line(
                own.name,
                curve.x,
                curve.mean,
                curve.low,
                curve.high,
                colour=colour_of(curve.method),
                dash=dash_of(own),
                method=curve.method,
            )
            traces = line_traces(line, _panel(place))
            # A method is named once, however many panels it is in.
            traces[-1]["showlegend"] = content.named and curve.method not in seen
            seen.add(curve.method)
            data += traces
    panels = [up for up, _ in content.panels]
    return {"data": data, "layout": _stacked(panels, content.across, content.named)}


def _stacked(panels: Sequence[str], across: str, named: bool) -> dict[str, Any]:
    """Panels one below another, each with a scale of its own."""
    count = len(panels)
    more: dict[str, Any] = {"showlegend": named, "hovermode": "x unified"}
    if count > 1:
        more |= {"grid": {"rows": count, "columns": 1, "pattern": "independent", "ygap": 0.3}}
    base = layout("", "")
    for place, up in enumerate(panels):
        suffix = str(place + 1) if place else ""
        last = place == count - 1
        more[f"xaxis{suffix}"] = {**base["xaxis"], "title": {"text": label(across) if last else ""}}
        more[f"yaxis{suffix}"] = {**base["yaxis"], "title": {"text": label(up)}}
    return layout(height=max(340, PANEL * count), more=more)


def _panel(place: int) -> dict[str, str]:
    return {} if place == 0 else {"xaxis": f"x{place + 1}", "yaxis": f"y{place + 1}"}


def _axis(content: AlongAxis) -> Figure:
    axis = content.axis
    data: list[Trace] = []
    for method in axis.methods:
        points = axis.of(method)
        own, colour = look(method), colour_of(method)
        known = [p.low is not None and p.high is not None for p in points]
        up = [(p.high or 0.0) - p.mean if k else 0.0 for p, k in zip(points, known, strict=True)]
        down = [p.mean - (p.low or 0.0) if k else 0.0 for p, k in zip(points, known, strict=True)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if axis.numeric else "markers",
                "name": label(own.name),
                "legendgroup": method,
                "meta": {"method": method},
                "x": [float(p.value) if axis.numeric else label(p.value) for p in points],
                "y": numbers(p.mean for p in points),
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": numbers(np.maximum(up, 0.0)),
                    "arrayminus": numbers(np.maximum(down, 0.0)),
                    "thickness": 1,
                    "width": 3,
                    "color": colour,
                },
                "line": {"color": colour, "dash": dash_of(own), "width": 2},
                "marker": {
                    "size": 8,
                    "color": colour,
                    "symbol": ["circle-open" if p.base else "circle" for p in points],
                },
                "text": [f"{p.seeds} seeds" for p in points],
                "hovertemplate": "%{x}: %{y:.4g} (%{text})",
            }
        )
    across: dict[str, Any] = {"type": "category"}
    if axis.numeric:
        places = [float(value) for value in axis.values]
        wide = places[0] > 0 and places[-1] > WIDE * places[0]
        across = {"type": "log" if wide else "linear", "tickvals": places}
        across["ticktext"] = [label(value) for value in axis.values]
    more = {"xaxis": across, "showlegend": len(data) > 1}
    return {"data": data, "layout": layout(content.across, content.label, more=more)}


def _planes(panels: Sequence[tuple[Plane, str, list[Trace]]]) -> Figure:
    """Two planes a row, each with its title above it."""
    count = len(panels)
    columns = min(2, count)
    rows = -(-count // columns)
    data: list[Trace] = []
    base = layout("", "")
    more: dict[str, Any] = {
        "annotations": [],
        "margin": {"t": 32},
        "legend": {"y": -0.18 / rows, "yanchor": "top"},
    }
    if count > 1:
        shape = {"rows": rows, "columns": columns, "pattern": "independent"}
        more["grid"] = shape | {"xgap": 0.16, "ygap": 0.32}
    named: set[str] = set()
    for place, (plane, title, traces) in enumerate(panels):
        suffix = str(place + 1) if place else ""
        more[f"xaxis{suffix}"] = {**base["xaxis"], "title": {"text": label(plane.axes[0])}}
        more[f"yaxis{suffix}"] = {**base["yaxis"], "title": {"text": label(plane.axes[1])}}
        more["annotations"].append(
            {
                "text": label(title),
                "xref": f"x{suffix} domain",
                "yref": f"y{suffix} domain",
                "x": 0,
                "y": 1.02,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
            }
        )
        for trace in traces:
            first = trace["name"] not in named
            named.add(trace["name"])
            shown = bool(trace.pop("named", False)) and first
            data.append({**trace, **_panel(place), "showlegend": shown})
    more["showlegend"] = any(trace["showlegend"] for trace in data)
    return {"data": data, "layout": layout(height=max(380, 330 * rows), more=more)}


def _by_instance(plane: Plane) -> list[Trace]:
    names = list(dict.fromkeys(plane.instance.tolist()))
    if len(names) > len(INSTANCES):
        codes = np.array([names.index(name) for name in plane.instance.tolist()])
        return [_dots(plane, np.ones(len(codes), bool), "instance", {"color": numbers(codes)})]
    traces = []
    for name, colour in zip(names, INSTANCES, strict=False):
        marker = {"color": INK if colour == BLACK else colour}
        traces.append(_dots(plane, plane.instance == name, name, marker) | {"named": True})
    return traces


def _by_hidden(content: ByHidden, name: str) -> list[Trace]:
    everything = np.ones(len(content.plane.place), bool)
    marker = {"color": numbers(content.plane.hidden[name]), "colorscale": "Viridis"}
    return [_dots(content.plane, everything, name, marker)]


def _dots(plane: Plane, own: Any, name: str, marker: dict[str, Any]) -> Trace:
    values = marker["color"]
    shown = [label(shortened(name)) for name in plane.instance[own].tolist()]
    if isinstance(values, list):
        shown = [f"{text}: {figure(value)}" for text, value in zip(shown, values, strict=True)]
        marker = {"colorscale": "Viridis", **marker}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "legendgroup": label(name),
        "x": numbers(plane.place[own, 0]),
        "y": numbers(plane.place[own, 1]),
        "text": shown,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 5, "opacity": 0.8, **marker},
    }

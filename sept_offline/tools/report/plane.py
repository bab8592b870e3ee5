"""The latent plane of a run: logged segments with their posterior spread, and test episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.tools.bench.figures.figure import INSTANCES, Array, Dots
from sept_offline.tools.bench.figures.plane import directions
from sept_offline.tools.report.blocks import Chart
from sept_offline.tools.report.charts import (
    GRID,
    INK,
    SURFACE,
    Plot,
    Trace,
    dots_trace,
    ink,
    label,
    layout,
    numbers,
)
from sept_offline.tools.report.sources import Run
from sept_offline.tools.report.text import count, shortened

SEGMENTS = 400
"""Most encoded segments, the same number of each instance."""
HOVER = "%{text}<br>%{x:.3g}, %{y:.3g}<extra></extra>"


@dataclass(frozen=True)
class Cloud:
    """Places `[N, 2]` and spread `[N, 2]`, one standard deviation, in the plane; instance `[N]`."""

    axes: tuple[str, str]
    place: Array
    spread: Array
    instance: NDArray[np.int64]
    names: Sequence[str]
    hidden: dict[str, Array]
    """Hidden parameter → `[N]`; empty where they are not known."""
    tested: Array
    """Places `[M, 2]` of the test episodes."""
    tested_names: Sequence[str]


def plane_chart(run: Run, name: str) -> Chart | None:
    """None for a run without an encoder, without logs, or whose segments are too short."""
    cloud = _cloud(run)
    if cloud is None:
        return None
    how = ", in its two widest directions" if cloud.axes[0] == "first PC" else ""
    tests = "; diamonds are the test episodes" if len(cloud.tested) else ""
    choice = " The menu colours them by a hidden parameter." if cloud.hidden else ""
    return Chart(
        name,
        "The latent plane",
        f"Latents of {count(len(cloud.place))} logged initial segments{how}, with one standard "
        f"deviation of the posterior{tests}.{choice}",
        _plot(cloud),
    )


def _cloud(run: Run) -> Cloud | None:
    encoder = getattr(run.agent.context, "encoder", None) if run.agent is not None else None
    if encoder is None or run.data is None or run.agent is None:
        return None
    segments = run.data.stacked(run.agent.stack).segments(encoder.steps)
    if not len(segments.actions):
        return None
    rows = _evenly(segments.instance, max(1, SEGMENTS // len(run.data.instances)))
    taken = run.agent.spaces.actions.encode(segments.actions[rows])
    mean, log_var = encoder.encode(segments.observations[rows], taken)
    played = run.results.episodes if run.results is not None else ()
    dim = mean.shape[1]
    latents = [e for e in played if e.latent is not None and len(e.latent) == dim][:SEGMENTS]
    tested = np.array([e.latent for e in latents], dtype=np.float64).reshape(-1, dim)
    axes, place, spread, there = _projected(
        np.asarray(mean, np.float64), np.exp(np.asarray(log_var, np.float64)), tested
    )
    hidden: dict[str, Array] = {}
    if run.data.hidden is not None:
        table = run.data.hidden.values[segments.instance[rows]]
        for column, name in enumerate(run.data.hidden.names):
            # An unknown parameter is NaN; a constant one cannot colour anything.
            if np.isfinite(table[:, column]).all() and len(np.unique(table[:, column])) > 1:
                hidden[name] = np.asarray(table[:, column], dtype=np.float64)
    return Cloud(
        axes,
        place,
        spread,
        segments.instance[rows],
        run.data.instances,
        hidden,
        there,
        [f"{shortened(e.instance)}, episode {e.episode}" for e in latents],
    )


def _evenly(instance: NDArray[np.int64], each: int) -> NDArray[np.int64]:
    kept = []
    for code in np.unique(instance):
        rows = np.flatnonzero(instance == code)
        kept.append(rows[np.linspace(0, len(rows) - 1, min(each, len(rows))).astype(np.int64)])
    chosen = np.concatenate(kept)
    return chosen[:: -(-len(chosen) // SEGMENTS)]  # thousands of instances: not even one each


def _projected(
    mean: Array, variance: Array, tested: Array
) -> tuple[tuple[str, str], Array, Array, Array]:
    """Axes' names, places `[N, 2]`, spread `[N, 2]` and test places `[M, 2]`."""
    dim = mean.shape[1]
    if dim == 2:
        return ("z₁", "z₂"), mean, np.sqrt(variance), tested
    if dim == 1:
        flat = [np.column_stack([z[:, 0], np.zeros(len(z))]) for z in (mean, tested)]
        spread = np.column_stack([np.sqrt(variance[:, 0]), np.zeros(len(mean))])
        return ("z", ""), flat[0], spread, flat[1]
    centre, two = mean.mean(axis=0), directions(mean).T
    spread = np.sqrt(variance @ two**2)
    return ("first PC", "second PC"), (mean - centre) @ two, spread, (tested - centre) @ two


def _plot(cloud: Cloud) -> Plot:
    groups = [_by_instance(cloud)]
    groups += [[_by_value(cloud, name, values)] for name, values in cloud.hidden.items()]
    data = [trace for group in groups for trace in group]
    for trace in data[len(groups[0]) :]:
        trace["visible"] = False
    extra: list[Trace] = [_tests(cloud)] if len(cloud.tested) else []
    menu = _menu(cloud, [len(group) for group in groups], len(extra)) if cloud.hidden else []
    more = {
        "updatemenus": menu,
        "margin": {"t": 56 if menu else 16},
        "legend": {"x": 0, "y": -0.16, "yanchor": "top"},
        "showlegend": True,
        "yaxis": {"scaleanchor": "x"} if cloud.axes[1] else {"visible": False},
    }
    return {"data": data + extra, "layout": layout(*cloud.axes, height=460, more=more)}


def _by_instance(cloud: Cloud) -> list[Trace]:
    """A trace per instance while the colours last, else one on a colour scale."""
    codes = np.unique(cloud.instance)
    if len(codes) > len(INSTANCES):
        return [_by_value(cloud, "instance", cloud.instance.astype(np.float64))]
    traces = []
    for code, colour in zip(codes, INSTANCES, strict=False):
        name = shortened(cloud.names[code])
        traces.append(_points(cloud, cloud.instance == code, name, ink(colour), colour=colour))
    return traces


def _by_value(cloud: Cloud, name: str, values: Array) -> Trace:
    everything = np.ones(len(cloud.place), dtype=np.bool_)
    trace = _points(cloud, everything, name, GRID, values=values)
    bar = {"title": {"text": label(name)}, "thickness": 12, "outlinewidth": 0}
    trace["marker"] |= {"showscale": True, "colorbar": bar}
    return trace | {"showlegend": False}


def _points(cloud: Cloud, rows: NDArray[np.bool_], name: str, bars: str, **colouring: Any) -> Trace:
    """Logged segments and, in the colour `bars`, one standard deviation of each."""
    notes = [cloud.names[code] for code in cloud.instance[rows]]
    x, y = cloud.place[rows].T
    spread = {
        axis: {
            "type": "data",
            "array": numbers(cloud.spread[rows, column]),
            "color": bars,
            "thickness": 0.6,
            "width": 0,
        }
        for column, axis in enumerate(("error_x", "error_y"))
    }
    return dots_trace(Dots(name, x, y, notes, **colouring)) | {"hovertemplate": HOVER} | spread


def _tests(cloud: Cloud) -> Trace:
    x, y = cloud.tested.T
    trace = dots_trace(Dots("test episodes", x, y, ()))
    marker = {
        "symbol": "diamond-open",
        "size": 9,
        "color": INK,
        "line": {"width": 1.2, "color": INK},
    }
    names = [label(name) for name in cloud.tested_names]
    return trace | {"text": names, "hovertemplate": HOVER, "marker": marker}


def _menu(cloud: Cloud, sizes: list[int], extra: int) -> list[dict[str, Any]]:
    """Which colouring is shown; the test episodes always are."""
    buttons = []
    for place, name in enumerate(["instance", *cloud.hidden]):
        seen = [place == group for group, size in enumerate(sizes) for _ in range(size)]
        buttons.append(
            {
                "label": label(name),
                "method": "restyle",
                "args": [{"visible": seen + [True] * extra}],
            }
        )
    return [
        {
            "buttons": buttons,
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "bgcolor": SURFACE,
            "bordercolor": GRID,
            "font": {"color": INK},
        }
    ]

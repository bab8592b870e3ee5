"""Curves, points along an axis, and latent planes on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sept_offline.bench.figures.axes import Point, number
from sept_offline.bench.figures.canvas import sheet
from sept_offline.bench.figures.content import AlongAxis, ByHidden, ByInstance, Content, Curves
from sept_offline.bench.figures.curves import in_order
from sept_offline.bench.figures.look import INSTANCES, LOOKS, MARKERS, look
from sept_offline.bench.figures.plane import Plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 25.0
"""Numbers whose largest is so many times the smallest are drawn by their logarithm."""


def draw(content: Content) -> Figure:
    """Any of them."""
    if isinstance(content, Curves):
        return _draw_curves(content)
    if isinstance(content, AlongAxis):
        return _draw_axis(content)
    if isinstance(content, ByInstance):
        return _draw_instances(content)
    return _draw_hidden(content)


def _draw_curves(content: Curves) -> Figure:
    figure, sheets = sheet(len(content.panels), height=content.height)
    for axes, (label, curves) in zip(sheets, content.panels, strict=True):
        for curve in in_order(curves):
            own = look(curve.method)
            width = 1.5 if curve.method == "sept" else 1.1
            if curve.low is not None and curve.high is not None:
                band = (curve.x, curve.low, curve.high)
                axes.fill_between(*band, color=own.colour, alpha=0.13, lw=0)
            axes.plot(
                *(curve.x, curve.mean),
                color=own.colour,
                linestyle=own.dash,
                linewidth=width,
                label=own.name,
            )
        axes.set_ylabel(label)
        axes.margins(x=0.02)
    sheets[0].set_title(content.title, loc="left")
    sheets[-1].set_xlabel(content.across)
    if content.named:
        _legend(figure, sheets)
    return figure


def _draw_axis(content: AlongAxis) -> Figure:
    """A line a method along the axis, bars for the intervals; the base's points are hollow."""
    axis = content.axis
    figure, (axes,) = sheet(1)
    where = {value: float(place) for place, value in enumerate(axis.values)}
    if axis.numeric:
        where = {value: float(value) for value in axis.values}
        places = [where[value] for value in axis.values]
        if places[0] > 0 and places[-1] > WIDE * places[0]:
            axes.set_xscale("log")
    shift = 0.0 if axis.numeric else 0.07
    for rank, method in enumerate(axis.methods):
        own, points = look(method), axis.of(method)
        aside = shift * (rank - (len(axis.methods) - 1) / 2)
        x = [where[point.value] + aside for point in points]
        mean = np.array([point.mean for point in points])
        reach = np.array([_reach(point) for point in points]).T
        axes.errorbar(
            *(x, mean),
            yerr=np.maximum(reach, 0.0),
            color=own.colour,
            linestyle=own.dash if axis.numeric else "none",
            marker="o",
            markersize=3.5,
            capsize=1.5,
            elinewidth=0.8,
            label=own.name,
        )
        for place, point in zip(x, points, strict=True):
            if point.base:
                axes.plot(
                    *(place, point.mean), "o", markersize=3.5, mfc="white", mec=own.colour, zorder=5
                )
    places = [where[value] for value in axis.values]
    axes.set_xticks(places, [_broken(value) for value in axis.values])
    axes.minorticks_off()
    if not axis.numeric:
        axes.set_xlim(-0.5, len(axis.values) - 0.5)
    axes.set_title(content.title, loc="left")
    axes.set_xlabel(content.across)
    axes.set_ylabel(content.label)
    _legend(figure, [axes])
    return figure


def _reach(point: Point) -> tuple[float, float]:
    """How far the interval goes down and up; NaN, which is not drawn, where there is none."""
    if point.low is None or point.high is None:
        return np.nan, np.nan
    return point.mean - point.low, point.high - point.mean


def _draw_instances(content: ByInstance) -> Figure:
    planes = content.planes
    figure, sheets = _grid(len(planes))
    names = list(dict.fromkeys(name for plane in planes for name in plane.instance.tolist()))
    few = len(names) <= len(INSTANCES)
    last: Any = None
    for axes, plane in zip(sheets, planes, strict=False):
        if few:
            for name, colour, marker in zip(names, INSTANCES, MARKERS, strict=False):
                own = plane.place[plane.instance == name]
                axes.scatter(
                    own[:, 0],
                    own[:, 1],
                    s=4,
                    c=colour,
                    marker=marker,
                    alpha=0.6,
                    linewidths=0,
                    label=name,
                )
        else:
            codes = [names.index(name) for name in plane.instance.tolist()]
            last = axes.scatter(
                plane.place[:, 0], plane.place[:, 1], s=4, c=codes, cmap="viridis", linewidths=0
            )
        _name_plane(axes, plane, plane.title)
    if few:
        _legend(figure, sheets, dot=2.5)
    else:
        figure.colorbar(last, ax=sheets, label="training instance", shrink=0.7, aspect=30)
    figure.suptitle(content.title, fontsize=7.5)
    return figure


def _draw_hidden(content: ByHidden) -> Figure:
    plane = content.plane
    figure, sheets = _grid(len(content.shares))
    for axes, (names, share) in zip(sheets, content.shares.items(), strict=False):
        dots = axes.scatter(
            plane.place[:, 0],
            plane.place[:, 1],
            s=4,
            c=plane.hidden[names[0]],
            cmap="viridis",
            linewidths=0,
        )
        bar = figure.colorbar(dots, ax=axes, aspect=25)
        bar.outline.set_linewidth(0.4)
        bar.ax.tick_params(labelsize=5.5, length=1.5)
        _name_plane(axes, plane, f"{', '.join(names)}: R² {share:.2f}")
    figure.suptitle(content.title, fontsize=7.5)
    return figure


def _grid(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(count, 2)
    figure, sheets = sheet(-(-count // columns), columns, height=4.0 if columns > 1 else 6.0)
    for spare in sheets[count:]:
        spare.remove()
    return figure, sheets[:count]


def _name_plane(axes: Axes, plane: Plane, title: str) -> None:
    axes.set_title(title)
    axes.locator_params(nbins=4)
    axes.set_xlabel(plane.axes[0])
    axes.set_ylabel(plane.axes[1])


def _legend(figure: Figure, sheets: Sequence[Axes], dot: float = 1.0) -> None:
    """Every name once, below all panels."""
    handles: dict[str, Any] = {}
    for axes in sheets:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    places = {own.name: place for place, own in enumerate(LOOKS.values())}
    names = sorted(handles, key=lambda name: places.get(name, len(places)))
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=len(names) if len(names) <= 4 else min(4, -(-len(names) // 2)),
        markerscale=dot,
    )


def _broken(value: str) -> str:
    """A mixture of behaviours takes a line each; 1e+06 is none."""
    return value if number(value) is not None else value.replace("+", "\n+ ")

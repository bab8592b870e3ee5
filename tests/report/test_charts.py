"""A figure on a page and on paper: two media, one description, the same content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sept_offline.tools.bench.figures import catalogue
from sept_offline.tools.bench.figures.figure import BLACK, Figure, Line, Panel, Picture, Scale
from sept_offline.tools.bench.figures.paper import draw, style
from sept_offline.tools.report.charts import INK, POINTS, plot
from tests.bench.made_up import VARIED, joined, made_up

PICTURES = [
    picture
    for picture in catalogue(joined(made_up("acrobot", VARIED), made_up("navigation2d-switch")))
    if isinstance(picture, Picture)
]


def traces(chart: dict[str, Any], place: int) -> list[dict[str, Any]]:
    """The named traces of a panel: bands have no name."""
    axis = f"x{place + 1}" if place else "x"
    return [trace for trace in chart["data"] if trace["xaxis"] == axis and "name" in trace]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_both_media_show_the_same(picture: Picture) -> None:
    figure, chart = picture.figure, plot(picture.figure)
    with style():
        sheet = draw(picture.figure)
    panels = sheet.axes[: len(figure.panels)]
    legend = [text.get_text() for own in sheet.legends for text in own.get_texts()]
    shown = sorted(
        (trace["legendrank"], trace["name"]) for trace in chart["data"] if trace["showlegend"]
    )
    assert legend == [name for _, name in shown] == list(figure.legend)
    for place, (axes, panel) in enumerate(zip(panels, figure.panels, strict=True)):
        suffix = str(place + 1) if place else ""
        across, up = (chart["layout"][f"{side}axis{suffix}"] for side in "xy")
        assert axes.get_xlabel() == across["title"]["text"] == panel.across.label
        assert axes.get_ylabel() == up["title"]["text"] == panel.up.label
        assert axes.get_xscale() == across.get("type", "linear")
        for mark, trace in zip(panel.marks, traces(chart, place), strict=True):
            np.testing.assert_allclose(trace["x"], mark.x, rtol=1e-5)
            np.testing.assert_allclose(trace["y"], mark.y, rtol=1e-5)
        drawn = {line.get_label(): line for line in axes.lines}
        for mark in panel.marks:
            if isinstance(mark, Line):
                np.testing.assert_array_equal(np.asarray(drawn[mark.name].get_ydata()), mark.y)


def test_every_kind_of_mark_is_drawn() -> None:
    kinds = {type(m).__name__ for p in PICTURES for panel in p.figure.panels for m in panel.marks}
    assert kinds == {"Line", "Intervals", "Dots"}


def test_a_long_line_keeps_its_ends_and_black_follows_the_theme() -> None:
    x = np.arange(10_000.0)
    line = Line("long", x, x**2, colour=BLACK)
    (trace,) = plot(Figure("", [Panel([line], Scale("x"), Scale("y"))]))["data"]
    assert len(trace["x"]) == POINTS and (trace["x"][0], trace["x"][-1]) == (0, 9999)
    assert trace["line"]["color"] == INK and not trace["showlegend"]

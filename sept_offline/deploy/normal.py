"""The normal distribution function and its inverse as ONNX operators, which has neither in float64.

Both are Chebyshev polynomials, interpolated when a graph is made, of what is left once the growth
of the functions is taken out. They agree with the library's own to some 1e-13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from sept_offline.deploy.graph import Graph

F64 = np.float64
LEAST = 1e-16
"""The least mass whose place is asked for; see `normal_quantile`."""
FARTHEST = 25.0
"""Beyond this the complementary error function is 0 for all that is done with it."""
DEGREE = 36


def mass(graph: Graph, x: str) -> str:
    """Φ(x), elementwise: with y = |x|/√2 and t = 2/(2 + y), erfc(y) = t·exp(P(t) − y²)."""

    def rest(t: float) -> float:
        y = 2 / t - 2
        return math.log(math.erfc(y) / t) + y * y

    y = graph.op("Mul", graph.op("Abs", x), _constant(graph, math.sqrt(0.5)))
    y = graph.op("Min", y, _constant(graph, FARTHEST))
    t = graph.op("Div", _constant(graph, 2), graph.op("Add", y, _constant(graph, 2)))
    power = graph.op(
        "Sub", _polynomial(graph, t, rest, 2 / (2 + FARTHEST), 1), graph.op("Mul", y, y)
    )
    tail = graph.op("Mul", graph.op("Mul", t, graph.op("Exp", power)), _constant(graph, 0.5))
    above = graph.op("Greater", x, _constant(graph, 0))
    return graph.op("Where", above, graph.op("Sub", _constant(graph, 1), tail), tail)


def quantile(graph: Graph, places: str) -> str:
    """Φ⁻¹(p), elementwise: for p ≤ ½ a polynomial in log √(−2·log p), mirrored above."""
    inverse = NormalDist().inv_cdf

    def rest(s: float) -> float:
        return inverse(min(0.5, math.exp(-0.5 * math.exp(2 * s))))

    first, last = (math.log(math.sqrt(-2 * math.log(p))) for p in (0.5, LEAST))
    low, high = _constant(graph, LEAST), _constant(graph, 1 - LEAST)
    inside = graph.op("Min", graph.op("Max", places, low), high)
    above = graph.op("Greater", inside, _constant(graph, 0.5))
    mirrored = graph.op("Where", above, graph.op("Sub", _constant(graph, 1), inside), inside)
    root = graph.op("Sqrt", graph.op("Mul", graph.op("Log", mirrored), _constant(graph, -2)))
    found = _polynomial(graph, graph.op("Log", root), rest, first, last)
    return graph.op("Where", above, graph.op("Neg", found), found)


def _polynomial(
    graph: Graph, x: str, function: Callable[[float], float], low: float, high: float
) -> str:
    """A polynomial that interpolates `function` from `low` to `high`, by Clenshaw's recurrence."""
    places = np.polynomial.Chebyshev.interpolate(
        np.vectorize(function), DEGREE, domain=[low, high]
    ).coef
    scale = 2 / (high - low)
    t = graph.op("Mul", graph.op("Sub", x, _constant(graph, low)), _constant(graph, scale))
    t = graph.op("Sub", t, _constant(graph, 1))
    twice = graph.op("Mul", t, _constant(graph, 2))
    newer, older = _constant(graph, places[-1]), _constant(graph, 0)
    for coefficient in places[-2:0:-1]:
        grown = graph.op("Sub", graph.op("Mul", twice, newer), older)
        newer, older = graph.op("Add", grown, _constant(graph, coefficient)), newer
    grown = graph.op("Sub", graph.op("Mul", t, newer), older)
    return graph.op("Add", grown, _constant(graph, places[0]))


def _constant(graph: Graph, value: float) -> str:
    return graph.constant(value, F64)

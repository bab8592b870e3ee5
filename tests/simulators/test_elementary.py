"""The elementary functions agree with the C library's, at the edges too."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from simulators.elementary import exp, log, sin_cos


def worst_error(ours: Callable[[float], float], theirs: Callable[[float], float], xs) -> float:
    """The largest difference, in units of the last place."""
    return max(abs(ours(x) - theirs(x)) / np.spacing(abs(theirs(x))) for x in xs.tolist())


def test_they_are_within_two_units_of_the_last_place() -> None:
    rng = np.random.default_rng(0)
    assert worst_error(exp, math.exp, rng.uniform(-700, 700, 5000)) <= 2
    assert worst_error(exp, math.exp, rng.uniform(-1, 1, 5000)) <= 2
    assert worst_error(log, math.log, 10 ** rng.uniform(-300, 300, 5000)) <= 2
    assert worst_error(log, math.log, rng.uniform(0.9, 1.1, 5000)) <= 2
    angles = rng.uniform(-100, 100, 5000)
    assert worst_error(lambda x: sin_cos(x)[0], math.sin, angles) <= 2
    assert worst_error(lambda x: sin_cos(x)[1], math.cos, angles) <= 2


def test_edges() -> None:
    assert exp(0.0) == 1.0 and exp(math.inf) == math.inf and exp(-math.inf) == 0.0
    assert math.isnan(exp(math.nan))
    assert exp(709.0) == math.inf and exp(-709.0) == 0.0
    assert log(1.0) == 0.0 and log(0.0) == -math.inf and log(math.inf) == math.inf
    assert math.isnan(log(-1.0)) and math.isnan(log(math.nan))
    assert sin_cos(0.0) == (0.0, 1.0)


@pytest.mark.parametrize("turn", range(-3, 4))
def test_quarters_of_a_turn(turn: int) -> None:
    found = sin_cos(turn * math.pi / 2)
    np.testing.assert_allclose(
        found, [math.sin(turn * math.pi / 2), math.cos(turn * math.pi / 2)], atol=1e-16
    )

"""When an interval is usual, and which steps come late by it."""

from __future__ import annotations

import numpy as np
import pytest

from sept_offline.data.records import Float64
from sept_offline.tools.importing.measures import Beat, Clock


def beat(*parts: object) -> Beat | None:
    clock = Clock()
    for part in parts:
        clock.add(np.asarray(part))
    return clock.beat()


def drawn(name: str) -> Float64:
    rng = np.random.default_rng(0)
    return {
        "even over a day": rng.integers(1, 86_400, 4000) * 1e6,
        "whole minutes": rng.integers(1, 31, 4000) * 6e7,
        "as events come": rng.exponential(10.0, 4000),
        "as events come, in whole seconds": np.ceil(rng.exponential(10.0, 4000)),
        "a spread of a third": rng.lognormal(3.0, 0.3, 4000),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "even over a day",
        "whole minutes",
        "as events come",
        "as events come, in whole seconds",
        "a spread of a third",
    ],
)
def test_no_alarm_where_no_interval_is_usual(name: str) -> None:
    assert beat(drawn(name)) is None


@pytest.mark.parametrize("unit", [1, 10, 300_000_000, 0.04])
@pytest.mark.parametrize("kept", [1.0, 0.9, 0.5, 0.34])
def test_rows_that_are_missing_at_random(unit: float, kept: float) -> None:
    rng = np.random.default_rng(1)
    here = np.flatnonzero(rng.random(20_000) < kept)
    found = beat(np.diff(here) * unit)
    assert found is not None and found.interval == pytest.approx(unit)
    assert found.late == int((np.diff(here) > 1).sum())


def test_a_clock_that_trembles_and_breaks_of_any_length() -> None:
    rng = np.random.default_rng(2)
    regular = rng.normal(300.0, 8.0, 5000)
    breaks = rng.uniform(460.0, 90_000.0, 60)
    found = beat(regular, breaks)
    assert found is not None and found.late == 60
    assert found.interval == pytest.approx(300, rel=0.01)


def test_the_border_and_the_order() -> None:
    assert beat([2] * 50, [3] * 4, [2.9] * 3) == Beat(2.0, 4)
    assert beat([3] * 4, [2.9] * 3, [2] * 50) == Beat(2.0, 4)
    assert beat([]) is None and beat([0, 0]) is None
    assert beat([2.0**-80] * 3, [2.0**80]) == Beat(2.0**-80, 1)


@pytest.mark.parametrize(
    ("length", "per_second", "spelled"),
    [
        (3e8, 1e6, "5 min"),
        (3.6e12, 1e9, "1 h"),
        (5e3, 1e6, "0.005 s"),
        (86_400e6, 1e6, "1 d"),
        (10.0, None, "10"),
    ],
)
def test_an_interval_for_people(length: float, per_second: float | None, spelled: str) -> None:
    assert Beat(length, 0).spelled(per_second) == spelled

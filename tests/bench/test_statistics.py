"""Figures by hand, and intervals against all resamples there are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sept_offline.tools.bench.statistics import (
    complete,
    crossed_band,
    crossed_interval,
    grid,
    interquartile_means,
    means,
    paired,
    standard_error,
    summarise,
)


def rows(values: dict[tuple[int, str], list[float | None]], column: str = "x") -> list[Any]:
    return [
        {"seed": seed, "instance": instance, column: value}
        for (seed, instance), own in values.items()
        for value in own
    ]


def test_episodes_of_an_instance_count_once() -> None:
    seeds, instances, found = grid(
        rows({(1, "b"): [4.0], (0, "a"): [1.0, 3.0, 5.0], (0, "b"): [2.0], (1, "a"): [None]}), "x"
    )
    assert (seeds, instances) == ([0, 1], ["b", "a"])
    np.testing.assert_array_equal(found, [[2.0, 3.0], [4.0, np.nan]])
    np.testing.assert_array_equal(complete(found), [[2.0], [4.0]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 3.0, 100.0], 2.5),
        # n = 5: the middle half is from 1.25 to 3.75
        ([0.0, 1.0, 2.0, 4.0, 90.0], (0.75 * 1 + 2 + 0.75 * 4) / 2.5),
        ([5.0, -80.0], -37.5),
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    for order in itertools.islice(itertools.permutations(values), 5):
        assert interquartile_means(np.array([order]))[0] == pytest.approx(expected)


def test_interquartile_mean_is_the_trimmed_mean_where_a_quarter_is_whole() -> None:
    values = np.random.default_rng(0).standard_normal((20, 24))
    np.testing.assert_allclose(
        interquartile_means(values), stats.trim_mean(values, 0.25, axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("estimate", [means, interquartile_means])
def test_the_interval_is_that_of_all_resamples(estimate: Any) -> None:
    """Three seeds of two instances have 3³ · 2² resamples, all equally likely."""
    values = np.array([[0.0, 1.0], [2.0, 5.0], [3.0, 3.5]])
    every = [
        [values[seed, place] for seed in seeds for place in pair]
        for seeds in itertools.product(range(3), repeat=3)
        for pair in itertools.product(range(2), repeat=2)
    ]
    assert len(every) == 27 * 4
    every_estimate = estimate(np.array(every))
    expected = np.quantile(every_estimate, [0.025, 0.975], method="inverted_cdf")
    found = crossed_interval(values, estimate, resamples=100_000)
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_instances_of_one_seed_are_not_taken_for_independent() -> None:
    """Two seeds that disagree: a hundred instances each make the mean no surer."""
    values = np.repeat([[0.0], [1.0]], 100, axis=1)
    assert crossed_interval(values) == (0.0, 1.0)
    found = summarise(values)
    assert found is not None
    assert (found["mean"], found["least"], found["most"]) == (0.5, 0.0, 1.0)
    assert found["se"] == pytest.approx(np.std([0, 1], ddof=1) / np.sqrt(2))


@pytest.mark.parametrize(
    ("of_seed", "of_instance", "of_both"), [(0.0, 1.0, 0.2), (0.3, 1.0, 0.3), (0.3, 0.3, 1.0)]
)
def test_intervals_hold_the_truth_about_as_often_as_they_say(
    of_seed: float, of_instance: float, of_both: float
) -> None:
    """All seeds play the same instances, so a hard one is hard for all of them."""
    rng, seeds, instances, tries = np.random.default_rng(0), 5, 20, 300
    held = 0
    for _ in range(tries):
        values = rng.normal(0, of_both, (seeds, instances))
        values += rng.normal(0, of_seed, (seeds, 1)) + rng.normal(0, of_instance, (1, instances))
        interval = crossed_interval(values, resamples=400)
        assert interval is not None
        held += interval[0] <= 0 <= interval[1]
    # Percentiles of few draws fall a little short of 95 %.
    assert held / tries > 0.87


def test_a_single_seed_has_neither_error_nor_interval_and_nothing_no_figures() -> None:
    single = np.array([[1.0, 2.0]])
    assert standard_error(single) is None and crossed_interval(single) is None
    assert crossed_band(single[:, :, None]) is None
    found = summarise(single)
    assert found is not None and (found["low"], found["high"]) == (None, None)
    gap = paired(rows({(0, "a"): [1.0]}), rows({(0, "a"): [0.5]}), "x")
    assert gap is not None and (gap["mean"], gap["low"], gap["high"]) == (0.5, None, None)
    assert summarise(np.full((2, 3), np.nan)) is None


def test_the_same_grid_gives_the_same_interval() -> None:
    values = np.random.default_rng(1).standard_normal((4, 5))
    assert crossed_interval(values) == crossed_interval(values.copy())


def test_pairs_are_of_one_seed_and_one_instance() -> None:
    own = rows({(s, i): [10.0 * s + ord(i) + 0.5] for s in (0, 1, 2) for i in "abc"})
    other = rows({(s, i): [10.0 * s + ord(i)] for s in (3, 2, 0) for i in "cab"})
    found = paired(own, other, "x")
    assert found is not None and found["seeds"] == 2
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((0.5, 0.5, 0.5))
    assert paired(own, rows({(9, "a"): [1.0]}), "x") is None
    assert paired(own, rows({(0, "a"): [None]}), "x") is None

"""The distribution of ELBOs that novelty is measured against, on values whose answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sept_offline.methods.knowledge import LEVELS, as_if_fresh, smoothed_quantiles

FLAGGED = 0.01


def threshold(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The value below which an episode is flagged."""
    return float(smoothed_quantiles(values, weights)[LEVELS < FLAGGED].max())


def shares_flagged(distribution: Any, effective: int) -> NDArray[np.float64]:
    """How much of a distribution lies below the threshold from a sample, 200 times."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        # importance weights: half of the segments hardly count
        weights = rng.permutation(np.repeat([1.0, 0.01], effective))
        values = -distribution.rvs(size=len(weights), random_state=rng)
        found.append(distribution.sf(-threshold(values, weights)))
    return np.array(found)


@pytest.mark.parametrize(
    "distribution",
    [stats.expon(), stats.gamma(5), stats.norm(), stats.t(5)],
    ids=lambda d: d.dist.name,
)
def test_known_instances_are_flagged_about_once_in_a_hundred(distribution: Any) -> None:
    shares = shares_flagged(distribution, effective=200)
    assert 0.007 < np.median(shares) < 0.014
    assert ((shares > 0.003) & (shares < 0.03)).mean() > 0.9


def test_many_segments_are_believed() -> None:
    """Little is smoothed where the first percentile is well known, whatever its shape."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(40_000) < 0.02, -500.0, 0.0) + rng.normal(size=40_000)
    assert np.quantile(values, 0.03) > -5
    assert threshold(values, np.ones(40_000)) < -490
    assert shares_flagged(stats.norm(), effective=4_000) == pytest.approx(0.01, abs=0.005)


def test_what_was_logged_again_and_again_is_known() -> None:
    assert threshold(np.full(50, 3.0), np.ones(50)) == 3.0


def test_weights_decide() -> None:
    values = np.concatenate([np.linspace(0, 1, 100), np.linspace(10, 11, 100)])
    weights = np.repeat([0.0, 1.0], 100)
    assert smoothed_quantiles(values, weights)[LEVELS > 0.5].min() > 10
    assert np.array_equal(
        smoothed_quantiles(values, weights), smoothed_quantiles(values[100:], weights[100:])
    )


def test_what_fitting_gained_is_taken_back() -> None:
    rng = np.random.default_rng(0)
    fresh = rng.random(4000) < 0.2
    honest = rng.normal(size=4000)
    overfit = np.where(fresh, honest, 5 + 0.5 * honest)
    corrected = as_if_fresh(overfit, fresh)
    assert np.array_equal(corrected[fresh], honest[fresh])
    assert corrected[~fresh] == pytest.approx(honest[~fresh], abs=0.25)
    # fresh segments that look better by chance move nothing
    assert as_if_fresh(np.where(fresh, 0.1, honest), fresh)[~fresh] == pytest.approx(honest[~fresh])
    assert np.array_equal(as_if_fresh(honest, np.ones(4000, dtype=bool)), honest)

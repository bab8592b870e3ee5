"""Separation of instances: chance is recognised, and uncertainty is as large as errors."""

from __future__ import annotations

import numpy as np
import pytest

from sept_offline.latent.identification import REGIONS, Separation, measure_separation


def separated(
    signal: float, instances: int = 8, each: int = 40, seed: int = 0, permuted: bool = False
) -> Separation:
    """Latents that hold `signal` times their instance's place, and noise of unit size."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(instances, 2))
    instance = np.repeat(np.arange(instances), 2 * each)
    mean = (signal * centres[instance] + rng.normal(size=(len(instance), 2))).astype(np.float32)
    if permuted:
        instance = rng.permutation(instance)
    new = np.arange(len(instance)) % 2 == 1
    deviation = np.full((int(new.sum()), 2), 0.3, dtype=np.float32)
    weights = np.ones(int(new.sum()))
    return measure_separation(
        mean[~new], instance[~new], mean[new], deviation, instance[new], weights, rng
    )


@pytest.mark.parametrize("instances", [2, 8, 100])
def test_what_says_nothing_is_found_out(instances: int) -> None:
    for seed in range(5):
        for found in (
            separated(0.0, instances, each=20, seed=seed),
            separated(3.0, instances, each=20, seed=seed, permuted=True),
        ):
            assert not found.better_than_chance
            assert found.uncertainty >= 0.9
            assert found.low <= 0.5 <= found.high


@pytest.mark.parametrize("instances", [2, 8, 100])
def test_what_says_all_is_found_out(instances: int) -> None:
    found = separated(50.0, instances)
    assert found.better_than_chance
    assert found.apart > 0.95
    assert found.uncertainty < 0.25


def test_uncertainty_is_the_share_that_is_not_known() -> None:
    # signal and noise of one size: half of the variance is the instance's
    found = [separated(1.0, instances=200, seed=seed).uncertainty for seed in range(3)]
    assert np.mean(found) == pytest.approx(np.sqrt(0.5), abs=0.05)


def test_the_scale_makes_the_stated_deviation_that_large() -> None:
    found = separated(1.0, instances=50)
    assert found.scale * 0.3 == pytest.approx(found.uncertainty)


def test_regions_hold_as_many_centres_as_they_say() -> None:
    found = separated(2.0, instances=20)
    fresh = separated(2.0, instances=20, seed=1)
    assert list(found.radii) == sorted(found.radii)
    assert found.radii == pytest.approx(fresh.radii, rel=0.15)
    # errors are normal with unit size, in units of the stated 0.3, in two dimensions
    expected = [np.sqrt(-2 * np.log(1 - level)) / 0.3 for level in REGIONS]
    assert found.radii == pytest.approx(expected, rel=0.15)


def test_an_instance_that_nothing_is_known_of_is_left_out() -> None:
    rng = np.random.default_rng(0)
    mean = np.array([[0.0], [0.1], [5.0], [5.1]], dtype=np.float32)
    asked = np.array([[0.0], [5.0], [9.0]], dtype=np.float32)
    found = measure_separation(
        mean,
        np.array([0, 0, 1, 1]),
        asked,
        np.ones((3, 1), dtype=np.float32),
        np.array([0, 1, 2]),
        np.ones(3),
        rng,
    )
    assert found.apart == 1.0

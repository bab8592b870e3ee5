"""Functions that are the same on every processor are also right."""

from __future__ import annotations

import numpy as np
from scipy import special

from sept_offline.elementary import exp, log, normal_mass, normal_quantile, tanh


def test_exp_log_and_tanh_are_within_two_units_in_the_last_place() -> None:
    exponents = np.linspace(-700, 700, 20_001)
    np.testing.assert_allclose(exp(exponents), np.exp(exponents), rtol=5e-16)
    numbers = np.exp(np.linspace(-600, 600, 20_001))
    np.testing.assert_allclose(log(numbers), np.log(numbers), rtol=5e-16, atol=5e-16)
    values = np.linspace(-40, 40, 20_001)
    np.testing.assert_allclose(tanh(values), np.tanh(values), atol=5e-16)
    assert exp(np.array(-800.0)) == 0
    assert tanh(np.array([np.inf, -np.inf])).tolist() == [1, -1]


def test_the_normal_distribution() -> None:
    values = np.linspace(-12, 12, 20_001)
    np.testing.assert_allclose(normal_mass(values), special.ndtr(values), atol=5e-16)
    places = np.concatenate([np.linspace(0.001, 0.999, 999), 10.0 ** -np.arange(4, 16)])
    np.testing.assert_allclose(normal_quantile(places), special.ndtri(places), rtol=1e-14)
    np.testing.assert_allclose(normal_mass(normal_quantile(places)), places, atol=1e-15)
    assert np.isfinite(normal_quantile(np.array([0.0, 1.0]))).all()

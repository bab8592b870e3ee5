"""Behaviours act by the same values as the network, with bits that depend on no processor."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from sept_offline.agent.networks import MLP, Ensemble
from sept_offline.collect.behaviour import portable


def make_network(rng: np.random.Generator, norms: bool, norm_first: bool) -> MLP:
    widths = (5, 24, 40, 3)
    layers = [
        (rng.normal(size=(after, before)) / np.sqrt(before), rng.normal(size=after))
        for before, after in pairwise(widths)
    ]
    both = [(rng.normal(size=width), rng.normal(size=width)) for width in widths[1:-1]]
    return MLP(layers, both if norms else None, norm_first=norm_first)


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_values_are_the_networks(norms: bool, norm_first: bool) -> None:
    rng = np.random.default_rng(0)
    network = make_network(rng, norms, norm_first)
    x = rng.normal(size=(50, 5)).astype(np.float32)
    np.testing.assert_allclose(portable(network)(x), network(x), atol=1e-5, rtol=1e-5)


def test_a_row_does_not_depend_on_its_batch() -> None:
    rng = np.random.default_rng(1)
    values = portable(make_network(rng, True, False))
    x = rng.normal(size=(50, 5)).astype(np.float32)
    whole = values(x)
    for row in range(0, 50, 7):
        assert np.array_equal(values(x[row : row + 1])[0], whole[row])


def test_sums_have_the_order_that_is_documented() -> None:
    """The first layer's sums, one float32 addition after the other."""
    rng = np.random.default_rng(2)
    weight, bias = rng.normal(size=(3, 7)), rng.normal(size=3)
    network = MLP([(weight, bias)])
    x = rng.normal(size=(4, 7)).astype(np.float32)
    sums = np.tile(bias.astype(np.float32), (4, 1))
    for i in range(7):
        sums = sums + x[:, i, None] * weight.astype(np.float32)[:, i]
    assert np.array_equal(portable(network)(x), sums)


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    rng = np.random.default_rng(3)
    ensemble = Ensemble([make_network(rng, False, False) for _ in range(3)])
    x = rng.normal(size=(6, 5)).astype(np.float32)
    np.testing.assert_allclose(portable(ensemble)(x), ensemble(x), atol=1e-5, rtol=1e-5)

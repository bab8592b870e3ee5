"""The fitted Q's targets, and what an interval makes of its fits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from test_transitions import some_transitions

from sept_offline.actions import Finite
from sept_offline.data.records import Steps
from sept_offline.settings import OpeConfig
from sept_offline.tools.ope.estimators import Table, effective_size, tabulate
from sept_offline.tools.ope.fitted_q import FittedQ, _places
from sept_offline.tools.ope.judgement import WIDENED, Estimate, Values, estimate_all
from sept_offline.tools.ope.verdict import Overlap

CONFIG = OpeConfig(hidden=(4,), updates=4, batch_size=8)


@pytest.mark.parametrize("guess", [1e6, -1e6])
def test_targets_are_rewards_until_parting_and_a_bounded_guess(guess: float) -> None:
    data = some_transitions(1)
    fitted = FittedQ(1, Finite.of(3), 6, CONFIG, seed=0)
    with torch.no_grad():
        for network in fitted._networks._impl.modules.targ_q_funcs:
            for weights in network.parameters():
                weights.fill_(0)
            network._fc.bias.fill_(guess)
    choice = data.choices.draw(np.random.default_rng(0))
    rows = np.arange(len(data.row))
    batch, value = fitted._targets(data, rows, choice)
    ends, earned = data.until_parting(choice)
    np.testing.assert_allclose(batch.rewards, earned)
    np.testing.assert_array_equal(batch.terminals, data.last[ends])
    edge = data.rewards.max() if guess > 0 else data.rewards.min()
    np.testing.assert_allclose(value[:, 0], data.left[data.row[ends] + 1] * edge, rtol=1e-6)


def test_transitions_are_drawn_as_often_as_their_episodes_count() -> None:
    weights = np.array([0.1, 0.0, 0.3, 0.6])
    drawn = _places(weights, 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20_000, weights, atol=0.02)
    even = np.bincount(_places(np.ones(4), 20_000, np.random.default_rng(0)), minlength=4)
    np.testing.assert_allclose(even / 20_000, 0.25, atol=0.02)


def logs(reward: float) -> Table:
    """40 episodes of two steps that earn `reward` or nothing, of two instances."""
    time = np.tile([0, 1], 40)
    rewards = np.where(np.arange(80) % 4 < 2, reward, 0.0)
    steps = SimpleNamespace(
        time=time, rewards=rewards, terminations=time == 1, instance=np.repeat([0, 1], 40)
    )
    return tabulate(cast(Steps, steps), np.ones(80), np.ones(80), 2)


def interval(reward: float, ess: float, **parts: float) -> Estimate:
    """Of fitted Q evaluation where every fit says 1 of every state, but for `parts`."""
    table = logs(reward)
    one = np.ones(table.rewards.shape)
    told = {"first": 1.0, "second": 1.0, "moved": 0.0} | parts
    values = Values(one, one, one, crossed=True, **told)
    overlap = Overlap(1.0, 1.0, 1.0, ess, 0.1, 1.0, 2, 0.0)
    return estimate_all(table, values, overlap, OpeConfig(), seed=0, weighted=True)["fqe"]


@pytest.mark.parametrize("part", [{"first": 1.2}, {"second": 0.8}, {"moved": 0.1}])
def test_an_interval_knows_of_every_way_in_which_fits_differ(part: dict[str, float]) -> None:
    same = interval(10.0, 100.0)
    assert (same.low, same.high) == pytest.approx((1, 1))
    found = interval(10.0, 100.0, **part)
    assert found.low < 0.95 and found.high > 1.05
    wider = interval(10.0, 2.0, **part)
    assert wider.high - 1 == pytest.approx(WIDENED * (found.high - 1))
    assert wider.low - 1 == pytest.approx(WIDENED * (found.low - 1))


def test_an_interval_stays_within_what_rewards_allow() -> None:
    found = interval(2.0, 2.0, moved=50.0)
    assert (found.low, found.high) == (0.0, 4.0), "two steps of 2, or an end at once"
    assert effective_size(logs(2.0), np.full(40, 1 / 40)).min() == pytest.approx(40)

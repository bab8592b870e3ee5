"""The fitted Q: what it is fitted to, its targets, and what an interval makes of its fits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from sept_offline.actions import Finite
from sept_offline.data.records import Steps
from sept_offline.settings import OpeConfig
from sept_offline.tools.ope.estimators import Overlap, StepTable, effective_size, tabulate
from sept_offline.tools.ope.fitted_q import FittedQ, Transitions, _places
from sept_offline.tools.ope.following import FiniteChoices
from sept_offline.tools.ope.judgement import WIDENED, Estimate, Values, estimate_all

CONFIG = OpeConfig(hidden=(4,), updates=4, batch_size=8)


def some_transitions(seed: int) -> Transitions:
    """Random episodes: some terminated, some cut, some that reach a horizon of six steps."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 7, size=30)
    ends = np.cumsum(length + 1) - 1
    row = np.delete(np.arange(ends[-1] + 1), ends)
    last = np.zeros(len(row))
    final = np.cumsum(length) - 1
    last[final] = (rng.random(30) < 0.5) | (length == 6)
    left = np.concatenate([6 - np.arange(count + 1) for count in length])
    sharp = rng.random(ends[-1] + 1) < 0.7
    choices = FiniteChoices(len(sharp), 3)
    actions, rewards = rng.integers(3, size=len(row)), rng.normal(size=len(row))
    choices.probabilities[:] = np.where(
        sharp[:, None],
        np.eye(3)[rng.integers(3, size=len(sharp))],
        rng.dirichlet(np.ones(3), size=len(sharp)),
    )
    return Transitions(
        inputs=np.zeros((ends[-1] + 1, 1), dtype=np.float32),
        row=row,
        actions=actions,
        rewards=rewards.astype(np.float32),
        last=last.astype(np.float32),
        choices=choices,
        episode=np.repeat(np.arange(30), length),
        left=left.astype(np.float32),
        scale=1.0,
    )


@pytest.mark.parametrize("seed", range(5))
def test_rewards_count_until_log_and_agent_part(seed: int) -> None:
    data = some_transitions(seed)
    choice = data.choices.draw(np.random.default_rng(seed))
    ends, earned = data.until_parting(choice)
    for step in range(len(data.row)):
        end, total = step, data.rewards[step]
        while (
            data.last[end] == 0
            and end + 1 < len(data.row)
            and data.episode[end + 1] == data.episode[step]
            and choice[data.row[end + 1]] == data.actions[end + 1]
        ):
            end += 1
            total += data.rewards[end]
        assert ends[step] == end
        assert earned[step] == pytest.approx(total, abs=1e-5)
    assert (ends > np.arange(len(ends))).any(), "nobody ever did what the agent does"


def test_actions_are_drawn_as_often_as_the_agent_does_them() -> None:
    data = some_transitions(0)
    rng = np.random.default_rng(1)
    drawn = np.stack([data.choices.draw(rng) for _ in range(4000)])
    shares = np.stack([(drawn == action).mean(axis=0) for action in range(3)], axis=1)
    expected = data.choices.features / 2 + 0.5
    np.testing.assert_allclose(shares, expected, atol=0.04)
    sure = expected.max(axis=1) == 1
    assert (shares[sure].max(axis=1) == 1).all()


def test_values_stay_within_what_the_rewards_left_allow() -> None:
    data = some_transitions(0)
    rows = np.array([0, len(data.left) - 1])
    wild = np.array([[1e9, -1e9], [0.01, 1e9]])
    least, most = data.rewards.min(), data.rewards.max()
    left = data.left[rows]
    expected = [[left[0] * most, left[0] * least], [min(0.01, left[1] * most), left[1] * most]]
    np.testing.assert_allclose(data.attainable(wild, rows), expected, rtol=1e-6)
    positive = Transitions(**(vars(data) | {"rewards": np.abs(data.rewards) + 1}))
    assert positive.attainable(-np.ones((1, 1)), rows[:1]) == 0, "an episode may end at once"


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


def logs(reward: float) -> StepTable:
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
    given = {"first": 1.0, "second": 1.0, "moved": 0.0} | parts
    values = Values(one, one, one, crossed=True, **given)
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

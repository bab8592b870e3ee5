"""On processes small enough to write down every trajectory, the estimators are exact."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from enumerated import Logs, Tabular, enumerate_logs
from hypothesis import given, settings
from hypothesis import strategies as st

from sept_offline.data.records import Steps
from sept_offline.tools.ope.estimators import (
    StepTable,
    bootstrap_shares,
    common_horizon,
    direct,
    doubly_robust,
    effective_size,
    equal_shares,
    halves,
    per_decision,
    resampled_over,
    self_normalised,
    tabulate,
    weighted_doubly_robust,
    with_enough,
)


@st.composite
def processes(draw: st.DrawFn) -> Tabular:
    horizon = draw(st.integers(1, 3))
    return Tabular(draw(st.integers(0, 2**32)), draw(st.integers(1, 2)), 2, horizon)


def table_of(
    process: Tabular, logs: Logs, horizon: int | None = None
) -> tuple[StepTable, Any, Any]:
    steps = logs.steps()
    taken = np.arange(len(steps.actions)), steps.actions
    choices = logs.along(process.policy)
    target, behaviour = choices[taken], logs.along(process.behaviour)[taken]
    shares = np.array(logs.shares)
    table = tabulate(steps, target, behaviour, horizon or process.horizon, shares)
    return table, choices, taken


def close(found: Any, truth: float) -> None:
    assert found.shape == (1,)
    np.testing.assert_allclose(found[0], truth, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(processes(), st.integers(0, 2**32), st.sampled_from([0.0, 0.0, 0.3]))
def test_in_expectation_every_estimator_is_the_truth(
    process: Tabular, seed: int, cut: float
) -> None:
    logs = enumerate_logs(process, cut)
    shares = np.array([logs.shares])
    np.testing.assert_allclose(shares.sum(), 1)
    table, choices, taken = table_of(process, logs)
    close(per_decision(table, shares), process.truth)
    close(self_normalised(table, shares), process.truth)
    # a Q as wrong as can be, but the same in the same past: it looks at state and clock
    wrong = np.random.default_rng(seed).normal(size=(process.horizon, process.states, 2)) * 5
    q = logs.along(lambda past: wrong[len(past) // 2, past[-1]])
    q_taken, v = table.spread(q[taken]), table.spread((choices * q).sum(axis=1))
    close(doubly_robust(table, q_taken, v, shares), process.truth)
    close(weighted_doubly_robust(table, q_taken, v, shares), process.truth)


@settings(max_examples=30, deadline=None)
@given(processes())
def test_with_the_exact_q_values_alone_suffice_and_nothing_is_left_to_correct(
    process: Tabular,
) -> None:
    logs = enumerate_logs(process)
    shares = np.array([logs.shares])
    table, choices, taken = table_of(process, logs)
    q = logs.along(process.q)
    q_taken, v = table.spread(q[taken]), table.spread((choices * q).sum(axis=1))
    close(direct(v, shares), process.truth)
    wrong = direct(v + 1, shares)
    assert abs(wrong[0] - process.truth) > 0.5
    close(doubly_robust(table, q_taken, v, shares), process.truth)


@settings(max_examples=20, deadline=None)
@given(processes(), st.integers(0, 2**32))
def test_sampled_logs_come_near_the_truth(process: Tabular, seed: int) -> None:
    logs = enumerate_logs(process)
    rng = np.random.default_rng(seed)
    table, _, _ = table_of(process, logs)
    # 40,000 episodes: how often each trajectory was drawn is all that matters
    chances = np.array(logs.shares) / sum(logs.shares)
    drawn = rng.multinomial(40_000, chances, size=1) / 40_000
    worst = np.abs(table.ratio * table.rewards).max()
    bound = 6 * worst * process.horizon / np.sqrt(40_000) + 1e-9
    assert abs(per_decision(table, drawn)[0] - process.truth) < bound
    assert abs(self_normalised(table, drawn)[0] - process.truth) < 2 * bound


@settings(max_examples=20, deadline=None)
@given(processes())
def test_a_shorter_horizon_is_the_value_of_fewer_steps(process: Tabular) -> None:
    logs = enumerate_logs(process)
    table, _, _ = table_of(process, logs, horizon=1)
    first = sum(
        chance
        * float(process.policy((state,)) @ (process.moves[state] * process.rewards[state]).sum(1))
        for state, chance in enumerate(process.first)
    )
    close(per_decision(table, np.array([logs.shares])), first)


def test_weights_by_hand() -> None:
    """Two episodes of two steps, an even coin behind them, an agent that always takes action 1."""
    logs = Logs()
    logs.add(0.5, [((0,), 1, 1.0), ((0, 1, 0), 1, 10.0)], False)
    logs.add(0.5, [((0,), 1, 2.0), ((0, 1, 0), 0, 20.0)], False)
    steps = logs.steps()
    table = tabulate(steps, (steps.actions == 1).astype(float), np.full(4, 0.5), 2)
    np.testing.assert_array_equal(table.ratio, [[2, 4], [2, 0]])
    np.testing.assert_array_equal(table.before, [[1, 2], [1, 2]])
    shares = np.full((1, 2), 0.5)
    assert per_decision(table, shares)[0] == (2 * 1 + 2 * 2) / 2 + 4 * 10 / 2
    assert self_normalised(table, shares)[0] == 1.5 + 10
    np.testing.assert_allclose(effective_size(table, shares[0]), [2, 1])


def test_a_step_that_nobody_reached_adds_nothing() -> None:
    logs = Logs()
    logs.add(1.0, [((0,), 0, 5.0), ((0, 0, 0), 0, 7.0)], False)
    steps = logs.steps()
    table = tabulate(steps, np.array([1.0, 0.0]), np.full(2, 0.5), 2)
    assert self_normalised(table, np.ones((1, 1)))[0] == 5.0
    np.testing.assert_array_equal(effective_size(table, np.ones(1)), [1, 0])
    # with a Q, the value of the second state stands for what nobody saw
    v = np.array([[6.0, 4.0]])
    q = np.array([[6.0, 4.0]])
    assert weighted_doubly_robust(table, q, v, np.ones((1, 1)))[0] == 6 + (5 - 6) + 4


def test_after_an_end_weights_stay_and_after_a_cut_they_go() -> None:
    logs = Logs()
    logs.add(0.5, [((0,), 0, 2.0)], True)
    logs.add(0.5, [((0,), 0, 1.0)], False)
    logs.add(0.5, [((0,), 0, 1.0), ((0, 0, 0), 0, 3.0)], False)
    table = tabulate(logs.steps(), np.ones(4), np.ones(4), 2)
    # of the two that went on after the first step one was cut, so the other counts for both
    np.testing.assert_array_equal(table.seen, [[1, 1], [1, 0], [1, 2]])
    assert per_decision(table, np.full((1, 3), 1 / 3))[0] == pytest.approx(4 / 3 + 2 * 3 / 3)


def test_large_ratios_do_not_overflow() -> None:
    logs = Logs()
    for _ in range(2):
        logs.add(0.5, [((0,), 0, 1.0)] * 300, False)
    table = tabulate(logs.steps(), np.ones(600), np.full(600, 1e-3), 300)
    assert np.isfinite(table.ratio).all()
    shares = np.full((1, 2), 0.5)
    assert self_normalised(table, shares)[0] == pytest.approx(300)
    assert effective_size(table, shares[0]).min() == pytest.approx(2)


def test_instances_have_equal_weight_and_are_resampled() -> None:
    instance = np.repeat(np.arange(12), [1, 3, *[2] * 10])
    shares = equal_shares(instance)
    np.testing.assert_allclose(np.bincount(instance, shares), 1 / 12)
    drawn = bootstrap_shares(instance, 400, np.random.default_rng(0))
    by_instance = np.stack([drawn[:, instance == i].sum(axis=1) for i in range(12)], axis=1)
    np.testing.assert_allclose(by_instance * 12, np.round(by_instance * 12), atol=1e-9)
    assert by_instance.min() == 0, "an instance may be left out"


def test_episodes_within_instances_are_drawn_again_where_instances_are_few() -> None:
    instance = np.repeat([0, 1], [5, 20])
    drawn = bootstrap_shares(instance, 400, np.random.default_rng(0))
    np.testing.assert_allclose(drawn[:, :5].sum(axis=1), 0.5)
    np.testing.assert_allclose(drawn[:, 5:].sum(axis=1), 0.5)
    assert drawn.min() == 0


@pytest.mark.parametrize(
    "counts", [[5, 6, 7], [1] * 20, [1, 9], [2, 3, 60, 1, 1], [1, 1], [3, 60, 60, 2]]
)
def test_halves_are_halves(counts: list[int]) -> None:
    instance = np.repeat(np.arange(len(counts)), counts)
    half = halves(instance, np.random.default_rng(1))
    small = []
    for code, count in enumerate(counts):
        second = int(half[instance == code].sum())
        if count >= 4 or (count > 1 and np.median(counts) >= 4):
            assert abs(2 * second - count) <= 1
        else:
            assert second in (0, count), "what Q cannot tell apart stays together"
            small.append(second > 0)
    assert abs(2 * sum(small) - len(small)) <= 1
    assert 0 < half.sum() < len(half)


@pytest.mark.parametrize("episodes", [2, 3])
def test_one_instance_of_few_episodes_is_halved_all_the_same(episodes: int) -> None:
    half = halves(np.zeros(episodes, dtype=int), np.random.default_rng(0))
    assert 0 < half.sum() < episodes


def test_instances_are_drawn_again_where_their_episodes_tell_no_spread() -> None:
    """Of an instance's only episode a draw within it is always the same."""
    instance = np.arange(9)
    assert resampled_over(instance) == "instances"
    assert np.ptp(bootstrap_shares(instance, 50, np.random.default_rng(0)) @ instance) > 0
    assert resampled_over(np.repeat(instance, 4)) == "episodes"
    assert resampled_over(np.repeat([0, 1, 2], [40, 40, 1])) == "episodes"


def test_only_instances_with_episodes_enough_are_known_and_not_too_many() -> None:
    np.testing.assert_array_equal(with_enough(np.repeat([3, 5, 8], [4, 3, 9])), [3, 8])
    many = with_enough(np.repeat(np.arange(300), np.where(np.arange(300) % 2, 5, 4)))
    assert len(many) == 256 and (np.diff(many) > 0).all()
    assert np.isin(np.arange(1, 300, 2), many).all(), "those with the most come first"


def test_the_interval_of_a_mean_covers_it_as_often_as_it_says() -> None:
    """Plain averages of 40 on-policy returns: a bootstrap over episodes holds the truth 95 %."""
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(400):
        returns = rng.normal(size=40)
        instance = np.repeat([0, 1], 20)
        shares = bootstrap_shares(instance, 400, rng)
        low, high = np.quantile(shares @ returns, [0.025, 0.975])
        hits += low <= 0 <= high
    assert 0.90 <= hits / 400 <= 0.98


def test_unweighted_logs_have_all_their_episodes() -> None:
    process = Tabular(0, 2, 2, 2)
    logs = enumerate_logs(process)
    table, _, _ = table_of(process, logs)
    ones = np.ones_like(table.ratio)
    plain = replace(table, ratio=ones, before=ones)
    equal = np.full(len(logs.shares), 1 / len(logs.shares))
    np.testing.assert_allclose(effective_size(plain, equal), len(logs.shares))


@pytest.mark.parametrize(
    ("lengths", "ended", "expected"),
    [
        ([5, 5, 5], [False] * 3, 5),
        ([2, 3, 4, 9], [False] * 4, 4),
        ([2, 3, 9], [False] * 3, 3),
        ([2, 3, 4, 9], [True, True, False, False], 9),
        ([7], [False], 7),
        ([10] * 999 + [5000], [True] * 1000, 10),
    ],
)
def test_half_of_the_episodes_reach_the_common_horizon(
    lengths: list[int], ended: list[bool], expected: int
) -> None:
    time = np.concatenate([np.arange(length) for length in lengths])
    last = np.concatenate([np.arange(length) == length - 1 for length in lengths])
    terminations = last & np.repeat(ended, lengths)
    steps = cast(Steps, SimpleNamespace(time=time, terminations=terminations))
    assert common_horizon(steps) == expected

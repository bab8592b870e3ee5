"""Action spaces: encoding, policies whose densities are exact, and their descriptions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sept_offline.actions import Box, Categorical, Finite, TruncatedNormal, space_from
from sept_offline.errors import ConfigError

DOSE = Box.of([-2.0], [1.0])
TWO = Box.of([-1.0, 0.0], [1.0, 10.0], ["steer", "push"])


@pytest.mark.parametrize("space", [Finite.of(3), DOSE, TWO])
def test_a_description_is_read_back(space: Any) -> None:
    assert space_from(json.loads(json.dumps(space.describe()))) == space


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {"kind": "finite"},
        {"kind": "finite", "names": []},
        {"kind": "ball", "names": ["a"]},
        {"kind": "box", "names": ["a"], "low": [0.0], "high": [float("inf")]},
        {"kind": "box", "names": ["a"], "low": [1.0], "high": [0.0]},
        {"kind": "box", "names": ["a"], "low": [True], "high": [2.0]},
        {"kind": "box", "names": ["a"], "low": [0.0, 0.0], "high": [1.0, 1.0]},
    ],
)
def test_a_wrong_description_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        space_from(wrong)


def test_finite_actions_are_one_hot() -> None:
    space = Finite.of(3)
    assert space.encode(np.array([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert space.outside(np.array([-1, 0, 2, 3])).tolist() == [True, False, False, True]


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2))
def test_a_box_is_scaled_to_one(place: list[float]) -> None:
    action = np.float32(TWO.low) + np.float32(place) * (np.float32(TWO.high) - np.float32(TWO.low))
    action = np.clip(action, np.float32(TWO.low), np.float32(TWO.high))
    encoded = TWO.encode(action)
    assert np.abs(encoded).max() <= 1
    assert np.allclose(TWO.decode(encoded), action, atol=1e-5)
    assert not TWO.outside(action)


def test_what_is_not_in_the_box_is_found() -> None:
    actions = np.array([[0, 5], [1.01, 5], [0, -1], [np.nan, 5]], dtype=np.float32)
    assert TWO.outside(actions).tolist() == [False, True, True, True]


@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.5), (3.0, 1.0), (-2.0, 0.1)])
def test_a_density_is_exact(mean: float, deviation: float, spread: float) -> None:
    policy = TruncatedNormal(DOSE, np.array([mean]), np.array([deviation]), spread)
    grid = np.linspace(-2, 1, 20_001)
    density = np.exp(policy.log_probability(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)
    rng = np.random.default_rng(0)
    drawn = policy.draw(rng.random((4000, 2)))[:, 0]
    reached = np.cumsum(density) * (grid[1] - grid[0])
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, reached)).pvalue > 1e-3


def test_a_truncated_normal_agrees_with_scipy() -> None:
    policy = TruncatedNormal(TWO, np.array([0.5, 9.0]), np.array([0.3, 4.0]))
    actions = np.array([[0.1, 3.0], [1.0, 10.0], [-1.0, 0.0]])
    expected = sum(
        stats.truncnorm.logpdf(actions[:, i], (low - mean) / sd, (high - mean) / sd, mean, sd)
        for i, (low, high, mean, sd) in enumerate([(-1, 1, 0.5, 0.3), (0, 10, 9.0, 4.0)])
    )
    assert np.allclose(policy.log_probability(actions), expected)
    assert np.array_equal(policy.logged(actions), policy.log_probability(actions))


@pytest.mark.parametrize("spread", [0.0, 0.4, 1.0])
def test_the_mean_is_that_of_many_draws(spread: float) -> None:
    policy = TruncatedNormal(TWO, np.array([0.8, 2.0]), np.array([0.5, 3.0]), spread)
    uniforms = np.random.default_rng(0).random((20_000, TWO.draws))
    drawn = TWO.encode(policy.draw(uniforms)).mean(axis=0)
    np.testing.assert_allclose(policy.encoded_mean, drawn, atol=0.02)


def test_the_uniform_policy_of_a_box() -> None:
    policy = TWO.uniform(5)
    actions = policy.draw(np.random.default_rng(0).random((5, TWO.draws)))
    assert actions.shape == (5, 2) and not TWO.outside(actions).any()
    assert np.allclose(policy.log_probability(actions), -np.log(2 * 10))


def test_an_action_without_probability_is_never_drawn() -> None:
    policy = Categorical(np.array([[0.5, 0.5 - 1e-12, 0.0]]))
    assert policy.draw(np.array([[1 - 1e-16]])).tolist() == [1]
    assert np.exp(policy.log_probability(np.array([0]))).tolist() == [0.5]


def test_rows_do_not_depend_on_each_other() -> None:
    rng = np.random.default_rng(1)
    policy = TruncatedNormal(TWO, rng.normal(size=(6, 2)), np.array([0.3, 0.5]), 0.2)
    uniforms = rng.random((6, 3))
    together = policy.draw(uniforms)
    for row in range(6):
        alone = policy.take(np.array([row])).draw(uniforms[[row]])
        assert np.array_equal(alone[0], together[row])


def test_every_row_has_its_own_share_of_uniform_actions() -> None:
    mean, spread = np.tile([0.5, 4.0], (3, 1)), np.array([0.0, 0.4, 1.0])
    policy = TruncatedNormal(TWO, mean, np.array([0.2, 1.0]), spread)
    uniforms = np.random.default_rng(2).random((3, 3))
    actions = policy.draw(uniforms)
    for row, share in enumerate(spread):
        alone = TruncatedNormal(TWO, mean[row], np.array([0.2, 1.0]), float(share))
        assert np.array_equal(alone.draw(uniforms[row]), actions[row])
        assert alone.log_probability(actions[row]) == policy.log_probability(actions)[row]
        taken = policy.take(np.array([row]))
        assert taken.log_probability(actions[[row]]) == policy.log_probability(actions)[row]


def test_exploration_around_what_a_network_prefers() -> None:
    values = np.array([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    chances = Finite.of(3).explore(values, np.array([0.3, 0.0]), 0.1)
    assert np.allclose(chances.probabilities, [[0.1, 0.8, 0.1], [1.0, 0.0, 0.0]])
    outputs = np.array([[0.0, 9.0], [-9.0, 0.0]])
    policy = TWO.explore(outputs, np.array([0.5, 0.0]), 0.1)
    assert isinstance(policy, TruncatedNormal)
    assert np.allclose(policy.mean, [[0.0, 10.0], [-1.0, 5.0]], atol=1e-6)
    assert policy.deviation.tolist() == [0.1, 0.5]
    greedy = TWO.explore(outputs, np.zeros(2), 0.0)
    assert np.allclose(greedy.draw(np.random.default_rng(0).random((2, 3))), policy.mean)
    assert greedy.log_probability(greedy.draw(np.zeros((2, 3)))).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("space", "answer", "words"),
    [
        (Finite.of(3), np.full((2, 4), 0.25), r"shape \(2, 4\); expected .* \(2, 3\)"),
        (Finite.of(3), np.full((2, 3), 0.5), "sum to 1"),
        (Finite.of(3), "left", "returned 'left'; expected probabilities"),
        (TWO, np.zeros((2, 2)), "returned ndarray; expected a pair"),
        (TWO, (np.zeros((3, 2)), 1.0), r"returned shapes \(3, 2\) and \(\)"),
        (TWO, (np.zeros((2, 2)), 0.0), "not a positive number"),
        (TWO, (np.full((2, 2), np.nan), 1.0), "not finite"),
        (TWO, (None, 1.0), "expected means|returned shapes"),
    ],
)
def test_what_is_no_policy_is_refused(space: Any, answer: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        space.policy(answer, 2)


def test_a_policy_of_means_and_deviations() -> None:
    policy = TWO.policy((np.array([[0.5, 4.0], [7.0, 4.0]]), [0.1, 1.0]), 2)
    assert policy.mean.tolist() == [[0.5, 4.0], [1.0, 4.0]]
    actions = policy.draw(np.random.default_rng(0).random((2, 3)))
    assert not TWO.outside(actions).any()


def test_a_grid_of_constant_actions() -> None:
    assert Finite.of(3).grid().tolist() == [0, 1, 2]
    one = Box.of([0.0], [1.0]).grid()
    assert one[0].tolist() == [0.5], "the centre comes first"
    assert np.sort(one[:, 0]) == pytest.approx(np.linspace(0, 1, 11))
    assert TWO.grid().shape == (25, 2) and TWO.grid()[0].tolist() == [0.0, 5.0]
    assert len(np.unique(Box.of(-np.ones(3), np.ones(3)).grid(), axis=0)) == 27
    wide = Box.of(-np.ones(6), np.ones(6)).grid()
    assert wide.shape == (15, 6) and len(np.unique(wide, axis=0)) == 15


def test_a_policy_within_bounds_agrees_with_scipy_even_far_from_its_mean() -> None:
    box = Box.of([-1.0], [1.0])
    narrow = TruncatedNormal(box, np.array([0.2]), np.array([0.05]))
    uniforms = np.random.default_rng(0).random((200, 2))
    for low, high in ((-0.1, 0.3), (0.5, 0.55), (0.58, 0.6), (-0.18, -0.1), (-1, -0.1), (0.1, 0.1)):
        inside = narrow.within(np.array([[low], [high]]))
        drawn = inside.draw(uniforms)[:, 0].astype(np.float64)
        ends = (low - 0.2) / 0.05, (high - 0.2) / 0.05
        expected = stats.truncnorm.ppf(uniforms[:, 1], *ends, loc=0.2, scale=0.05)
        if low == high:
            expected = np.full(200, low)
        np.testing.assert_allclose(drawn, expected, atol=2e-7)
        if low < high:
            density = stats.truncnorm.logpdf(np.clip(drawn, low, high), *ends, loc=0.2, scale=0.05)
            np.testing.assert_allclose(inside.log_probability(drawn[:, None]), density, atol=1e-4)
    for low, high, nearest in ((0.7, 0.8, 0.7), (-1.0, -0.9, -0.9)):
        found = narrow.within(np.array([[low], [high]])).draw(uniforms)
        np.testing.assert_array_equal(found, np.full((200, 1), nearest, np.float32))


def test_probabilities_keep_their_proportions_within_a_mask() -> None:
    policy = Categorical(np.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]]))
    within = policy.within(np.array([[True, False, True], [False, True, True]]))
    np.testing.assert_allclose(within.probabilities, [[5 / 7, 0, 2 / 7], [0, 0.5, 0.5]])

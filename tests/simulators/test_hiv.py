"""HIV against SciPy, positivity for any admissible patient, and the known scale of returns."""

import math

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import simulators
from simulators.hiv import CEILING, FLOOR, HIV, START

FAMILY = simulators.family("hiv")
PATIENTS = [(split, i) for split in FAMILY.splits for i in range(len(FAMILY.instances(split)))]
ROWS = np.array([HIV.hidden_row(FAMILY.instances(split)[i]) for split, i in PATIENTS])
NOMINAL = np.array([1e4, 31.98, 8e-7, 1e-4, 0.34, 1e-5, 1e-5, 1.0, 0.3, 100.0, 0.25, 500.0])
DRUGS = [(0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3)]


def raw_rates(_, x, relative, rti, pi):
    """The six equations as the model's paper prints them, in raw units."""
    l1, l2, k1, k2, f, m1, m2, source, birth, half_b, death, half_d = NOMINAL * (1.0 + relative)
    t1, t2, i1, i2, v, e = x
    s = i1 + i2
    return [
        l1 - 0.01 * t1 - (1 - rti) * k1 * v * t1,
        l2 - 0.01 * t2 - (1 - f * rti) * k2 * v * t2,
        (1 - rti) * k1 * v * t1 - 0.7 * i1 - m1 * e * i1,
        (1 - f * rti) * k2 * v * t2 - 0.7 * i2 - m2 * e * i2,
        (1 - pi) * 100 * 0.7 * s - 13 * v - ((1 - rti) * k1 * t1 + (1 - f * rti) * k2 * t2) * v,
        source + birth * s / (s + half_b) * e - death * s / (s + half_d) * e - 0.1 * e,
    ]


def exact(state, relative, action):
    """log10 of the populations five days on, by SciPy at a tight tolerance."""
    solution = solve_ivp(
        raw_rates,
        (0.0, 5.0),
        10.0**state,
        method="LSODA",
        rtol=1e-10,
        atol=1e-14,
        args=(relative, *DRUGS[action]),
    )
    assert solution.success
    return np.log10(np.maximum(solution.y[:, -1], 1e-300))


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.long)])
def test_every_patient_and_action_within_the_accuracy_asked_for(share):
    """Within 1e-4 in log10 over one step, wherever a population is above 1e-2.

    share: every third patient at each of three times, so that each comes once; or all at each.
    """
    rng = np.random.default_rng(0)
    zeros = np.zeros(len(ROWS), dtype=int)
    state = np.tile(HIV.start_low, (len(ROWS), 1))
    worst, checked = 0.0, 0
    times = (0, 4, 30)
    for step in range(31):
        if step in times:
            for action in range(4):
                ours, _, _ = HIV.step(state, zeros + action, ROWS, zeros)
                for row in range(times.index(step) % share, len(ROWS), share):
                    reference = exact(state[row], ROWS[row], action)
                    compared = reference > -2.0
                    error = np.abs(reference - ours[row])[compared].max()
                    worst, checked = max(worst, error), checked + 1
        state, _, _ = HIV.step(state, rng.integers(0, 4, len(ROWS)), ROWS, zeros)
    assert checked == len(times) * 4 * len(ROWS) / share
    assert worst < 1e-4


def test_accuracy_from_arbitrary_states():
    rng = np.random.default_rng(2)
    for _ in range(60):
        state = rng.uniform([2, 0, 0, 0, 0, 0], [6.5, 4, 5, 4, 6, 5])
        relative = rng.uniform(-0.8, 0.8, 12)
        action = int(rng.integers(4))
        reference = exact(state, relative, action)
        zero = np.zeros(1, dtype=int)
        ours, _, _ = HIV.step(state[None], zero + action, relative[None], zero)
        compared = reference > -2.0
        np.testing.assert_allclose(ours[0][compared], reference[compared], atol=1e-4)


def constant_return(hiddens, action):
    env = FAMILY.make_vec(hiddens, 200)
    env.reset(seed=0)
    chosen = np.full(len(hiddens), action)
    return sum(env.step(chosen)[1] for _ in range(200))


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (0, ["3.43e6", "6.20e10", "-1.9e4", "1.58e6", "1.27e11", "6.58e9"]),
        (1, ["3.19e6", "1.67e10", "-1.53e6", "2.00e6", "3.08e10", "-1.36e6"]),
        (2, ["3.98e6", "4.23e10", "3.8e5", "2.40e6", "7.95e10", "2.74e9"]),
        (3, ["7.02e6", "9.79e9", "-1.57e6", "1.18e7", "8.64e9", "-1.43e6"]),
    ],
)
def test_known_returns_of_constant_drugs(action, expected):
    found = constant_return([{}, *FAMILY.instances("paper")], action)
    for value, text in zip(found, expected, strict=True):
        digits = len(text.split("e")[0].lstrip("-").replace(".", "")) - 1
        assert float(f"{value:.{digits}e}") == float(text)


def test_patients_differ_under_the_same_drugs():
    after, _, _ = HIV.step(
        np.tile(HIV.start_low, (len(ROWS), 1)),
        np.zeros(len(ROWS), dtype=int),
        ROWS,
        np.zeros(len(ROWS), dtype=int),
    )
    assert len(np.unique(after.round(6), axis=0)) == len(ROWS)


def test_the_start_is_nearly_a_steady_state():
    env = gymnasium.make("sept/HIV-v0")
    first, _ = env.reset(seed=0)
    np.testing.assert_allclose(first, np.log10(START), rtol=1e-6)
    for _ in range(10):
        last, *_ = env.step(0)
    np.testing.assert_allclose(last, first, atol=0.02)


def test_reward_is_that_of_the_state_after_the_step():
    env = gymnasium.make("sept/HIV-v0").unwrapped
    for action, (rti, pi) in enumerate(DRUGS):
        env.reset(seed=0)
        observation, reward, _, _, _ = env.step(action)
        virus, immune = 10.0 ** observation[4:].astype(float)
        expected = -0.1 * virus - 2e4 * rti**2 - 2e3 * pi**2 + 1e3 * immune
        assert reward == pytest.approx(expected, rel=1e-5, abs=1.0)


def test_raw_start_and_clipped_observation():
    env = gymnasium.make("sept/HIV-v0").unwrapped
    populations = [1e6, 3198.0, 0.0, 1e-20, 1e-9, 1e9]
    observation, _ = env.reset(options={"raw_state": populations})
    np.testing.assert_allclose(
        observation, [6.0, math.log10(3198.0), -5.0, -5.0, -5.0, 8.0], rtol=1e-6
    )
    batch = gymnasium.make_vec("sept/HIV-v0", num_envs=2)
    rows, _ = batch.reset(options={"raw_state": [populations, list(START)]})
    np.testing.assert_array_equal(rows[0], observation)
    # A virus too small to be seen is still there, and grows back where nothing holds it down.
    env.reset(options={"raw_state": [1e6, 3198.0, 0.0, 0.0, 1e-9, 10.0]})
    for _ in range(12):
        observation, *_ = env.step(0)
    assert observation[4] > 2.0


def test_patient_5_under_both_drugs_does_not_break():
    env = FAMILY.make(FAMILY.instances("paper")[4])
    env.reset(seed=0)
    for _ in range(1000):
        observation, reward, terminated, _, _ = env.step(3)
        assert np.isfinite(observation).all() and math.isfinite(reward) and not terminated


ADMISSIBLE = st.one_of(
    st.floats(-1.0, 1.0, exclude_min=True),
    st.floats(-0.8, 0.8),
    st.sampled_from([math.nextafter(-1.0, 0.0), -0.999, 0.0, 1.0]),
)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(ADMISSIBLE, min_size=12, max_size=12), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_never_negative_nor_nan(hidden, seed, long_courses):
    rows = np.array(hidden)
    rng = np.random.default_rng(seed)
    state = np.tile(HIV.start_low, (len(rows), 1))
    elapsed = np.zeros(len(rows), dtype=int)
    for step in range(1000 if seed % 4 == 0 else 150):
        if step == 0 or not long_courses or step % 40 == 0:
            action = rng.integers(0, 4, len(rows))
        state, reward, _ = HIV.step(state, action, rows, elapsed)
        assert np.isfinite(state).all() and np.isfinite(reward).all()
        assert state.min() >= FLOOR and state.max() <= CEILING
        assert (10.0**state > 0.0).all()


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(ADMISSIBLE, min_size=12, max_size=12), st.lists(st.integers(0, 3), min_size=1))
def test_never_negative_nor_nan_over_1000_actions(hidden, cycle):
    row, zero = np.array([hidden]), np.zeros(1, dtype=int)
    state = np.array([HIV.start_low])
    for step in range(1000):
        state, reward, _ = HIV.step(state, zero + cycle[step % len(cycle)], row, zero)
        assert np.isfinite(state).all() and np.isfinite(reward).all()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(FLOOR, CEILING), min_size=6, max_size=6),
    st.lists(ADMISSIBLE, min_size=12, max_size=12),
    st.integers(0, 3),
)
def test_absurd_states_stay_in_range(state, hidden, action):
    zero = np.zeros(1, dtype=int)
    after, reward, _ = HIV.step(np.array([state]), zero + action, np.array([hidden]), zero)
    assert np.isfinite(after).all() and np.isfinite(reward).all()
    assert after.min() >= FLOOR and after.max() <= CEILING

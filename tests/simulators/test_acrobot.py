"""Acrobot against Gymnasium's own book dynamics, conservation of energy, order of convergence."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.acrobot import AcrobotEnv

from simulators.acrobot import ACROBOT, energy, rk4

DELTAS = (-0.35, -0.1, 0.0, 0.3)


def book_step(state, torque, delta):
    """One step of Gymnasium's equations, with its reward and its observation left aside."""
    env = AcrobotEnv()
    env.LINK_MASS_1 = env.LINK_MASS_2 = 1.0 + delta
    env.LINK_LENGTH_1 = env.LINK_LENGTH_2 = 1.0 + delta
    env.reset(seed=0)
    env.state = np.array(state)
    env.step(int(torque) + 1)
    return np.array(env.state)


@pytest.mark.parametrize("delta", DELTAS)
def test_agrees_with_gymnasiums_book_dynamics(delta):
    rng = np.random.default_rng(0)
    high = np.array(ACROBOT.observation_high)
    states = rng.uniform(-high, high, (200, 4))
    actions = rng.integers(0, 3, 200)
    hidden = np.full((200, 4), delta)
    ours, reward, terminated = ACROBOT.step(states, actions, hidden, np.zeros(200, dtype=int))
    for row in range(200):
        book = book_step(states[row], actions[row] - 1, delta)
        difference = ours[row] - book
        difference[:2] = (difference[:2] + math.pi) % (2 * math.pi) - math.pi
        np.testing.assert_allclose(difference, 0.0, atol=1e-10)
        length = 1.0 + delta
        height = -length * (math.cos(book[0]) + math.cos(book[0] + book[1]))
        assert terminated[row] == (height >= length)
        expected = 10.0 if height >= length else -0.05 * (height - length) ** 2
        assert reward[row] == pytest.approx(expected, abs=1e-9)
    assert terminated.any() and not terminated.all()


def test_length_of_the_second_link_enters_only_the_height():
    state = np.array([[1.5, 0.3, 1.0, -1.0]])
    one = np.ones(1, dtype=int)
    short = ACROBOT.step(state, one, np.array([[0.0, 0.0, 0.0, -0.3]]), one)
    long = ACROBOT.step(state, one, np.array([[0.0, 0.0, 0.0, 0.3]]), one)
    np.testing.assert_array_equal(short[0], long[0])
    assert short[1][0] != long[1][0]


def test_stays_in_the_observation_space():
    batch = gymnasium.make_vec("sept/Acrobot-v0", num_envs=200, hidden={"m1": -0.9, "m2": 1.0})
    rng = np.random.default_rng(0)
    high = np.array(ACROBOT.observation_high)
    batch.reset(seed=0, options={"state": rng.uniform(-high, high, (200, 4))})
    for _ in range(200):
        observation, *_ = batch.step(rng.integers(0, 3, 200))
        assert observation in batch.observation_space


def swing(hidden, dt, seconds, state=(1.0, 0.5, 0.0, 0.0)):
    for _ in range(round(seconds / dt)):
        state = rk4(*state, 0.0, hidden, dt)
    return np.array(state)


@pytest.mark.parametrize("hidden", [[0.0] * 4, [0.3, -0.2, 0.1, 0.35], [-0.35] * 4])
def test_energy_is_conserved_without_torque(hidden):
    row = np.array(hidden)
    start = np.array([1.0, 0.5, 0.0, 0.0])
    before = energy(start[None], row[None])[0]
    after = energy(swing(row, 0.002, 4.0)[None], row[None])[0]
    assert after == pytest.approx(before, abs=1e-8)
    coarse = energy(swing(row, 0.2, 4.0)[None], row[None])[0]
    assert 1e-8 < abs(coarse - before) < 0.5


@pytest.mark.parametrize("hidden", [[0.0] * 4, [0.3, -0.2, 0.1, 0.35]])
def test_halving_the_step_divides_the_error_by_sixteen(hidden):
    row = np.array(hidden)
    exact = swing(row, 0.001, 1.6)
    errors = [np.abs(swing(row, dt, 1.6) - exact).max() for dt in (0.08, 0.04, 0.02)]
    orders = [math.log2(errors[i] / errors[i + 1]) for i in range(2)]
    assert all(3.6 < order < 4.4 for order in orders)


def test_hanging_still_is_an_equilibrium():
    state = np.zeros((1, 4))
    one = np.ones(1, dtype=int)
    after, reward, terminated = ACROBOT.step(state, one, np.zeros((1, 4)), one)
    np.testing.assert_array_equal(after, state)
    assert reward[0] == pytest.approx(-0.05 * 9.0) and not terminated[0]

"""Pendulum and point robot: Gymnasium's own numbers, the hidden parameters, moves by hand."""

import math

import gymnasium
import numpy as np
import pytest

import simulators  # noqa: F401 - registers the ids


def test_nominal_is_gymnasiums_pendulum():
    ours, theirs = gymnasium.make("sept/Pendulum-v0"), gymnasium.make("Pendulum-v1")
    assert ours.spec.max_episode_steps == theirs.spec.max_episode_steps == 200
    random = np.random.default_rng(0)
    for seed in range(3):
        np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
        for _ in range(200):
            action = random.uniform(-2, 2, 1).astype(np.float32)
            mine, other = ours.step(action), theirs.step(action)
            np.testing.assert_allclose(mine[0], other[0], atol=2e-6)
            assert mine[1] == pytest.approx(other[1], abs=2e-5)
            assert mine[2:4] == other[2:4]


def swing(hidden, torque, state=(0.0, 1.0, 0.0)):
    env = gymnasium.make("sept/Pendulum-v0", hidden=hidden)
    env.reset(options={"state": state})
    return env.step([torque])


def test_the_torque_pushes_by_mass_length_and_sign():
    # At rest on the side (angle 90 degrees) gravity gives 3 g / (2 l), the torque 3 u / (m l^2).
    for mass, length, sign in ((1.0, 1.0, 1), (0.5, 2.0, -1), (2.0, 0.5, 1)):
        observation, reward, *_ = swing({"mass": mass, "length": length, "sign": sign}, 1.5)
        speed = 0.05 * (15.0 / length + sign * 3.0 * 1.5 / (mass * length**2))
        assert observation[2] == pytest.approx(min(speed, 8.0), rel=1e-6)
        assert reward == pytest.approx(-((math.pi / 2) ** 2 + 0.001 * 1.5**2), rel=1e-6)


def test_a_given_state_is_a_direction():
    env = gymnasium.make("sept/Pendulum-v0")
    observation, _ = env.reset(options={"state": [0.3, -0.4, 2.0]})
    np.testing.assert_allclose(observation, [0.6, -0.8, 2.0], atol=1e-6)
    batch = gymnasium.make_vec("sept/Pendulum-v0", num_envs=2)
    rows, _ = batch.reset(options={"state": [[0.6, -0.8, 2.0], [1.0, 0.0, 0.0]]})
    np.testing.assert_array_equal(rows[0], observation)


def test_the_robot_moves_by_its_action_and_the_wind():
    env = gymnasium.make("sept/PointRobotWind-v0", hidden={"wind_x": 0.03, "wind_y": -0.05})
    assert env.spec.max_episode_steps == 25
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == [0.0, 0.0]
    observation, reward, terminated, truncated, _ = env.step([0.1, 0.02])
    np.testing.assert_allclose(observation, [0.13, -0.03], atol=1e-6)
    assert reward == pytest.approx(-math.hypot(0.87, 0.03), abs=1e-7)
    assert not terminated and not truncated
    assert [env.step([0.0, 0.0])[3] for _ in range(24)] == [False] * 23 + [True]

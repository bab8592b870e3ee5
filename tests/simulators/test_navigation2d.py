"""2D navigation by hand: moves, wind, box, wall on either side, and the switch at action 10."""

import math

import gymnasium
import numpy as np
import pytest

import simulators  # noqa: F401 - registers the ids

W, N, E, S = range(4)


def move(state, action, z, env_id="sept/Navigation2D-v0"):
    env = gymnasium.make(env_id, hidden={"z": z}).unwrapped
    env.reset(options={"state": state})
    observation, reward, terminated, truncated, _ = env.step(action)
    assert not truncated
    return observation, reward, terminated


@pytest.mark.parametrize(
    ("action", "dx", "dy"), [(W, -0.3, 0.0), (N, 0.0, 0.3), (E, 0.3, 0.0), (S, 0.0, -0.3)]
)
def test_moves_without_wind(action, dx, dy):
    for z, sign in ((1, 1), (2, -1)):
        observation, reward, terminated = move([-1.5, -1.5], action, z)
        expected = [-1.5 + sign * dx, -1.5 + sign * dy]
        np.testing.assert_allclose(observation, expected, atol=1e-6)
        assert reward == -0.1 and not terminated


def test_wind_grows_with_the_distance_before_the_move():
    # From (-0.3, -1.9) the calm point is sqrt(1.2^2 + 0.4^2) away.
    drift = 0.03 * math.sqrt(1.6)
    observation, _, _ = move([-0.3, -1.9], N, 1)
    np.testing.assert_allclose(observation, [-0.3 - drift, -1.6], atol=1e-6)
    observation, _, _ = move([-0.3, -1.9], S, 2)
    np.testing.assert_allclose(observation, [-0.3, -1.6 - drift], atol=1e-6)


@pytest.mark.parametrize(
    ("state", "action", "z"),
    [
        ([-1.9, -1.5], W, 1),
        ([-1.9, -1.5], E, 2),
        ([-1.5, -1.9], S, 1),
        ([-1.5, -1.9], N, 2),
        ([1.9, -1.0], E, 1),
        ([-1.0, 1.9], N, 1),
        # The wind alone carries it out: 0.03 * 3.5 = 0.105 beyond -1.95 + 0.
        ([-1.95, 2.0], S, 1),
        ([2.0, -1.95], E, 2),
    ],
)
def test_leaving_the_box_is_invalid(state, action, z):
    observation, reward, terminated = move(state, action, z)
    np.testing.assert_array_equal(observation, np.float32(state))
    assert reward == -5.0 and not terminated


def test_the_edge_belongs_to_the_box():
    observation, reward, _ = move([-1.5, 2.0], E, 1)
    assert observation[1] == 2.0 and reward == -0.1


@pytest.mark.parametrize(
    ("state", "action", "z", "enters"),
    [
        # z = 1: the lower side is closed, the left side is open.
        ([0.5, -0.1], N, 1, False),
        ([0.5, 0.0], N, 1, False),
        ([-0.1, 0.5], E, 1, True),
        # z = 2, actions reversed: the left side is closed, the lower side is open.
        ([-0.1, 0.5], W, 2, False),
        ([0.0, 0.5], W, 2, False),
        ([0.5, -0.1], S, 2, True),
    ],
)
def test_the_wall_closes_one_side_of_the_goal(state, action, z, enters):
    observation, reward, terminated = move(state, action, z)
    assert terminated is enters
    assert reward == (1000.0 if enters else -5.0)
    if enters:
        assert (observation > 0.0).all()
    else:
        np.testing.assert_array_equal(observation, np.float32(state))


@pytest.mark.parametrize(
    ("state", "action", "z", "reward"),
    [
        ([1.0, 0.2], S, 1, -5.0),
        ([0.1, 1.0], W, 1, -0.1),
        ([0.2, 1.0], E, 2, -5.0),
        ([1.0, 0.1], N, 2, -0.1),
        ([1.0, 1.0], N, 1, 1000.0),
    ],
)
def test_leaving_the_goal(state, action, z, reward):
    assert move(state, action, z)[1] == reward


def test_near_the_corner_the_wall_has_no_length_beyond_the_goal():
    # x = 0.05 drifts to x <= 0 while going north: not the goal, so no wall was met.
    observation, reward, terminated = move([0.05, -0.1], N, 1)
    assert observation[0] <= 0.0 < observation[1]
    assert reward == -0.1 and not terminated


def test_reflection_in_the_diagonal_carries_one_instance_into_the_other():
    """Wind, wall and moves change places, up to which action means which way."""
    swapped = {W: N, N: W, E: S, S: E}
    rng = np.random.default_rng(0)
    for state in rng.uniform(-2, 2, (300, 2)).tolist():
        for action in range(4):
            one = move(state, action, 1)
            other = move(state[::-1], swapped[action], 2)
            np.testing.assert_array_equal(one[0], other[0][::-1])
            assert one[1:] == other[1:]


@pytest.mark.parametrize("z", [1, 2])
def test_switch_acts_under_the_other_z_from_action_10(z):
    env = gymnasium.make("sept/Navigation2DSwitch-v0", hidden={"z": z}).unwrapped
    observation, _ = env.reset(seed=0)
    rng = np.random.default_rng(1)
    for count in range(25):
        acting = z if count < 10 else 3 - z
        action = int(rng.integers(4))
        expected = move(observation, action, acting)
        observation, reward, terminated, _, _ = env.step(action)
        np.testing.assert_allclose(observation, expected[0], atol=1e-6)
        assert (reward, terminated) == expected[1:]


def test_switch_counts_anew_after_a_reset():
    batch = gymnasium.make_vec("sept/Navigation2DSwitch-v0", num_envs=1, max_episode_steps=12)
    for _ in range(2):
        batch.reset(seed=0, options={"state": [[-1.5, -1.5]]})
        observation, *_ = batch.step(np.array([N]))
        np.testing.assert_allclose(observation, [[-1.5, -1.2]], atol=1e-6)
        for _ in range(11):
            batch.step(np.array([N]))


def test_start_is_uniform_in_its_square():
    batch = gymnasium.make_vec("sept/Navigation2D-v0", num_envs=2000)
    start, _ = batch.reset(seed=0)
    assert start.min() >= -1.75 and start.max() <= -1.25
    np.testing.assert_allclose(start.mean(axis=0), [-1.5, -1.5], atol=0.015)
    np.testing.assert_allclose(start.std(axis=0), 0.5 / math.sqrt(12), atol=0.01)

"""Both environments of every family: Gymnasium's contract, equal numbers, resets, bad input."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import simulators
from simulators.families import FAMILIES

IDS = sorted(simulators.IDS)
VECTORISED = sorted(name for name, family in FAMILIES.items() if family.make_vec is not None)
HIDDEN = {
    "sept/Navigation2D-v0": [{"z": 1}, {"z": 2}],
    "sept/Navigation2DSwitch-v0": [{"z": 2}, {"z": 1}],
    "sept/Acrobot-v0": [{"m1": 0.3, "l2": -0.2}, {"m2": -0.35, "l1": 0.1}],
    "sept/HIV-v0": [{"lambda1": 0.4, "Kd": -0.4}, {}],
    "sept/Pendulum-v0": [{"mass": 0.7, "length": 1.2, "sign": -1}, {}],
    "sept/PointRobotWind-v0": [{"wind_x": 0.03, "wind_y": -0.05}, {"wind_y": 0.02}],
}
SAME_START = ("sept/HIV-v0", "sept/PointRobotWind-v0")


def random_actions(env_id, steps, rows=1, seed=0):
    dynamics, random = simulators.IDS[env_id], np.random.default_rng(seed)
    if dynamics.action_low is None:
        return random.integers(0, len(dynamics.action_names), (steps, rows))
    width = len(dynamics.action_low)
    return random.uniform(dynamics.action_low, dynamics.action_high, (steps, rows, width))


def actions_of(env_id, number, rows):
    """The action `number` in every row; of a box, something inside it."""
    dynamics = simulators.IDS[env_id]
    if dynamics.action_low is None:
        return np.full(rows, number)
    return np.full((rows, len(dynamics.action_low)), 0.01 * number)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.filterwarnings("error")
def test_gymnasium_checker_has_nothing_to_say(env_id):
    for hidden in HIDDEN[env_id]:
        env = gymnasium.make(env_id, hidden=hidden)
        with warnings.catch_warnings():
            # The bounds are Gymnasium's and FOCAL's own.
            warnings.filterwarnings("ignore", r".*symmetric and normalized space")
            check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("env_id", IDS)
def test_scalar_and_vector_agree_bit_for_bit_over_several_episodes(env_id):
    rows, steps, limit = 6, 70, 23
    hiddens = HIDDEN[env_id] * 3
    batch = gymnasium.make_vec(env_id, num_envs=rows, hidden=hiddens, max_episode_steps=limit)
    actions = random_actions(env_id, steps, rows)
    first, _ = batch.reset(seed=11)
    records = [batch.step(chosen) for chosen in actions]
    for row in range(rows):
        env = gymnasium.make(env_id, hidden=hiddens[row], max_episode_steps=limit)
        observation, info = env.reset(seed=11 + row)
        assert info == {}
        np.testing.assert_array_equal(observation, first[row])
        done = False
        for step in range(steps):
            if done:
                observation, _ = env.reset()
                reward, terminated, truncated = 0.0, False, False
            else:
                observation, reward, terminated, truncated, info = env.step(actions[step, row])
                assert info == {}
                assert type(reward) is float and type(terminated) is bool
            seen, rewards, terminations, truncations, infos = records[step]
            np.testing.assert_array_equal(seen[row], observation)
            assert rewards[row] == reward
            assert terminations[row] == terminated
            assert truncations[row] == truncated
            assert infos == {}
            done = terminated or truncated


@pytest.mark.parametrize("env_id", IDS)
def test_a_row_does_not_depend_on_its_batch(env_id):
    dynamics = simulators.IDS[env_id]
    rows = 37
    rng = np.random.default_rng(5)
    low, high = np.array(dynamics.observation_low), np.array(dynamics.observation_high)
    if env_id == "sept/HIV-v0":
        low, high = np.zeros(6), np.full(6, 5.0)
    if env_id == "sept/Pendulum-v0":
        low, high = np.array(dynamics.start_low), np.array(dynamics.start_high)
    state = rng.uniform(low, high, (rows, len(low)))
    hidden = np.stack([dynamics.hidden_row(HIDDEN[env_id][row % 2]) for row in range(rows)])
    action = random_actions(env_id, 1, rows)[0]
    elapsed = np.arange(rows)
    together = dynamics.step(state, action, hidden, elapsed)
    order = rng.permutation(rows)
    shuffled = dynamics.step(state[order], action[order], hidden[order], elapsed[order])
    for whole, part in zip(together, shuffled, strict=True):
        np.testing.assert_array_equal(whole[order], part)
    for row in range(rows):
        one = slice(row, row + 1)
        alone = dynamics.step(state[one], action[one], hidden[one], elapsed[one])
        for whole, part in zip(together, alone, strict=True):
            np.testing.assert_array_equal(whole[one], part)


@pytest.mark.parametrize("env_id", IDS)
def test_types_and_spaces(env_id):
    dynamics = simulators.IDS[env_id]
    batch = gymnasium.make_vec(env_id, num_envs=3)
    observation, _ = batch.reset(seed=0)
    assert observation.dtype == np.float32 and observation in batch.observation_space
    chosen = actions_of(env_id, 0, 3)
    chosen = chosen.astype(np.int32 if chosen.dtype.kind == "i" else np.float32)
    seen, reward, terminated, truncated, _ = batch.step(chosen)
    assert seen.dtype == np.float32 and reward.dtype == np.float64
    assert terminated.dtype == np.bool_ and truncated.dtype == np.bool_
    assert seen in batch.observation_space
    size = getattr(batch.single_action_space, "n", None) or batch.single_action_space.shape[0]
    assert size == len(dynamics.action_names)


@pytest.mark.parametrize("env_id", IDS)
def test_what_was_returned_is_not_written_to_again(env_id):
    batch = gymnasium.make_vec(env_id, num_envs=2)
    env = gymnasium.make(env_id)
    kept = [batch.reset(seed=0)[0], env.reset(seed=0)[0]]
    copies = [array.copy() for array in kept]
    once, twice = actions_of(env_id, 1, 2), actions_of(env_id, 2, 2)
    kept += batch.step(once)[:4]
    kept.append(env.step(once[0])[0])
    copies += [array.copy() for array in kept[2:]]
    for _ in range(5):
        batch.step(twice)
        env.step(twice[0])
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("env_id", IDS)
def test_same_seed_same_start_and_list_of_seeds(env_id):
    batch = gymnasium.make_vec(env_id, num_envs=3)
    by_number, _ = batch.reset(seed=7)
    by_list, _ = batch.reset(seed=[7, 8, 9])
    np.testing.assert_array_equal(by_number, by_list)
    other, _ = batch.reset()
    if env_id in SAME_START:
        np.testing.assert_array_equal(other, by_list)
    else:
        assert not np.any(other == by_list)
    env = gymnasium.make(env_id)
    np.testing.assert_array_equal(env.reset(seed=9)[0], by_list[2])
    np.testing.assert_array_equal(env.reset()[0], other[2])


def test_many_starts_follow_one_stream():
    batch = gymnasium.make_vec("sept/Navigation2D-v0", num_envs=1)
    env = gymnasium.make("sept/Navigation2D-v0")
    batch.reset(seed=3)
    env.reset(seed=3)
    for _ in range(100):
        np.testing.assert_array_equal(batch.reset()[0][0], env.reset()[0])


def test_a_given_state_draws_nothing():
    env = gymnasium.make("sept/Acrobot-v0")
    batch = gymnasium.make_vec("sept/Acrobot-v0", num_envs=2)
    state = [0.5, -0.25, 1.0, -2.0]
    observation, _ = env.reset(seed=4, options={"state": state})
    np.testing.assert_array_equal(observation, np.float32(state))
    rows, _ = batch.reset(seed=4, options={"state": np.array([state, [0.0] * 4])})
    np.testing.assert_array_equal(rows, np.float32([state, [0.0] * 4]))
    fresh, _ = gymnasium.make("sept/Acrobot-v0").reset(seed=4)
    np.testing.assert_array_equal(env.reset()[0], fresh)
    np.testing.assert_array_equal(batch.reset()[0][0], fresh)


def test_observations_may_be_handed_back_as_a_start():
    env = gymnasium.make("sept/Acrobot-v0")
    high = env.observation_space.high
    observation, _ = env.reset(options={"state": high})
    assert observation in env.observation_space
    observation, *_ = env.step(1)
    assert observation in env.observation_space


def test_autoreset_on_the_next_step():
    batch = gymnasium.make_vec("sept/Navigation2D-v0", num_envs=2, max_episode_steps=3)
    start = np.array([[-0.1, 0.5], [-1.5, -1.5]])
    batch.reset(seed=0, options={"state": start})
    _, reward, terminated, truncated, _ = batch.step(np.array([2, 2]))
    assert terminated.tolist() == [True, False] and truncated.tolist() == [False, False]
    assert reward[0] == 1000.0
    # The ended row's action does not matter, not even an impossible one.
    observation, reward, terminated, truncated, _ = batch.step(np.array([-7, 2]))
    assert reward.tolist() == [0.0, -0.1]
    assert terminated.tolist() == [False, False] and truncated.tolist() == [False, False]
    first, _ = gymnasium.make("sept/Navigation2D-v0").reset(seed=0)
    np.testing.assert_array_equal(observation[0], first)
    # The other row now meets the limit; the row that was reset has its own count.
    _, _, terminated, truncated, _ = batch.step(np.array([0, 0]))
    assert terminated.tolist() == [False, False] and truncated.tolist() == [False, True]
    _, reward, _, truncated, _ = batch.step(np.array([0, 0]))
    assert reward[1] == 0.0 and truncated.tolist() == [False, False]
    _, _, _, truncated, _ = batch.step(np.array([0, 0]))
    assert truncated.tolist() == [True, False]


def test_reset_forgets_that_rows_had_ended():
    batch = gymnasium.make_vec("sept/HIV-v0", num_envs=2, max_episode_steps=1)
    batch.reset(seed=0)
    batch.step(np.array([0, 0]))
    batch.reset(seed=0)
    _, reward, _, truncated, _ = batch.step(np.array([0, 0]))
    assert (reward != 0.0).all() and truncated.all()


@pytest.mark.parametrize("env_id", IDS)
def test_default_limit_is_that_of_training(env_id):
    dynamics = simulators.IDS[env_id]
    assert gymnasium.make(env_id).spec.max_episode_steps == dynamics.train_steps
    batch = gymnasium.make_vec(env_id, num_envs=1)
    batch.reset(seed=0)
    for step in range(dynamics.train_steps):
        # Torque 0 and bumping into the box never end an episode by themselves.
        action = actions_of(env_id, 1 if env_id == "sept/Acrobot-v0" else 3, 1)
        *_, terminated, truncated, _ = batch.step(action)
        assert not terminated[0]
        assert truncated[0] == (step == dynamics.train_steps - 1)


def test_a_limit_reached_on_the_terminal_step_is_flagged_as_in_gymnasium():
    options = {"state": [-0.1, 0.5]}
    env = gymnasium.make("sept/Navigation2D-v0", max_episode_steps=1)
    env.reset(options=options)
    scalar = env.step(2)[2:4]
    batch = gymnasium.make_vec("sept/Navigation2D-v0", num_envs=1, max_episode_steps=1)
    batch.reset(options={"state": [options["state"]]})
    _, _, terminated, truncated, _ = batch.step(np.array([2]))
    assert scalar == (terminated[0], truncated[0])


@pytest.mark.parametrize(
    ("env_id", "hidden"),
    [
        ("sept/Navigation2D-v0", {"z": 3}),
        ("sept/Navigation2D-v0", {"z": 1.5}),
        ("sept/Navigation2D-v0", {"y": 1}),
        ("sept/Navigation2DSwitch-v0", {"z": 0}),
        ("sept/Acrobot-v0", {"m1": -1.0}),
        ("sept/Acrobot-v0", {"m1": 1.0001}),
        ("sept/Acrobot-v0", {"m3": 0.1}),
        ("sept/HIV-v0", {"lambda1": float("nan")}),
        ("sept/HIV-v0", {"lambda1": float("inf")}),
        ("sept/HIV-v0", {"lambda1": "0.4"}),
        ("sept/HIV-v0", {"lambda1": None}),
        ("sept/HIV-v0", {"lambda1": True}),
        ("sept/HIV-v0", {"lambda_1": 0.4}),
        ("sept/HIV-v0", 0.4),
        ("sept/Pendulum-v0", {"mass": 0.0}),
        ("sept/Pendulum-v0", {"length": -1.0}),
        ("sept/Pendulum-v0", {"sign": 0}),
        ("sept/Pendulum-v0", {"gravity": 9.8}),
        ("sept/PointRobotWind-v0", {"wind_x": float("nan")}),
        ("sept/PointRobotWind-v0", {"wind": 0.01}),
    ],
)
def test_inadmissible_hidden_parameters(env_id, hidden):
    with pytest.raises(ValueError):
        gymnasium.make(env_id, hidden=hidden)
    with pytest.raises(ValueError):
        gymnasium.make_vec(env_id, num_envs=2, hidden=hidden)
    with pytest.raises(ValueError):
        gymnasium.make_vec(env_id, num_envs=2, hidden=[{}, hidden])


@pytest.mark.parametrize("hidden", [[{}], [{}, {}, {}], "zz"])
def test_hidden_rows_must_match_the_batch(hidden):
    with pytest.raises(ValueError):
        gymnasium.make_vec("sept/Acrobot-v0", num_envs=2, hidden=hidden)


@pytest.mark.parametrize(
    "options",
    [
        {"state": [0.0, 0.0, 0.0]},
        {"state": [3.0, 0.0]},
        {"state": [float("nan"), 0.0]},
        {"state": "ab"},
        {"raw_state": [0.0, 0.0]},
        {"start": [0.0, 0.0]},
    ],
)
def test_bad_reset_options(options):
    with pytest.raises(ValueError):
        gymnasium.make("sept/Navigation2D-v0").reset(options=options)
    with pytest.raises(ValueError):
        gymnasium.make_vec("sept/Navigation2D-v0", num_envs=1).reset(
            options={name: [value] for name, value in options.items()}
        )


def test_hiv_takes_one_kind_of_start_only():
    env = gymnasium.make("sept/HIV-v0")
    with pytest.raises(ValueError, match="not both"):
        env.reset(options={"state": [0.0] * 6, "raw_state": [1.0] * 6})
    with pytest.raises(ValueError, match="negative"):
        env.reset(options={"raw_state": [1.0, 1.0, 1.0, 1.0, 1.0, -1.0]})


@pytest.mark.parametrize(
    ("env_id", "valid", "action"),
    [
        *(("sept/Navigation2D-v0", 0, action) for action in (-1, 4, 1.5, None, "0")),
        *(
            ("sept/Pendulum-v0", [0.0], action)
            for action in (
                *(0.0, [0.0, 0.0], [2.001], [-3.0]),
                *([float("nan")], [float("inf")], None, ["left"], []),
            )
        ),
    ],
)
def test_bad_actions(env_id, valid, action):
    env = gymnasium.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    with pytest.raises(ValueError):
        env.step(action)
    batch = gymnasium.make_vec(env_id, num_envs=2)
    batch.reset(seed=0)
    with pytest.raises(ValueError):
        batch.step([valid, action])


def test_an_ended_row_of_a_box_ignores_its_action():
    batch = gymnasium.make_vec("sept/PointRobotWind-v0", num_envs=2, max_episode_steps=2)
    batch.reset(seed=0)
    batch.step(np.zeros((2, 2)))
    assert batch.step(np.zeros((2, 2)))[3].all()
    observation, reward, *_ = batch.step(np.full((2, 2), np.nan))
    assert (observation == 0).all() and (reward == 0).all()


def test_an_action_counts_as_float32_holds_it():
    ends = []
    for kind in (np.float32, np.float64):
        env = gymnasium.make("sept/PointRobotWind-v0")
        env.reset(seed=0)
        ends.append([env.step(np.array([0.1, -0.1], dtype=kind))[:2] for _ in range(5)][-1])
    assert np.array_equal(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_bad_shapes_seeds_and_limits():
    batch = gymnasium.make_vec("sept/Navigation2D-v0", num_envs=2)
    batch.reset(seed=0)
    with pytest.raises(ValueError):
        batch.step(np.array([0, 1, 2]))
    with pytest.raises(ValueError):
        batch.reset(seed=[1])
    with pytest.raises(ValueError):
        batch.reset(seed=-5)
    with pytest.raises(ValueError):
        gymnasium.make_vec("sept/Navigation2D-v0", num_envs=2, max_episode_steps=0)
    with pytest.raises(ValueError):
        gymnasium.make_vec("sept/Navigation2D-v0", num_envs=0)


@pytest.mark.parametrize("name", VECTORISED)
def test_hidden_parameters_reach_the_dynamics_and_nothing_else(name):
    family = simulators.family(name)
    one, other = family.instances("train")[0], family.instances("train")[-1]
    traces = []
    for hidden in (one, other):
        env = family.make(hidden)
        boxed = isinstance(env.action_space, gymnasium.spaces.Box)
        observation, info = env.reset(seed=1)
        assert info == {} and observation.shape == (len(family.observation_names),)
        steps = [env.step(env.action_space.high if boxed else 1) for _ in range(3)]
        assert all(step[4] == {} for step in steps)
        traces.append((observation, steps[-1][0]))
    np.testing.assert_array_equal(traces[0][0], traces[1][0])
    assert not np.array_equal(traces[0][1], traces[1][1])


def test_family_environments_have_no_limit_of_their_own():
    env = simulators.family("navigation2d").make({"z": 1})
    env.reset(seed=0)
    assert not any(env.step(0)[3] for _ in range(300))


@pytest.mark.parametrize("name", VECTORISED)
def test_family_batches_apply_the_limit(name):
    family = simulators.family(name)
    hiddens = family.instances("train")[:2]
    batch = family.make_vec(hiddens, 2)
    batch.reset(seed=0)
    action = np.ones(batch.action_space.shape, dtype=batch.action_space.dtype)
    if isinstance(batch.action_space, gymnasium.spaces.Box):
        action = batch.action_space.high
    assert not batch.step(action)[3].any()
    assert batch.step(action)[3].all()

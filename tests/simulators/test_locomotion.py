"""Hopper and walker: multipliers reach the physics, and nothing else differs from Gymnasium's."""

import gymnasium
import numpy as np
import pytest

import simulators
from simulators.locomotion import HOPPER, WALKER

ROBOTS = {"sept/HopperParams-v0": HOPPER, "sept/WalkerParams-v0": WALKER}

FIRST = {"hopper-params": 2.3244, "walker-params": 0.3453}


@pytest.fixture
def mujoco():
    return pytest.importorskip("mujoco", reason="MuJoCo is not installed: sept-offline[mujoco]")


@pytest.mark.parametrize("robot", ROBOTS.values(), ids=lambda robot: robot.name)
def test_instances_are_drawn_once_and_for_all(robot):
    family = simulators.family(robot.name)
    sizes = {split: len(family.instances(split)) for split in family.splits}
    assert sizes == {"train": 20, "validation": 5, "test": 20}
    every = [hidden for split in family.splits for hidden in family.instances(split)]
    assert len({tuple(hidden.values()) for hidden in every}) == 45
    for name in robot.parameters:
        base = 1.3 if name.startswith("damping") else 1.5
        values = np.array([hidden[name] for hidden in every])
        assert values.min() >= base**-3 - 1e-4 and values.max() <= base**3 + 1e-4
    assert family.instances("train")[0]["mass_torso"] == FIRST[robot.name]


@pytest.mark.parametrize("env_id", sorted(ROBOTS))
def test_without_multipliers_it_is_gymnasiums(env_id, mujoco):
    ours = gymnasium.make(env_id)
    assert ours.spec.max_episode_steps == 200
    theirs = gymnasium.make({"H": "Hopper-v5", "W": "Walker2d-v5"}[env_id[5]])
    np.testing.assert_allclose(ours.reset(seed=1)[0], theirs.reset(seed=1)[0], atol=1e-6)
    random = np.random.default_rng(0)
    for _ in range(10):
        action = random.uniform(-1, 1, ours.action_space.shape).astype(np.float32)
        mine, other = ours.step(action), theirs.step(action)
        np.testing.assert_allclose(mine[0], other[0], atol=1e-5)
        assert mine[1] == pytest.approx(other[1], abs=1e-5) and mine[2] == other[2]
        assert mine[4] == {}


@pytest.mark.parametrize("env_id", sorted(ROBOTS))
def test_every_multiplier_changes_the_model(env_id, mujoco):
    plain = gymnasium.make(env_id).unwrapped._inside.model
    fields = {"mass": "body_mass", "inertia": "body_inertia", "damping": "dof_damping"}
    for name in ROBOTS[env_id].parameters:
        model = gymnasium.make(env_id, hidden={name: 2.0}).unwrapped._inside.model
        field = fields.get(name.partition("_")[0], "geom_friction")
        ratio = getattr(model, field) / np.where(
            getattr(plain, field) == 0, 1, getattr(plain, field)
        )
        assert (ratio == 2.0).sum() == 1, name


def test_a_given_state_starts_there(mujoco):
    env = gymnasium.make("sept/HopperParams-v0")
    state, _ = env.reset(seed=3)
    first = env.step(np.zeros(3))[0]
    again, _ = env.reset(seed=8, options={"state": state})
    np.testing.assert_array_equal(again, state)
    np.testing.assert_allclose(env.step(np.zeros(3))[0], first, atol=1e-5)
    for wrong in ({"state": [0.0]}, {"start": state}):
        with pytest.raises(ValueError):
            env.reset(options=wrong)


@pytest.mark.parametrize("hidden", [{"mass_torso": 0.0}, {"mass_head": 1.0}, {"mass_leg": "2"}, 3])
def test_inadmissible_hidden_parameters(hidden):
    with pytest.raises(ValueError):
        simulators.family("hopper-params").make(hidden)

"""The learner: d3rlpy's own numbers, a Polyak target, an average, and exact continuation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sept_offline.agent.networks import MLP, Constrained, Ensemble
from sept_offline.control import Batch, Learner
from sept_offline.control.d3rlpy import ALGORITHMS
from sept_offline.errors import ConfigError, TrainingError
from sept_offline.settings import BOX_ALGORITHMS, FINITE_ALGORITHMS, ControlConfig
from tests.control.test_d3rlpy import batch
from tests.margins import Margins

SMALL = ControlConfig(hidden=(16, 24), batch_size=8, learning_rate=1e-2)


def box_batch(seed: int = 0, size: int = 8, dim: int = 5, width: int = 3) -> Batch:
    draws = torch.Generator().manual_seed(seed)
    actions = torch.rand(size, width, generator=draws) * 2 - 1
    following = actions.roll(-1, dims=0)
    following[-1] = torch.nan
    return replace(batch(seed, size, dim), actions=actions, next_actions=following)


def weights(learner: Learner, averaged: bool = True) -> dict[str, np.ndarray]:
    return (learner.averaged() if averaged else learner.current()).to_arrays("n")


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("algorithm", [*FINITE_ALGORITHMS, *BOX_ALGORITHMS])
@pytest.mark.parametrize(("critics", "members"), [(2, 1), (1, 2)])
def test_restored_learner_goes_on_bit_for_bit(algorithm: str, critics: int, members: int) -> None:
    config = replace(SMALL, algorithm=algorithm, critics=critics, members=members, average_every=3)
    rows = box_batch if algorithm in BOX_ALGORITHMS else batch
    unbroken = Learner(config, 5, 3, seed=1)
    for step in range(5):
        unbroken.update(rows(step))
    state = unbroken.state()
    resumed = Learner(config, 5, 3, seed=99)
    resumed.restore(state)
    outside = torch.get_rng_state()
    for step in range(5, 10):
        assert unbroken.update(rows(step)) == resumed.update(rows(step))
    assert torch.equal(outside, torch.get_rng_state())
    assert same(weights(unbroken), weights(resumed))
    assert same(weights(unbroken, averaged=False), weights(resumed, averaged=False))
    assert not same(weights(unbroken), weights(unbroken, averaged=False))


def test_a_snapshot_is_a_copy() -> None:
    learner = Learner(SMALL, 5, 3, seed=1)
    learner.update(batch())
    state = learner.state()
    before = {name: value.clone() for name, value in state.tensors.items()}
    learner.update(batch(1))
    assert all(torch.equal(before[name], state.tensors[name]) for name in before)


@pytest.mark.parametrize("layer_norm", [True, False])
@pytest.mark.parametrize("algorithm", ["double_dqn", "discrete_cql", "nfq"])
def test_export_gives_the_learners_values(algorithm: str, layer_norm: bool) -> None:
    config = replace(SMALL, algorithm=algorithm, layer_norm=layer_norm)
    learner = Learner(config, 5, 3, seed=2)
    for step in range(5):
        learner.update(batch(step))
    rows = batch(50, size=64).inputs
    network = learner.current()
    assert isinstance(network, MLP)
    expected = learner.q_values(rows).numpy()
    np.testing.assert_allclose(network(rows.numpy()), expected, atol=1e-5)
    np.testing.assert_allclose(network.row(rows[3].numpy()), expected[3], atol=1e-5)


def test_critics_and_members_act_by_their_mean() -> None:
    learner = Learner(replace(SMALL, critics=2, members=2), 5, 3, seed=2)
    network = learner.current()
    assert isinstance(network, Ensemble)
    assert len(network.members) == 4
    rows = batch(3).inputs
    np.testing.assert_allclose(network(rows.numpy()), learner.q_values(rows).numpy(), atol=1e-5)


def test_bcq_exports_what_acts_as_d3rlpy_does(training_seed: int, margin: Margins) -> None:
    config = replace(SMALL, algorithm="discrete_bcq", bcq_beta=0.0)
    learner = Learner(config, 5, 3, seed=training_seed)
    for _ in range(150):
        # action 2 is never logged, so that the imitator learns to forbid it
        learner.update(replace(batch(0, size=32), actions=torch.arange(32) % 2))
    network = learner.current()
    assert isinstance(network, Constrained)
    rows = batch(0, size=32).inputs
    expected = learner.members[0].networks.impl.inner_predict_best_action(rows).numpy()
    assert (network(rows.numpy()).argmax(axis=1) == expected).all()
    margin("forbidden", (expected == 2).sum(), at_most=0)


def test_weights_come_from_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first = Learner(SMALL, 5, 3, seed=5)
    assert torch.equal(state, torch.get_rng_state())
    with torch.random.fork_rng(devices=[]):
        torch.rand(17)
        again = Learner(SMALL, 5, 3, seed=5)
    other = Learner(SMALL, 5, 3, seed=6)
    assert same(weights(first), weights(again))
    assert not same(weights(first), weights(other))


def test_learns_a_task_whose_answer_is_known(training_seed: int, margin: Margins) -> None:
    # one step: action 1 pays 1 where the input is positive, action 0 pays 1 where it is not
    learner = Learner(replace(SMALL, batch_size=64), 1, 2, seed=training_seed)
    draws = torch.Generator().manual_seed(training_seed)
    for _ in range(200):
        state = torch.rand(64, 1, generator=draws) * 2 - 1
        action = torch.randint(2, (64,), generator=draws)
        reward = ((state[:, 0] > 0).long() == action).float()
        learner.update(Batch(state, action, reward, state, torch.ones(64)))
    rows = np.array([[-0.8], [-0.3], [0.3], [0.8]], dtype=np.float32)
    values = learner.averaged()(rows)
    best, other = values[[0, 1, 2, 3], [0, 0, 1, 1]], values[[0, 1, 2, 3], [1, 1, 0, 0]]
    margin("better by", (best - other).min(), above=0)
    margin("value error", np.abs(best - 1).max(), below=0.15)


def test_discrete_iql_prefers_what_pays_among_what_is_logged(
    training_seed: int, margin: Margins
) -> None:
    # two steps: action 1 pays 1 at once, action 0 leads to where action 1 pays 3; action 2 would
    # pay most, but is never logged
    config = replace(
        SMALL, algorithm="discrete_iql", gamma=0.9, iql_expectile=0.9, target_rate=0.05
    )
    learner = Learner(config, 2, 3, seed=training_seed)
    draws = torch.Generator().manual_seed(training_seed)
    for _ in range(400):
        second = torch.rand(64, generator=draws) < 0.5
        action = torch.randint(2, (64,), generator=draws)
        reward = action * torch.where(second, 3.0, 1.0)
        ends = (second | (action == 1)).float()
        state = torch.stack([1 - second.float(), second.float()], dim=1)
        learner.update(Batch(state, action, reward, torch.tensor([[0.0, 1.0]] * 64), ends))
    rows = np.eye(2, dtype=np.float32)
    chances = learner.averaged()(rows)
    assert chances.argmax(axis=1).tolist() == [0, 1]
    margin("logged above unlogged", (chances.max(axis=1) - chances[:, 2]).min(), above=1)
    value = learner.value(torch.from_numpy(rows)).numpy()
    # V of the second state is the expectile of 0 and 3 at which 0.9 · (3 − V) = 0.1 · V: 2.7
    margin("value error", np.abs(value - [0.9 * 2.7, 3.0]).max(), below=0.3)


@pytest.mark.parametrize(
    ("algorithm", "setting"),
    [(name, ours) for name, (_, own) in ALGORITHMS.items() for ours in own.values()],
)
def test_a_setting_of_an_algorithm_changes_what_it_learns(algorithm: str, setting: str) -> None:
    config = replace(SMALL, algorithm=algorithm)
    rows = box_batch if algorithm in BOX_ALGORITHMS else batch
    learned = []
    for value in (getattr(config, setting), getattr(config, setting), 0.9):
        changed: dict[str, Any] = {setting: value}
        learner = Learner(replace(config, **changed), 5, 3, seed=1)
        for step in range(3):
            learner.update(rows(step))
        learned.append({k: v.numpy() for k, v in learner.state().tensors.items()})
    assert same(learned[0], learned[1])
    assert not same(learned[0], learned[2])


# d3rlpy's update of `cql`, as is seen in test_d3rlpy.py, takes longest
@pytest.mark.parametrize(
    "algorithm",
    [pytest.param(n, marks=pytest.mark.long) if n == "cql" else n for n in BOX_ALGORITHMS],
)
def test_an_actor_learns_a_task_whose_answer_is_known(
    algorithm: str, training_seed: int, margin: Margins
) -> None:
    # one step: the reward is highest where the action is half of the input
    config = replace(SMALL, algorithm=algorithm, batch_size=64, learning_rate=3e-3, critics=2)
    changes = {"iql_temperature": 10.0, "awac_lambda": 0.1, "cql_alpha": 0.03}
    learner = Learner(replace(config, **changes), 1, 1, seed=training_seed)  # type: ignore[arg-type]
    draws = torch.Generator().manual_seed(training_seed)
    # the weights of IQL's actor are noise until its values are good
    for _ in range(800 if algorithm == "iql" else 400):
        state, action = (torch.rand(64, 1, generator=draws) * 2 - 1 for _ in range(2))
        reward = -(action - state / 2).square()[:, 0]
        learner.update(Batch(state, action, reward, state, torch.ones(64), action))
    rows = np.array([[-0.8], [-0.3], [0.3], [0.8]], dtype=np.float32)
    acted = learner.averaged()(rows)
    margin("error", np.abs(acted - rows / 2).max(), below=0.2)
    margin("value", learner.value(torch.from_numpy(rows)).min().item(), above=-0.1)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'double_dqn'"):
        ControlConfig(algorithm="double_dqm")
    for name, value in {"gamma": 1.0, "batch_size": 0, "target_rate": 0.0, "hidden": ()}.items():
        with pytest.raises(ConfigError, match=f"control.{name}"):
            ControlConfig(**{name: value})  # type: ignore[arg-type]  # one of several types


def test_a_checkpoint_of_another_network_is_refused() -> None:
    state = Learner(replace(SMALL, hidden=(8,)), 5, 3, seed=0).state()
    with pytest.raises(TrainingError, match="another config"):
        Learner(SMALL, 5, 3, seed=0).restore(state)

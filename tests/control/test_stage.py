"""Replay, rewards and the control stage."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sept_offline.agent.rewards import compress, shift_by_goal
from sept_offline.control import Batch, ControlStage, Replay, prepare_rewards
from sept_offline.control.rewards import scale_by_instance
from sept_offline.errors import TrainingError
from sept_offline.settings import ControlConfig

EPISODES, LENGTH, INSTANCES = 6, 4, 3
CONFIG = ControlConfig(hidden=(16, 16), batch_size=8, updates=150)


def make_replay(kind: type[Replay] = Replay, **changes: object) -> Replay:
    """Observation (episode, time), so that every gathered row says where it came from."""
    count = EPISODES * LENGTH
    episode = np.repeat(np.arange(EPISODES), LENGTH)
    rows = [(e, t) for e in range(EPISODES) for t in range(LENGTH + 1)]
    columns: dict[str, object] = {
        "observations": np.array(rows, dtype=np.float32),
        "row": np.arange(count) + episode,
        "actions": np.arange(count) % 2,
        "rewards": np.arange(count) / count,
        "terminals": np.arange(count) % LENGTH == LENGTH - 1,
        "instance": episode % INSTANCES,
        # contexts say which instance is theirs, and stand in no order
        "contexts": np.array([[2, 20], [0, 0], [1, 10], [2, 21], [0, 1], [1, 11], [1, 12]]),
        "context_instance": np.array([2, 0, 1, 2, 0, 1, 1]),
    }
    return kind(**{**columns, **changes})  # type: ignore[arg-type]  # columns by name


def test_transitions_and_contexts_belong_together() -> None:
    batch = make_replay().sample(4000, np.random.default_rng(0))
    episode, time, owner, which = batch.inputs.numpy().T
    assert (batch.next_inputs[:, 0].numpy() == episode).all()
    assert (batch.next_inputs[:, 1].numpy() == time + 1).all()
    assert (batch.next_inputs[:, 2:] == batch.inputs[:, 2:]).all()
    assert (owner == episode % INSTANCES).all()
    assert set(which) == {0, 1, 10, 11, 12, 20, 21}
    index = episode * LENGTH + time
    np.testing.assert_allclose(batch.rewards.numpy(), index / (EPISODES * LENGTH), rtol=1e-6)
    assert (batch.actions.numpy() == index % 2).all()
    assert (batch.terminals.numpy() == (time == LENGTH - 1)).all()


def test_contexts_are_drawn_by_weight() -> None:
    weights = np.array([0, 1, 3, 1, 1, 1, 0])
    batch = make_replay(context_weights=weights).sample(40_000, np.random.default_rng(0))
    which = batch.inputs[:, 3].numpy()
    assert not np.isin(which, (12, 20)).any()
    second = which[np.isin(which, (10, 11))]
    assert abs((second == 10).mean() - 0.75) < 0.02


def test_without_contexts_the_state_is_all() -> None:
    for contexts in (None, np.empty((7, 0))):
        assert make_replay(contexts=contexts).input_dim == 2


def test_another_seed_draws_other_minibatches() -> None:
    """Weights that begin otherwise would differ in the end even if these were the same."""

    class Watched(Replay):
        drawn: torch.Tensor

        def minibatches(self, *given: Any) -> list[Batch]:
            found = super().minibatches(*given)
            self.drawn = torch.cat([batch.inputs for batch in found])
            return found

    drawn = []
    for seed in (1, 1, 2):
        replay = make_replay(kind=Watched)
        assert isinstance(replay, Watched)
        ControlStage(replay, CONFIG, seed, width=2).advance(1)
        drawn.append(replay.drawn)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_an_instance_without_context_is_named() -> None:
    with pytest.raises(TrainingError, match="number 2"):
        make_replay(context_weights=np.array([0, 1, 1, 0, 1, 1, 1]))


def test_contexts_of_absent_instances_are_never_drawn() -> None:
    """Held-out instances keep their contexts; they may stand between others in the order."""
    episode = np.repeat(np.arange(EPISODES), LENGTH)
    owner = np.repeat(np.arange(3 * INSTANCES), 5)
    replay = make_replay(
        instance=3 * (episode % INSTANCES),
        contexts=np.stack([owner, np.arange(len(owner))], axis=1),
        context_instance=owner,
    )
    inputs = replay.sample(2000, np.random.default_rng(0)).inputs.numpy()
    assert (inputs[:, 2] == 3 * (inputs[:, 0] % INSTANCES)).all()


def test_a_limit_that_cuts_an_episode_is_noticed() -> None:
    assert not make_replay().truncated
    ends = np.arange(EPISODES * LENGTH) % LENGTH == LENGTH - 1
    ends[-1] = False
    assert make_replay(terminals=ends).truncated


@given(seed=st.integers(0, 1000), many=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_no_draw_leaves_its_instance(seed: int, many: int) -> None:
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.arange(many * INSTANCES) % INSTANCES)
    weights = rng.random(len(owner)) * (rng.random(len(owner)) < 0.5)
    weights[[np.flatnonzero(owner == i)[0] for i in range(INSTANCES)]] = 1e-9
    replay = make_replay(
        contexts=np.stack([owner, np.arange(len(owner))], axis=1),
        context_instance=owner,
        context_weights=weights,
    )
    inputs = replay.sample(300, rng).inputs.numpy()
    assert (inputs[:, 2] == inputs[:, 0] % INSTANCES).all()
    assert (weights[inputs[:, 3].astype(int)] > 0).all()


@functools.cache
def trained(config: ControlConfig) -> ControlStage:
    """Without a stop."""
    stage = ControlStage(make_replay(), config, seed=3, width=2)
    stage.advance(1000)
    return stage


# the minibatches of all members are drawn together, 64 updates at a time
@pytest.mark.parametrize(
    ("cuts", "members"),
    [([64, 86], 1), ([1, 149], 1), ([63, 1, 1, 85], 1), ([70, 30, 50], 1), ([63, 37, 50], 2)],
)
def test_a_stage_continues_bit_for_bit(cuts: list[int], members: int) -> None:
    config = replace(CONFIG, members=members)
    unbroken = trained(config)
    state = None
    for cut in cuts:
        piece = ControlStage(make_replay(), config, seed=3 if state is None else 8, width=2)
        if state is not None:
            piece.restore(state)
        piece.advance(cut)
        state = piece.state()
    assert piece.done == unbroken.done == piece.total
    expected, found = unbroken.result().to_arrays("n"), piece.result().to_arrays("n")
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_the_early_network_is_that_of_a_shorter_fit() -> None:
    config = replace(CONFIG, average_every=10)
    stage = ControlStage(make_replay(), config, 3, 2)
    stage.advance(50)
    assert stage.early() is None
    stage.advance(50)
    resumed = ControlStage(make_replay(), config, 3, 2)
    resumed.restore(stage.state())
    resumed.advance(50)
    shorter = ControlStage(make_replay(), replace(config, updates=60), 3, 2)
    shorter.advance(60)
    early = resumed.early()
    assert early is not None
    first, last = early.to_arrays("n"), resumed.result().to_arrays("n")
    expected = shorter.result().to_arrays("n")
    assert all(np.array_equal(expected[name], first[name]) for name in expected)
    assert not all(np.array_equal(expected[name], last[name]) for name in expected)


def test_metrics_and_bound() -> None:
    stage = ControlStage(make_replay(), CONFIG, seed=0, width=2)
    metrics = stage.advance(100)
    assert stage.done == 100
    assert metrics["loss"] > 0
    # three steps that go on and one that ends, each with the largest reward of its kind
    going = (1 + 0.99 + 0.99**2) * 22 / 24
    assert metrics["max_q_bound"] == pytest.approx(going + 0.99**3 * 23 / 24, rel=1e-5)
    assert metrics["max_q"] < metrics["max_q_bound"]


def test_where_steps_cost_the_best_is_to_end_at_once() -> None:
    ends = np.arange(24) % LENGTH == LENGTH - 1
    cost = ControlStage(
        make_replay(rewards=np.where(ends, 5.0, -1.0), terminals=ends), CONFIG, 0, width=2
    )
    assert cost.bound == pytest.approx(5.0)
    never = ControlStage(
        make_replay(rewards=np.full(24, 2.0), terminals=np.zeros(24, dtype=bool)),
        replace(CONFIG, gamma=0.5),
        0,
        width=2,
    )
    assert never.bound == pytest.approx(2 * (1 + 0.5 + 0.25 + 0.125))


def test_watching_changes_nothing() -> None:
    once = ControlStage(make_replay(), CONFIG, seed=0, width=2)
    often = ControlStage(make_replay(), CONFIG, seed=0, width=2)
    once.advance(150)
    for _ in range(15):
        often.advance(10)
    expected, found = once.result().to_arrays("n"), often.result().to_arrays("n")
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Where tests run there is one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_callers_threads_are_left_alone(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, stage = [], ControlStage(make_replay(), CONFIG, seed=0, width=2)
    update = stage.learner.update

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(torch.get_num_threads())
        return update(*given, **named)

    monkeypatch.setattr(stage.learner, "update", watched)
    stage.advance(5)
    assert seen == [1] * 5 and torch.get_num_threads() == 2


def test_a_loss_that_is_not_finite_stops_and_says_why() -> None:
    rewards = np.full(EPISODES * LENGTH, 3e38)
    stage = ControlStage(make_replay(rewards=rewards), CONFIG, seed=0, width=2)
    with pytest.raises(TrainingError, match=r"at update \d+ of 150 of the control stage.*rewards"):
        stage.advance(150)


def test_bad_data_is_refused() -> None:
    with pytest.raises(TrainingError, match="rewards"):
        make_replay(rewards=np.full(EPISODES * LENGTH, np.nan))
    with pytest.raises(TrainingError, match="no transitions to train"):
        make_replay(row=np.empty(0, dtype=int))


def test_goal_shift_lowers_every_return_by_the_goal() -> None:
    rewards, done, gamma = np.array([-0.1, -0.1, 5.0]), np.array([0, 0, 1]), 0.9
    shifted = shift_by_goal(rewards, done, 2.0, gamma)
    for start in range(3):
        powers = gamma ** np.arange(3 - start)
        assert (powers * shifted[start:]).sum() == pytest.approx(
            (powers * rewards[start:]).sum() - 2.0
        )


def test_reward_forms() -> None:
    rewards = np.array([1e9, -1e9, 3.0, 4.0, 0.0])
    instance = np.array([0, 0, 2, 2, 3])
    scaled = scale_by_instance(rewards, instance)
    np.testing.assert_allclose(scaled[:2], [1, -1])
    assert np.sqrt((scaled[2:4] ** 2).mean()) == pytest.approx(1)
    assert scaled[4] == 0
    np.testing.assert_allclose(compress(np.array([0, 9e3, -99e3])), [0, 1, -2])
    config = ControlConfig(reward_form="log", reward_scale=2.0, goal_shift=1.0, gamma=0.5)
    prepared = prepare_rewards(np.array([9e3, 9e3]), np.array([0, 1]), np.array([0, 0]), config)
    np.testing.assert_allclose(prepared, [2 - 0.5, 2 - 1.0])

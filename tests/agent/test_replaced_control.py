"""Trackers that are paid, and that act with another control than the agent's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sept_offline.agent import Agent, Control, NetworkProbe, NoContext
from sept_offline.agent.contexts import RewardedContext, Tracker
from sept_offline.agent.networks import MLP, Array
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from tests.agent import builders

DIM, ACTIONS = 4, 3


class PaidTracker(Tracker):
    """Acts with what always prefers the action that its second reward names."""

    def __init__(self, control: Control) -> None:
        super().__init__(np.empty(0, dtype=np.float32), settled=False)
        self.rewards: list[float | None] = []
        self._own = control

    def step(self, observation: Array, reward: float | None = None) -> int | None:
        self.rewards.append(reward)
        if len(self.rewards) == 3:
            assert reward is not None
            bias = np.eye(ACTIONS)[int(reward)]
            self.control = replace(self._own, network=MLP([(np.zeros((ACTIONS, DIM)), bias)]))
            self.settled = True
        return None


class PaidContext(NoContext):
    needs = frozenset({"reward"})
    learns = True

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        return PaidTracker(control)


def paid_agent() -> Agent:
    agent: Agent = replace(builders.make_agent("avg"), context=PaidContext())
    return agent


def test_rewards_reach_the_tracker_and_its_control_acts() -> None:
    agent = paid_agent()
    assert agent.learns and agent.needs == {"reward"}
    rows = np.random.default_rng(0).normal(size=(30, DIM))
    robust = [int(agent.control.network(agent.control.scaler(row)).argmax()) for row in rows]
    for named in range(ACTIONS):
        episode = agent.begin()
        acted = [episode.act(rows[0])]
        acted += [episode.act(row, float(named)) for row in rows[1:]]
        assert acted[:2] == robust[:2] and set(acted[2:]) == {named}
        assert episode._tracker.rewards == [None, float(named), float(named)]
        with pytest.raises(AgentError, match="needs 'reward'"):
            episode.act(rows[0])


def test_a_batch_of_them_acts_as_each_alone() -> None:
    agent = paid_agent()
    rng = np.random.default_rng(1)
    rows, rewards = rng.normal(size=(6, 5, DIM)), rng.integers(0, ACTIONS, size=(6, 5))
    batch = agent.begin_batch(range(5))
    alone = [agent.begin(seed) for seed in range(5)]
    for time in range(6):
        paid = None if time == 0 else rewards[time]
        together = batch.act(rows[time], rewards=paid)
        each = [
            episode.act(rows[time, index], None if paid is None else float(paid[index]))
            for index, episode in enumerate(alone)
        ]
        assert together.tolist() == each
    assert together.tolist() == rewards[2].tolist()


@pytest.mark.parametrize("method", ["avg", "oracle", "history", "sept", "sept-np", "dynasept"])
def test_other_contexts_do_not_learn(method: str) -> None:
    assert builders.make_agent(method).learns is False


def test_a_probe_reads_the_observation_without_the_reward() -> None:
    agent = builders.make_agent("avg")
    rng, wide = np.random.default_rng(0), DIM + 1
    encoder = builders.transition_encoder(rng, wide)
    probe = NetworkProbe(builders.scaler(rng, DIM), builders.mlp(rng, [DIM, 8, ACTIONS]))
    context = RewardedContext(probe, encoder, builders.scaler(rng, builders.LATENT))
    control = Control(agent.control.scaler, builders.mlp(rng, [DIM + builders.LATENT, 8, ACTIONS]))
    episode = replace(agent, context=context, control=control).begin()
    rows = rng.normal(size=(builders.STEPS + 2, DIM)).astype(np.float32)
    for step, row in enumerate(rows):
        assert episode.phase == ("probe" if step < builders.STEPS else "control")
        assert episode.act(row, None if step == 0 else 1.5) in range(ACTIONS)
    assert episode.latent is not None

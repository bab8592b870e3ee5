"""Agents of known behaviour in the real navigation: counts, channels, ends and seeds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

import simulators
from sept_offline.agent import NoContext
from sept_offline.errors import AgentError, ConfigError, FamilyError, HarnessError
from sept_offline.evaluation import EpisodeResult, Results, evaluate
from sept_offline.family import Family
from sept_offline.seeding import integer
from tests.evaluation.navigation_agents import (
    EAST,
    LATENT,
    NORTH,
    RewardContext,
    StartAt,
    constant_agent,
    eastward_probe,
    mode_one_agent,
    oracle_agent,
    probing_agent,
    recording_agent,
)


def navigation(**changes: Any) -> Family:
    return replace(simulators.family("navigation2d"), **changes)


def timeless(results: Results) -> list[EpisodeResult]:
    return [replace(e, act_microseconds=0.0, seconds=0.0) for e in results.episodes]


def test_a_policy_for_one_mode_solves_that_mode_only() -> None:
    results = evaluate(mode_one_agent(), navigation())
    assert [e.instance for e in results.episodes] == [f"test-{i}" for i in range(10)]
    for index, episode in enumerate(results.episodes):
        if index % 2 == 0:
            assert episode.solved and episode.terminated
            assert episode.steps_to_solve == episode.steps < 20
            assert episode.rewards[-1] == 1000.0
        else:
            assert not episode.solved and not episode.terminated
            assert episode.steps == episode.steps_to_solve == 50
    summary = results.summary()
    assert summary["solved"] == 0.5
    assert summary["episodes"] == 10
    assert summary["needs"] == []


def test_the_oracle_is_given_the_hidden_parameters_and_the_table_says_so() -> None:
    results = evaluate(oracle_agent(), navigation())
    assert all(e.solved and e.steps < 20 for e in results.episodes)
    assert results.needs == ("hidden",)
    assert results.summary()["needs"] == ["hidden"]


def test_rewards_reach_only_those_that_declare_it() -> None:
    agent = recording_agent(RewardContext())
    results = evaluate(agent, navigation(splits={"test": [{"z": 1.0}]}))
    (episode,) = results.episodes
    assert results.needs == ("reward",)
    assert agent.record["given"] == [None, *episode.rewards[:-1]]

    silent = recording_agent(NoContext())
    evaluate(silent, navigation(splits={"test": [{"z": 1.0}]}))
    assert set(silent.record["given"]) == {None}


def test_phases_latents_and_limits() -> None:
    results = evaluate(probing_agent(), navigation(), max_steps=7)
    assert results.limit == 7
    for episode in results.episodes:
        assert episode.phases == ("probe",) * 2 + ("control",) * 5
        assert episode.latent is not None and len(episode.latent) == LATENT
        assert episode.uncertainty is not None and episode.uncertainty > 0
        assert episode.novelty is None and not episode.flagged
        assert episode.steps_to_solve == 7
        assert episode.act_microseconds > 0
        assert episode.seconds * 1e6 >= episode.act_microseconds * episode.steps
    assert len({e.latent for e in results.episodes}) > 1


def test_an_episode_that_ends_during_the_probe_counts_as_it_ended() -> None:
    plain = simulators.family("navigation2d")
    near = navigation(
        make=lambda hidden: StartAt(plain.make(hidden), [-0.1, 0.5]),
        splits={"test": [{"z": 1.0}]},
    )
    (episode,) = evaluate(probing_agent(2, eastward_probe()), near).episodes
    assert episode.actions == (EAST,)
    assert episode.phases == ("probe",)
    assert episode.solved and episode.terminated
    assert episode.steps == episode.steps_to_solve == 1
    assert episode.rewards == (1000.0,)
    assert episode.latent is None and episode.uncertainty is None


def test_a_limit_within_the_probe() -> None:
    for episode in evaluate(probing_agent(), navigation(), max_steps=1).episodes:
        assert episode.phases == ("probe",)
        assert not episode.terminated and episode.latent is None


def test_one_seed_gives_one_table_and_another_another() -> None:
    first, again = (evaluate(probing_agent(), navigation(), seed=5) for _ in range(2))
    other = evaluate(probing_agent(), navigation(), seed=6)
    assert timeless(first) == timeless(again)
    assert timeless(first) != timeless(other)


def test_an_episode_does_not_depend_on_those_before_it() -> None:
    one = evaluate(probing_agent(), navigation(), seed=5)
    three = evaluate(probing_agent(), navigation(), seed=5, episodes_per_instance=3)
    assert len(three.episodes) == 30
    assert [e for e in timeless(three) if e.episode == 0] == timeless(one)
    starts = {(e.instance, e.latent) for e in three.episodes}
    assert len(starts) == 30


def test_the_environment_starts_by_its_named_seed() -> None:
    family = navigation()
    env = family.make({"z": 1.0})
    env.reset(seed=integer(9, "evaluate", "test-0", 0, "environment"))
    rewards = [float(env.step(NORTH)[1]) for _ in range(50)]
    episode = evaluate(constant_agent(NORTH), family, seed=9).episodes[0]
    assert list(episode.rewards) == rewards


def test_a_family_without_a_notion_of_solved() -> None:
    results = evaluate(mode_one_agent(), navigation(solved=None))
    assert all(e.solved is None and e.steps_to_solve is None for e in results.episodes)
    summary = results.summary()
    assert summary["solved"] is None and summary["steps_to_solve"] is None


def test_the_family_is_the_agents_own_by_default() -> None:
    assert evaluate(mode_one_agent(), max_steps=3).family == "navigation2d"


def test_misuse_is_named() -> None:
    with pytest.raises(FamilyError, match=r"no split 'tset'.*did you mean 'test'"):
        evaluate(mode_one_agent(), navigation(), "tset")
    with pytest.raises(HarnessError, match="0 … 2 and \\[4\\]; evaluate it on the family"):
        evaluate(mode_one_agent(), simulators.family("acrobot"))
    with pytest.raises(ConfigError, match="at least 1"):
        evaluate(mode_one_agent(), navigation(), max_steps=0)
    with pytest.raises(ConfigError, match="seed is -1"):
        evaluate(mode_one_agent(), navigation(), seed=-1)
    with pytest.raises(FamilyError, match="no instances"):
        evaluate(mode_one_agent(), navigation(splits={"test": []}))
    with pytest.raises(FamilyError, match="name no family, so there is no simulator"):
        evaluate(replace(mode_one_agent(), family=""))


def test_a_reward_that_is_not_finite_is_named() -> None:
    plain = simulators.family("navigation2d")

    class Broken(StartAt):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, float("nan"), *rest

    broken = navigation(make=lambda hidden: Broken(plain.make(hidden), [0.0, -1.0]))
    with pytest.raises(FamilyError, match="instance test-0: step 0 gave reward nan"):
        evaluate(constant_agent(EAST), broken)


def test_an_observation_that_is_not_finite_names_the_instance() -> None:
    plain = simulators.family("navigation2d")

    class Blind(StartAt):
        def step(self, action: Any) -> Any:
            observation, *others = super().step(action)
            return observation * np.float32("nan"), *others

    blind = navigation(make=lambda hidden: Blind(plain.make(hidden), [0.0, -1.0]))
    with pytest.raises(AgentError, match=r"instance test-0: .* at step 1 is not finite"):
        evaluate(constant_agent(EAST), blind)


def test_an_error_in_the_environment_names_the_instance_and_the_step() -> None:
    plain = simulators.family("navigation2d")

    class Failing(StartAt):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == 3:
                raise ZeroDivisionError("no friction")
            return super().step(action)

    family = navigation(make=lambda hidden: Failing(plain.make(hidden), [0.0, -1.0]))
    with pytest.raises(FamilyError, match="test-0: step 2 raised ZeroDivisionError") as caught:
        evaluate(constant_agent(EAST), family)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_array_of_end_flags_is_named() -> None:
    plain = simulators.family("navigation2d")

    class Ending(StartAt):
        def step(self, action: Any) -> Any:
            observation, reward, ended, *rest = super().step(action)
            return observation, reward, np.array([ended, ended]), *rest

    family = navigation(make=lambda hidden: Ending(plain.make(hidden), [0.0, -1.0]))
    with pytest.raises(FamilyError, match=r"test-0: step 0 returned terminated of shape \(2,\)"):
        evaluate(constant_agent(EAST), family)


def test_actions_that_do_not_start_at_0_are_refused() -> None:
    plain = simulators.family("navigation2d")

    class FromOne(StartAt):
        action_space = gymnasium.spaces.Discrete(8, start=1)

    family = navigation(make=lambda hidden: FromOne(plain.make(hidden), [0.0, -1.0]))
    with pytest.raises(FamilyError, match="numbers its actions from 1"):
        evaluate(constant_agent(EAST), family)


def test_the_agents_time_is_its_own() -> None:
    plain = simulators.family("navigation2d")

    class Slow(StartAt):
        def step(self, action: Any) -> Any:
            time.sleep(0.02)
            return super().step(action)

    slow = navigation(
        make=lambda hidden: Slow(plain.make(hidden), [0.0, -1.0]), splits={"test": [{"z": 1.0}]}
    )
    (episode,) = evaluate(constant_agent(EAST), slow, max_steps=5).episodes
    assert episode.seconds > 0.1
    assert episode.act_microseconds < 10_000


def test_progress_is_reported() -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def start(self, title: str, total: float, unit: str = "") -> None:
            self.heard.append(total)

        def update(self, done: float, **metrics: float) -> None:
            self.heard.append(done)

        def finish(self) -> None:
            self.heard.append("finish")

        def message(self, text: str) -> None:
            self.heard.append(text)

    listener = Listener()
    evaluate(mode_one_agent(), navigation(), max_steps=2, progress=listener)
    assert listener.heard == [10, *range(1, 11), "finish"]


def test_actions_are_what_the_agent_chose() -> None:
    for episode in evaluate(constant_agent(NORTH), navigation(), max_steps=4).episodes:
        assert episode.actions == (NORTH,) * 4
        np.testing.assert_allclose(np.cumsum(episode.rewards), episode.cumulative)
        assert episode.total == episode.cumulative[-1]


def test_the_results_keep_what_was_seen() -> None:
    family = simulators.family("navigation2d")
    one = evaluate(probing_agent(), family, max_steps=6).episodes[0]
    assert one.observations is not None
    assert len(one.observations) == one.steps + 1
    env = family.make(family.instances("test")[0])
    first, _ = env.reset(seed=integer(0, "evaluate", "test-0", 0, "environment"))
    assert one.observations[0] == tuple(float(value) for value in first)
    for step, action in enumerate(one.actions, 1):
        seen, *_ = env.step(action)
        assert one.observations[step] == tuple(float(value) for value in seen)

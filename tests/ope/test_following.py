"""Along an episode that an agent made itself, it would do again what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import ACTIONS, DIM, STEPS, make_agent

import sept_offline as so
from sept_offline.actions import Categorical
from sept_offline.agent import Agent, SegmentContext
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.errors import AgentError
from sept_offline.tools.ope.following import FiniteChoices, Followed, follow

KINDS = ["avg", "oracle", "history", "sept", "paper", "sept-np"]
HIDDEN = {"a": {"mass": 0.3, "length": -1.0}, "b": {"mass": -0.5, "length": 2.0}}


def world(rng: np.random.Generator, state: Any, action: int) -> Any:
    """Anything: a rotation that depends on the action, and noise."""
    return np.roll(state, action) * 0.7 + rng.normal(size=DIM) * 0.5


def log_own(
    path: Path,
    agent: Agent,
    episodes: int = 12,
    steps: int = 9,
    random_from: int = 99,
    shortest: int = 2,
) -> Dataset:
    """The agent's own episodes; from step `random_from` on, a random walk instead."""
    rng = np.random.default_rng(0)
    with DatasetWriter(path, num_actions=ACTIONS, hidden=HIDDEN) as writer:
        for number in range(episodes):
            instance = "ab"[number % 2]
            # one shorter than the probe too
            length = shortest if number == 3 else steps
            hidden = HIDDEN[instance] if "hidden" in agent.needs else None
            episode = agent.begin(seed=number, hidden=hidden)
            observations, actions = [rng.normal(size=DIM).astype(np.float32)], []
            rewards = rng.normal(size=length)
            for time in range(length):
                action = int(rng.integers(ACTIONS))
                if time < random_from:
                    rewarded = time > 0 and "reward" in agent.needs
                    last = float(rewards[time - 1]) if rewarded else None
                    action = episode.act(observations[-1], last)
                actions.append(action)
                observations.append(world(rng, observations[-1], action).astype(np.float32))
            writer.append(
                instance=instance,
                observations=np.stack(observations),
                actions=np.array(actions),
                rewards=rewards,
                terminated=number % 4 == 0,
                truncated=number % 4 != 0,
            )
    return so.load_dataset(path)


def chances(found: Followed) -> Any:
    assert isinstance(found.choices, FiniteChoices)
    return found.choices.probabilities


def followed_by(agent: Agent, data: Dataset) -> Followed:
    stacked = data.stacked(agent.stack)
    return follow(agent, stacked, stacked.steps(), seed=7)


@pytest.mark.parametrize(("fallback", "stack"), [(False, 1), (True, 1), (True, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_would_do_again_what_it_did(
    kind: str, fallback: bool, stack: int, tmp_path: Path
) -> None:
    agent = make_agent(kind, seed=2, fallback=fallback, stack=stack)
    data = log_own(tmp_path / "own.h5", agent)
    steps = data.steps()
    found = followed_by(agent, data)
    probabilities = chances(found)[steps.row]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    done = probabilities[np.arange(len(steps.actions)), steps.actions]
    probing = steps.time < agent.probe_steps
    assert (done[~probing] == 1).all()
    assert (done[probing] > 0).all() and (done[probing] < 1).all()
    np.testing.assert_array_equal(found.probing[steps.row], probing)


@pytest.mark.parametrize("kind", KINDS)
def test_another_agent_would_not(kind: str, tmp_path: Path) -> None:
    data = log_own(tmp_path / "own.h5", make_agent(kind, seed=2))
    steps = data.steps()
    other = chances(followed_by(make_agent(kind, seed=3), data))[steps.row]
    assert other[np.arange(len(steps.actions)), steps.actions].mean() < 0.9


def test_a_probe_says_its_probabilities_and_the_latent_is_that_of_the_logged_segment(
    tmp_path: Path,
) -> None:
    agent = make_agent("sept", seed=4)
    context = agent.context
    assert isinstance(context, SegmentContext)
    # another agent's log: its actions are not what this probe would have drawn
    data = log_own(tmp_path / "other.h5", make_agent("avg", seed=9))
    steps, segments = data.steps(), data.segments(STEPS)
    found = followed_by(agent, data)
    for row, time in zip(steps.row, steps.time, strict=True):
        if time < STEPS:
            expected = context.probe.policy(steps.observations[row], int(time))
            assert isinstance(expected, Categorical)
            np.testing.assert_array_equal(chances(found)[row], expected.probabilities)
    taken = agent.spaces.actions.encode(segments.actions)
    mean, _ = context.encoder.encode(segments.observations, taken)
    latent = context.latent_scaler(mean)
    for episode, vector in zip(segments.episode, latent, strict=True):
        rows = steps.row[(steps.episode == episode) & (steps.time >= STEPS)]
        np.testing.assert_allclose(found.contexts[rows], np.tile(vector, (len(rows), 1)), rtol=1e-4)
        inputs = np.concatenate(
            [agent.control.scaler(steps.observations[rows]), found.contexts[rows]], axis=1
        )
        best = agent.control.greedy(inputs)
        np.testing.assert_array_equal(chances(found)[rows].argmax(axis=1), best)


@pytest.mark.parametrize("method", ["dynasept", "maml"])
def test_agents_that_change_in_the_episode_are_led_too(method: str, tmp_path: Path) -> None:
    tiny = {
        "probe_steps": 2,
        "latent": {"updates": 5, "dim": 2},
        "probe": {"steps": 3},
        "control": {"updates": 5, "hidden": [8]},
    }
    logs = log_own(tmp_path / "random.h5", make_agent("avg"), random_from=0, shortest=9)
    agent = so.fit(logs, method, tiny, seed=0)
    data = log_own(tmp_path / "own.h5", agent)
    steps = data.steps()
    found = chances(followed_by(agent, data))[steps.row, steps.actions]
    assert (found[steps.time >= agent.probe_steps] == 1).all()


def test_a_history_is_the_logged_one(tmp_path: Path) -> None:
    """From the fourth step on the log leaves the agent; what it remembers must leave with it."""
    agent = make_agent("history", seed=2)
    steps = (data := log_own(tmp_path / "left.h5", agent, random_from=4)).steps()
    found = followed_by(agent, data)
    row = int(np.flatnonzero((steps.time == 6) & (steps.episode == 0))[0])
    at = int(steps.row[row])
    past = steps.observations[[at - 1, at - 2]][None]
    expected = agent.context.features(  # type: ignore[attr-defined]
        past,
        agent.spaces.actions.encode(steps.actions[[row - 1, row - 2]][None]),
        np.ones((1, 2), dtype=bool),
    )
    np.testing.assert_array_equal(found.contexts[at], expected[0])


def test_the_state_an_episode_was_cut_in_has_a_next_action_and_the_end_has_none(
    tmp_path: Path,
) -> None:
    data = log_own(tmp_path / "own.h5", make_agent("sept", seed=2))
    steps = data.steps()
    found = followed_by(make_agent("sept", seed=2), data)
    last = np.flatnonzero(steps.terminations | steps.truncations)
    after = chances(found)[steps.row[last] + 1].sum(axis=1)
    np.testing.assert_allclose(after, steps.truncations[last])


def test_an_agent_is_refused_what_the_logs_do_not_hold(tmp_path: Path) -> None:
    data = log_own(tmp_path / "own.h5", make_agent("avg"))
    with pytest.raises(AgentError, match="needs the hidden parameters"):
        followed_by(make_agent("oracle"), data.without_hidden())
    with DatasetWriter(tmp_path / "narrow.h5", num_actions=2) as writer:
        writer.append(
            instance="a",
            observations=np.zeros((3, 1)),
            actions=np.array([0, 1]),
            rewards=np.zeros(2),
            terminated=False,
            truncated=True,
        )
    narrow = so.load_dataset(tmp_path / "narrow.h5")
    with pytest.raises(AgentError, match="takes actions of 0 … 2 on 4 columns"):
        followed_by(make_agent("avg"), narrow)

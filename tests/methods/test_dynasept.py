"""DynaSEPT: windows, η and R_tot by hand, and the same bits of context offline and online."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.agent import Agent, WindowContext
from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Steps
from sept_offline.errors import DataError
from sept_offline.latent import LatentModel, WindowLatentStage
from sept_offline.latent.window import all_windows
from sept_offline.methods.dynasept import relabel, running_doubt, total_rewards
from sept_offline.settings import ControlConfig, LatentConfig, merge
from tests.margins import Margins
from tests.methods.answers import check_answer
from tests.methods.check_method import SMALL
from tests.methods.navigation import log_navigation
from tests.methods.two_step import log_two_step, two_step

LENGTHS = (4, 2, 3)


def tiny_steps() -> Steps:
    """Three episodes of 4, 2 and 3 steps; an observation is its own row, twice."""
    count, episodes = sum(LENGTHS), len(LENGTHS)
    episode = np.repeat(np.arange(episodes), LENGTHS)
    row = np.arange(count) + episode
    rows = np.arange(count + episodes, dtype=np.float32)
    return Steps(
        observations=np.stack([rows, rows], axis=1),
        actions=np.arange(count) % 2,
        rewards=np.arange(count, dtype=np.float64),
        propensities=None,
        terminations=np.isin(np.arange(count), (3, 8)),
        truncations=np.arange(count) == 5,
        row=row,
        episode=episode,
        instance=np.array([0, 1, 0])[episode],
        time=np.concatenate([np.arange(length) for length in LENGTHS]),
    )


def test_windows_by_hand() -> None:
    windows = all_windows(tiny_steps(), 2)
    assert windows.last.tolist() == [1, 2, 3, 5, 7, 8]
    assert windows.left.tolist() == [2, 1, 0, 0, 1, 0]
    assert windows.instance.tolist() == [0, 0, 0, 1, 0, 0]
    assert windows.actions.tolist() == [[0, 1], [1, 0], [0, 1], [0, 1], [0, 1], [1, 0]]
    ends = [[0, 1, 2], [1, 2, 3], [2, 3, 4], [5, 6, 7], [8, 9, 10], [9, 10, 11]]
    assert windows.observations[:, :, 0].tolist() == ends


def test_doubt_by_hand() -> None:
    """σ over the largest so far in its own episode, the prior's 1 included, mean over columns."""
    steps = tiny_steps()
    windows = all_windows(steps, 2)
    deviation = np.array([[0.5, 0.1], [2.0, 0.2], [1.0, 0.4], [0.5, 0.5], [4.0, 2.0], [1.0, 1.0]])
    eta = running_doubt(deviation, windows, steps.time)
    by_hand = [0.3, (1 + 0.2) / 2, (0.5 + 0.4) / 2, 0.5, 1.0, (0.25 + 0.5) / 2]
    assert np.allclose(eta, by_hand)


def test_total_rewards_by_hand() -> None:
    steps = tiny_steps()
    windows = all_windows(steps, 2)
    eta = np.array([1, 1, 0.5, 0.25, 1, 1, 1, 1, 0.0])
    elbo = np.array([3.0, 1.0, 1.0, 3.0, 1.0, 3.0])
    whole = total_rewards(steps.rewards, elbo, windows, eta)
    # rewards 0 … 8: mean 4, sd √(60/9); the ELBOs are +1 and −1 standard deviations
    mean, size = 4.0, np.sqrt(60 / 9)
    probing = [mean, mean + size, mean - size, mean - size, mean, mean + size, mean, mean - size, 0]
    by_hand = [eta[t] * probing[t] + (1 - eta[t]) * t for t in range(9)]
    assert np.allclose(whole, by_hand)


class FixedLatent(LatentModel):
    """The mean of a window is its last observation; its sd 1/2 and 1/4; its ELBO 0."""

    def __init__(self) -> None:
        pass

    dim = 2

    def encode(self, segments):  # type: ignore[no-untyped-def]
        deviation = np.tile([0.5, 0.25], (len(segments.actions), 1))
        return segments.observations[:, -1], (2 * np.log(deviation)).astype(np.float32)

    def elbo(self, segments, draws=8):  # type: ignore[no-untyped-def]
        return np.zeros(len(segments.actions))


def test_labels_by_hand() -> None:
    """Nothing known before the first window; a step is paid by the doubt it sets out with."""
    steps = tiny_steps()
    windows = all_windows(steps, 2)
    config = ControlConfig(reward_scale=2.0, goal_shift=3.0, gamma=0.5)
    identity = Standardiser.identity(2)
    beside, rewards = relabel(steps, windows, FixedLatent(), identity, config)
    known = [2, 3, 4, 7, 10, 11]
    for row in range(12):
        expected = [row, row, 0.375] if row in known else [0, 0, 1]
        assert np.allclose(beside[row], expected)
    for step in range(9):
        eta = 0.375 if step in (2, 3, 8) else 1.0
        # 2 · (0 … 8) has the mean 8; the shift is 3 · (1 − γ), and 3 at an end
        shift = 3.0 if step in (3, 8) else 1.5
        expected = eta * 8 + (1 - eta) * 2 * step - shift
        assert rewards[step] == pytest.approx(expected)


def test_offline_and_online_contexts_agree(tmp_path: Path) -> None:
    path = log_navigation(tmp_path / "nav.h5", episodes=12)
    few = {
        "verdict": False,
        "probe_steps": 2,
        "latent": {"updates": 30},
        "control": {"updates": 2},
    }
    agent = so.fit(path, "dynasept", few)
    context = agent.context
    assert isinstance(context, WindowContext) and context.dim == 3
    space = agent.spaces.actions
    with so.load_dataset(path) as data:
        steps = data.steps()
        windows = all_windows(steps, 2)
        mean, log_var = context.encoder.encode(windows.observations, space.encode(windows.actions))
        eta = running_doubt(np.exp(0.5 * log_var), windows, steps.time)
        known = dict(zip((steps.row[windows.last] + 1).tolist(), range(len(eta)), strict=True))
        row = 0
        for episode in data.episodes():
            tracker = context.begin(0, None, agent.control)
            for time, observation in enumerate(episode.observations):
                assert tracker.step(observation) is None and not tracker.settled
                window = known.get(row)
                if window is None:
                    assert tracker.vector.tolist() == [0, 0, 1] and time < 2
                else:
                    whole = np.append(context.latent_scaler(mean[window]), eta[window])
                    assert np.allclose(tracker.vector, whole, atol=1e-5)
                row += 1
                if time < len(episode.actions):
                    tracker.took(space.encode(episode.actions[time]))


def test_a_window_tells_the_mode_and_control_needs_it(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    path = log_two_step(tmp_path / "x.h5")
    agent = so.fit(path, "dynasept", SMALL, seed=training_seed)
    check_answer(agent, two_step(), (1.0, 1.0), margin)
    assert agent.needs == frozenset() and not agent.learns
    check_answer(blinded(agent), two_step(), (0.2, 0.8), margin, "blind return")


def blinded(agent: Agent) -> Agent:
    """The same with z so scaled that every window's is 0."""
    context = agent.context
    assert isinstance(context, WindowContext)
    width = context.encoder.latent_dim
    blind = WindowContext(context.encoder, Standardiser(np.zeros(width), np.full(width, 1e9)))
    return replace(agent, context=blind)


def test_the_papers_vae_on_windows(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", probing=2)
    few = {"latent": {"objective": "segment", "updates": 3}, "control": {"updates": 3}}
    agent = so.fit(path, "dynasept", merge(SMALL, few))
    assert isinstance(agent.context, WindowContext) and agent.context.encoder.kind == "lstm"


def test_windows_that_nothing_follows_are_refused() -> None:
    steps = tiny_steps()
    windows = all_windows(steps, 2)
    last = replace(windows, left=np.zeros_like(windows.left))
    with pytest.raises(DataError, match="No window is followed"):
        WindowLatentStage(steps, last, LatentConfig(), 0, space=Finite.of(2), num_instances=2)

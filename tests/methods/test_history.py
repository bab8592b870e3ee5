"""The history that is learned from is the one that is acted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.agent import Control, HistoryContext
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.data import Dataset
from sept_offline.errors import ConfigError
from sept_offline.methods import resolve_config
from sept_offline.methods.baselines import histories
from tests.methods.navigation import log_navigation


def test_offline_and_online_features_are_the_same_bits(tmp_path: Path) -> None:
    path = log_navigation(tmp_path / "nav.h5", episodes=12)
    with so.load_dataset(path) as data:
        steps = data.steps()
        context = HistoryContext(3, data.num_actions, Standardiser.fit(steps.observations))
        space = Finite.of(data.num_actions)
        offline = histories(steps, context, space)
        width = data.observation_dim + context.dim
        network = MLP([(np.zeros((data.num_actions, width)), np.zeros(data.num_actions))])
        control = Control(context.scaler, network)
        row = 0
        for episode in data.episodes():
            tracker = context.begin(0, None, control)
            for time, observation in enumerate(episode.observations):
                assert tracker.step(observation) is None and not tracker.settled
                assert np.array_equal(tracker.vector, offline[row])
                row += 1
                if time < len(episode.actions):
                    tracker.took(space.encode(episode.actions[time]))
        assert row == len(offline)
        check_by_hand(data, context, offline)


def check_by_hand(data: Dataset, context: HistoryContext, offline: np.ndarray) -> None:
    """Observations before, actions as one of four, a mask; zeros before the start."""
    first = next(iter(data.episodes()))
    width = data.observation_dim + data.num_actions + 1
    assert offline.shape[1] == context.dim == 3 * width
    assert not offline[0].any()
    second = offline[2].reshape(3, width)
    for lag in (0, 1):
        seen, action = first.observations[1 - lag], first.actions[1 - lag]
        assert np.array_equal(second[lag, :2], context.scaler(seen))
        assert second[lag, 2:].tolist() == [*(np.arange(4) == action).astype(float), 1.0]
    assert not second[2].any()


def test_the_length_is_a_setting(tmp_path: Path) -> None:
    path = log_navigation(tmp_path / "nav.h5", episodes=12)
    few = {"verdict": False, "control": {"updates": 2}, "history_steps": 2}
    agent = so.fit(path, "history", few)
    assert isinstance(agent.context, HistoryContext) and agent.context.steps == 2
    with so.load_dataset(path) as data, pytest.raises(ConfigError, match="history_steps"):
        resolve_config(data, "default", {"history_steps": 0})

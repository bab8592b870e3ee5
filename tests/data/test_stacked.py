"""Observations stacked with the last steps: every row is what the episode says it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.data.records import Episode
from sept_offline.errors import DataError
from sept_offline.stacking import Stack

ACTIONS = 4


def by_hand(episode: Episode, length: int) -> np.ndarray:
    """The stacked rows of an episode, one number after another."""
    rows = []
    for time in range(len(episode.actions) + 1):
        row: list[float] = []
        for lag in range(length):
            row += episode.observations[max(time - lag, 0)].tolist()
        for lag in range(1, length):
            chosen = [0.0] * ACTIONS
            if time >= lag:
                chosen[episode.actions[time - lag]] = 1.0
            row += chosen
        rows.append(row)
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("length", [2, 3, 20])
def test_every_row_is_that_of_its_episode(path: Path, length: int) -> None:
    data = so.load_dataset(path)
    view = data.stacked(length)
    assert view.observation_dim == 3 * length + ACTIONS * (length - 1)
    plain = data.episodes()
    for position in (0, 7, len(plain) - 1):
        found = view.episodes()[position]
        np.testing.assert_array_equal(found.observations, by_hand(plain[position], length))
        assert found.observations.dtype == np.float32
        np.testing.assert_array_equal(found.actions, plain[position].actions)
    expected = np.concatenate([by_hand(episode, length) for episode in plain])
    np.testing.assert_array_equal(view.steps().observations, expected)


def test_shuffled_and_nested_views(path: Path) -> None:
    data = so.load_dataset(path)
    order = np.random.default_rng(0).permutation(20)[:9]
    expected = [by_hand(data.episodes()[int(place)], 3) for place in order]
    for view in (
        data.stacked(3).select(order),
        data.select(order).stacked(3),
        data.without_hidden().stacked(3).select(order).without_propensities(),
    ):
        np.testing.assert_array_equal(view.steps().observations, np.concatenate(expected))
        segments = view.segments(4)
        np.testing.assert_array_equal(segments.observations, [rows[:5] for rows in expected])
        np.testing.assert_array_equal(segments.episode, order)
        last = view.episodes()[len(order) - 1]
        np.testing.assert_array_equal(last.observations, expected[-1])
    assert data.stacked(3).hidden is data.hidden
    assert data.stacked(3).without_hidden().hidden is None


def test_it_is_the_same_file(path: Path) -> None:
    data = so.load_dataset(path)
    view = data.stacked(2)
    assert view.content_hash == data.content_hash
    assert view.instances == data.instances
    assert view.num_steps == data.num_steps
    np.testing.assert_array_equal(view.steps().rewards, data.steps().rewards)
    assert data.stacked(1) is data
    for bad in (0, -1, 65):
        with pytest.raises(DataError, match="1 ≤ n ≤ 64"):
            data.stacked(bad)


def test_columns_have_names(tmp_path: Path, episodes: list[dict[str, Any]], write: Any) -> None:
    names = {"observation_names": ("x", "y", "z"), "action_names": ("off", "low", "high", "full")}
    data = so.load_dataset(write(tmp_path / "named.h5", episodes, **names))
    found = data.stacked(3).metadata.observation_names
    assert found is not None and len(found) == data.stacked(3).observation_dim
    assert found[:4] == ("x", "y", "z", "x 1 ago")
    assert found[8:10] == ("z 2 ago", "action off 1 ago") and found[-1] == "action full 2 ago"
    assert data.stacked(3).metadata.action_names == names["action_names"]
    assert Stack(2, 1, 2).names(None, None) == (
        *("observation_0", "observation_0 1 ago"),
        *("action_0 1 ago", "action_1 1 ago"),
    )


def test_an_episode_moves_on_as_the_logs_do(path: Path) -> None:
    episode = so.load_dataset(path).episodes()[3]
    stack = Stack(3, 3, ACTIONS)
    alone, together = stack.empty(), stack.empty(2)
    expected = by_hand(episode, 3)
    for time, action in enumerate(episode.actions):
        seen = episode.observations[time]
        stack.see(alone, seen, first=time == 0)
        stack.see(together, np.stack([seen, seen]), first=time == 0)
        np.testing.assert_array_equal(alone, expected[time])
        np.testing.assert_array_equal(together, [expected[time]] * 2)
        taken = Finite.of(ACTIONS).encode(action)
        stack.took(alone, taken)
        stack.took(together, np.array([taken, taken]))

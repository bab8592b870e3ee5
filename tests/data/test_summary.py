"""The table of a dataset, against figures worked out by hand, and its warnings."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.data import DatasetWriter
from sept_offline.tools.importing.measures import measure


def write_actions(
    path: Path,
    rows: list[tuple[str, list[int]]],
    probability: float | None,
    reward: float = 1.0,
) -> Path:
    """Two actions, `reward` a step; `probability` of action 0 everywhere."""
    with DatasetWriter(path, num_actions=2, probe_steps=2) as writer:
        for instance, actions in rows:
            steps = len(actions)
            propensities = None
            if probability is not None:
                propensities = np.tile([probability, 1 - probability], (steps, 1))
            writer.append(
                instance=instance,
                observations=np.zeros((steps + 1, 1)),
                actions=np.asarray(actions),
                rewards=np.full(steps, reward),
                terminated=instance == "a",
                truncated=instance != "a",
                propensities=propensities,
            )
    return path


def test_by_hand(tmp_path: Path, suffix: str) -> None:
    rows = [("a", [0, 0, 1]), ("a", [0, 1]), ("a", [0, 0]), ("b", [1, 1, 1, 1]), ("b", [0])]
    path = write_actions(tmp_path / f"x.{suffix}", rows, 0.8)
    summary = so.inspect(path)
    a, b = summary.table
    assert (summary.instances, summary.episodes, summary.steps) == (2, 5, 12)
    assert (a.episodes, a.steps, a.return_mean, a.length_min, a.length_max) == (3, 7, 7 / 3, 2, 3)
    assert (a.terminated, b.terminated) == (1.0, 0.0)
    assert a.action_frequencies == pytest.approx((5 / 7, 2 / 7))
    assert summary.action_frequencies == pytest.approx((6 / 12, 6 / 12))
    assert (a.coverage, b.coverage, summary.coverage_min) == (0.5, 0.25, 0.25)
    assert (summary.probe_steps, summary.short_episodes) == (2, 1)
    # Weights: 00 is (.5/.8)², 01 is .5²/(.8·.2).
    w = np.array([0.25 / 0.64, 0.25 / 0.16, 0.25 / 0.64])
    assert a.effective_sample_size == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert b.effective_sample_size == pytest.approx(1.0)
    record = summary.to_json()
    assert json.loads(json.dumps(record))["content_hash"] == so.load_dataset(path).content_hash
    assert {"instances", "episodes", "steps"} <= record.keys()
    short = next(w for w in summary.warnings if "shorter than the probe" in w)
    # what `fit` says of the same logs, too
    assert short.endswith("so fit uses a probe of 1, the length of the shortest.")
    assert any("25% of the 2^2" in w for w in summary.warnings)
    assert so.inspect(so.load_dataset(path)) == summary


def test_uniform_behaviour_needs_no_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(f"{'ab'[i % 2]}", rng.integers(2, size=6).tolist()) for i in range(200)]
    summary = so.inspect(write_actions(tmp_path / "x.h5", rows, 0.5))
    assert summary.effective_sample_size == pytest.approx(200)
    assert summary.leak is not None and not summary.leak.significant
    assert summary.warnings == ()


@pytest.mark.parametrize(
    ("reward", "instances", "warned"),
    [(1.0, "bc", True), (0.0, "ab", True), (1.0, "ab", False)],
    ids=["no end", "nothing paid", "the sooner the better"],
)
def test_equal_rewards(tmp_path: Path, reward: float, instances: str, warned: bool) -> None:
    path = tmp_path / "x.h5"
    write_actions(path, [(name, [0, 1, 0]) for name in instances], 0.5, reward)
    warnings = so.inspect(path).warnings
    assert any("All rewards are equal" in line for line in warnings) is warned


def test_one_instance_is_not_several(tmp_path: Path) -> None:
    rows = [("a", [0, 1, 0]), ("a", [1, 1]), ("b", [0])]
    warnings = so.inspect(write_actions(tmp_path / "x.h5", rows, 0.5)).warnings
    assert "The instance 'b' has a single episode." in warnings
    assert any(line.startswith("1 episode is shorter than the probe's 2") for line in warnings)


@pytest.mark.parametrize("kind", ["first action", "order of actions"])
def test_actions_that_give_the_instance_away(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    rows: list[tuple[str, list[int]]] = []
    for i in range(200):
        start = int(rng.integers(2))
        if kind == "first action":
            rows.append(("ab"[i % 2], [i % 2, start, start]))
        else:
            rows.append(("ab"[i % 2], [start, start ^ (i % 2), start]))
    summary = so.inspect(write_actions(tmp_path / "x.h5", rows, None))
    assert summary.leak is not None
    assert summary.leak.significant and summary.leak.accuracy > 0.9
    assert any("predicted from the initial actions alone" in w for w in summary.warnings)
    assert any("probabilities are unknown for 100%" in w for w in summary.warnings)
    assert summary.effective_sample_size is None


def test_a_probe_length_may_be_given(path: Path) -> None:
    assert so.inspect(path).probe_steps == 5
    assert so.inspect(path, probe_steps=3).probe_steps == 3


def test_inspect_ignores_unknown_segments(tmp_path: Path, episodes: Any, write: Any) -> None:
    some = [{**e, "propensities": None} if i % 2 else e for i, e in enumerate(episodes)]
    summary = so.inspect(write(tmp_path / "x.h5", some), probe_steps=2)
    assert summary.known_propensities == pytest.approx(0.5)
    assert summary.effective_sample_size is not None and summary.effective_sample_size <= 10


def test_more_sequences_than_a_float_can_count(tmp_path: Path) -> None:
    rows = [(name, [0, 1] * 600) for name in "ab"]
    path = write_actions(tmp_path / "long.h5", rows, 0.5)
    assert so.inspect(path, probe_steps=1200).table[0].coverage == 0.0


def test_a_leak_is_scored_in_blocks_whatever_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    likes = {"a": 0.3, "b": 0.5, "c": 0.7}
    rows = [
        (name, (rng.random(2) < p).astype(int).tolist())
        for name, p in likes.items()
        for _ in range(23)
    ]
    path = write_actions(tmp_path / "x.h5", rows, 0.5)
    whole = so.inspect(path).leak
    assert whole is not None and 0.3 < whole.accuracy < 0.9
    for size in (1, 30, 40):
        monkeypatch.setattr("sept_offline.data.summary.SCORED", size)
        assert so.inspect(path).leak == whole


def test_a_card_reads_no_states_beside_the_ranges_it_is_given(tmp_path: Path) -> None:
    """Short episodes are all first steps: with their states, memory would grow with the rows."""
    with DatasetWriter(tmp_path / "wide.h5", num_actions=2, probe_steps=4) as writer:
        for number in range(600):
            writer.append(
                instance="ab"[number % 2],
                observations=np.zeros((5, 500), dtype=np.float32),
                actions=np.array([0, 1, number % 2, 0]),
                rewards=np.ones(4),
                terminated=True,
                truncated=False,
            )
    with so.load_dataset(tmp_path / "wide.h5") as data:
        tracemalloc.start()
        try:
            card = measure(data, [], 4)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        segments = data.segments(4)
    assert peak < segments.observations.nbytes / 2
    assert card["coverage"]["short_episodes"] == 0 and card["coverage"]["mean"] == 1 / 16
    assert card["confounding"]["accuracy"] == 1


COLUMNS = {
    "gravity": lambda instance, episode, rows: np.full(rows, float(instance)),
    "serial": lambda instance, episode, rows: np.full(rows, 7.0),
    "start": lambda instance, episode, rows: np.full(rows, float(episode)),
    "clock": lambda instance, episode, rows: np.arange(rows) * 1.0,
    # constant in all but the last step of one episode
    "late": lambda instance, episode, rows: (
        instance + ((np.arange(rows) == 29) & (episode == 3)) * 1.0
    ),
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("block", [1 << 18, 40])
def test_a_column_that_identifies_the_instance(
    tmp_path: Path, suffix: str, named: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sept_offline.data.summary.BLOCK_STEPS", block)
    names = list(COLUMNS) if named else None
    path = tmp_path / f"x.{suffix}"
    with DatasetWriter(path, num_actions=2, observation_names=names, probe_steps=2) as writer:
        for number in range(12):
            instance, episode = number % 3, number // 3
            columns = [make(instance, episode, 30) for make in COLUMNS.values()]
            writer.append(
                instance=f"i{instance}",
                observations=np.stack(columns, axis=1),
                actions=np.zeros(29, dtype=int),
                rewards=np.zeros(29),
                terminated=False,
                truncated=True,
            )
    summary = so.inspect(path)
    assert summary.instance_columns == (("gravity",) if named else ("0",))
    word = "'gravity'" if named else "'0'"
    assert any(f"differ between instances: {word}." in line for line in summary.warnings)


def test_short_episodes_are_looked_at_for_such_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with DatasetWriter(path, num_actions=2, probe_steps=5) as writer:
        for instance in (0, 1):
            writer.append(
                instance=f"i{instance}",
                observations=np.stack([np.full(3, instance), np.arange(3)], axis=1),
                actions=np.zeros(2, dtype=int),
                rewards=np.zeros(2),
                terminated=False,
                truncated=True,
            )
    assert so.inspect(path).instance_columns == ("0",)

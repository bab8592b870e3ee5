"""Parts of logs: fewer episodes, fewer instances, no probabilities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.tools.bench.logs import thin
from sept_offline.tools.bench.plan import DataSettings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "acrobot.h5"
    overrides = {"behaviour": "random", "episodes": 48, "max_steps": 20}
    so.collect_dataset("acrobot", path, overrides=overrides, seed=3).close()
    return path


def part(whole: Path, out: Path, **wanted: object) -> so.Dataset:
    with so.load_dataset(whole) as data:
        thin(data, out, DataSettings(**wanted), seed=0)  # type: ignore[arg-type]
    so.validate(out).raise_if_bad()
    return so.load_dataset(out)


def seeds(data: so.Dataset, instance: str) -> list[int]:
    return [episode.seed for episode in data.episodes(instance)]


def test_fewer_episodes_are_among_more_and_spread_over_the_logs(
    whole: Path, tmp_path: Path
) -> None:
    with (
        so.load_dataset(whole) as data,
        part(whole, tmp_path / "4.h5", episodes=4) as few,
        part(whole, tmp_path / "9.h5", episodes=9) as more,
    ):
        assert few.instances == more.instances == data.instances
        for name in data.instances:
            all_seeds = seeds(data, name)
            assert len(all_seeds) == 12
            assert len(seeds(few, name)) == 4 and len(seeds(more, name)) == 9
            assert set(seeds(few, name)) < set(seeds(more, name)) < set(all_seeds)
        # Not the first ones: a history of learning would lose its end.
        assert any(seeds(few, name) != seeds(data, name)[:4] for name in data.instances)
        episode = few.episodes("train-0")[0]
        twin = next(e for e in data.episodes("train-0") if e.seed == episode.seed)
        np.testing.assert_array_equal(episode.observations, twin.observations)
        np.testing.assert_array_equal(episode.propensities, twin.propensities)


def test_nothing_is_left_of_instances_left_out(whole: Path, tmp_path: Path) -> None:
    with part(whole, tmp_path / "two.h5", instances=2) as few, so.load_dataset(whole) as data:
        assert few.instances == ["train-0", "train-3"]
        assert few.hidden is not None and data.hidden is not None
        np.testing.assert_array_equal(few.hidden.values, data.hidden.values[[0, 3]])
        assert few.num_episodes == 24
        assert few.metadata.probe_steps == data.metadata.probe_steps
        assert few.metadata.extra == data.metadata.extra


def test_without_probabilities(whole: Path, tmp_path: Path) -> None:
    with part(whole, tmp_path / "unknown.h5", propensities="estimated") as data:
        assert not data.has_propensities and data.num_episodes == 48

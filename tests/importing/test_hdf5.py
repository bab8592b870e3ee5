"""D4RL-style files, d3rlpy's buffers and Minari datasets, as others write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import sept_offline as so
from sept_offline.errors import DataError
from sept_offline.tools.importing import ImportMapping, hdf5, import_logs

LENGTHS = (5, 3, 7, 1, 4)


def d4rl(path: Path, **changes: Any) -> dict[str, Any]:
    """Five episodes end to end; the third terminates, the last has no flag."""
    rng = np.random.default_rng(3)
    count = sum(LENGTHS)
    ends = np.cumsum(LENGTHS) - 1
    columns: dict[str, Any] = {
        "observations": rng.normal(size=(count, 2)).astype(np.float32),
        "actions": rng.integers(3, size=count),
        "rewards": rng.normal(size=count).astype(np.float32),
        "terminals": np.arange(count) == ends[2],
        "timeouts": np.isin(np.arange(count), ends[[0, 1, 3]]),
        "next_observations": rng.normal(size=(count, 2)).astype(np.float32),
    }
    inner = ~np.isin(np.arange(count), ends)
    following = columns["next_observations"]
    following[inner] = columns["observations"][np.flatnonzero(inner) + 1]
    columns |= changes
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            if values is not None:
                file[name] = values
    return columns


def test_d4rl_with_next_observations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = d4rl(tmp_path / "walker.hdf5")
    monkeypatch.setattr(hdf5, "BATCH_ROWS", 6)
    done = import_logs(tmp_path / "walker.hdf5", tmp_path / "a.h5")
    assert done.card["done"] == {"episodes without an end flag": 1}
    with so.load_dataset(done.path) as data:
        assert data.instances == ["walker"] and data.episode_index.length.tolist() == [*LENGTHS]
        steps = data.steps()
        np.testing.assert_array_equal(steps.actions, columns["actions"])
        np.testing.assert_array_equal(steps.rewards, columns["rewards"].astype(float))
        np.testing.assert_array_equal(steps.observations[steps.row], columns["observations"])
        after = steps.observations[steps.row + 1]
        np.testing.assert_array_equal(after, columns["next_observations"])
        assert [episode.terminated for episode in data.episodes()] == [False] * 2 + [True] + [
            False
        ] * 2


def test_d4rl_without_them_gives_up_last_steps(tmp_path: Path) -> None:
    d4rl(tmp_path / "a.hdf5", next_observations=None)
    done = import_logs(tmp_path / "a.hdf5", tmp_path / "a.h5")
    assert done.card["episodes"] == 4 and done.card["steps"] == sum(LENGTHS) - 5
    assert done.card["done"]["episodes without a step"] == 1


def test_d4rl_instances(tmp_path: Path) -> None:
    owner = np.repeat([b"x", b"y", b"x", b"y", b"z"], LENGTHS)
    d4rl(tmp_path / "a.hdf5", robot=owner)
    mapping = ImportMapping(instance="robot")
    with so.load_dataset(import_logs(tmp_path / "a.hdf5", tmp_path / "a.h5", mapping).path) as data:
        assert data.instances == ["x", "y", "z"]
    mapping = ImportMapping(instance="unit-3")
    with so.load_dataset(import_logs(tmp_path / "a.hdf5", tmp_path / "b.h5", mapping).path) as data:
        assert data.instances == ["unit-3"]
    d4rl(tmp_path / "b.hdf5")
    both = import_logs([tmp_path / "a.hdf5", tmp_path / "b.hdf5"], tmp_path / "c.h5")
    with so.load_dataset(both.path) as data:
        assert data.instances == ["a", "b"] and data.num_episodes == 10


def test_d4rl_refusals(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    d4rl(path, terminals=None, timeouts=None)
    with pytest.raises(DataError, match="neither terminals nor timeouts"):
        import_logs(path, tmp_path / "a.h5")
    d4rl(path, actions=np.zeros((sum(LENGTHS), 3)))
    with pytest.raises(DataError, match=r"'actions\[0\]' ranges from 0 to 0.*--action-low"):
        import_logs(path, tmp_path / "a.h5")
    with pytest.raises(
        DataError, match=r"3 numbers per step, so the action is continuous: --bins and"
    ):
        import_logs(path, tmp_path / "a.h5", ImportMapping(bins=3))
    d4rl(path, actions=np.random.default_rng(0).normal(size=sum(LENGTHS)))
    with pytest.raises(DataError, match="--bins"):
        import_logs(path, tmp_path / "a.h5")
    assert len(import_logs(path, tmp_path / "a.h5", ImportMapping(bins=3)).card["actions"]) == 3
    d4rl(path, observations=np.full((sum(LENGTHS), 2), np.nan))
    with pytest.raises(DataError, match=r"in 'observations\[0\]'"):
        import_logs(path, tmp_path / "a.h5")


def test_d4rl_reads_every_array_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    count = sum(LENGTHS)
    extra = np.arange(count, dtype=np.float32)
    extra[2] = np.nan
    columns = d4rl(path, extra=extra)
    mapping = ImportMapping(
        observations=("observations", "extra"),
        keep_terminal=True,
        fill={"extra": "zero"},
    )
    done = import_logs(path, tmp_path / "a.h5", mapping)
    assert done.card["filled"] == {"extra": 1}
    assert [row["name"] for row in done.card["observations"]] == [
        "observations[0]",
        "observations[1]",
        "extra",
    ]
    with so.load_dataset(done.path) as data:
        first = data.episodes()[0]
        np.testing.assert_array_equal(first.observations[:, :2], columns["observations"][:5])
        assert first.observations[:, 2].tolist() == [0, 1, 0, 3, 4]


def test_a_rule_for_observations_is_for_all_of_them(tmp_path: Path) -> None:
    observations = np.ones((sum(LENGTHS), 2), dtype=np.float32)
    observations[1] = np.nan
    d4rl(tmp_path / "a.hdf5", observations=observations, next_observations=None)
    mapping = ImportMapping(fill={"observations": "previous"})
    done = import_logs(tmp_path / "a.hdf5", tmp_path / "a.h5", mapping)
    assert done.card["filled"] == {"observations[0]": 1, "observations[1]": 1}


def test_d4rl_arrays_that_do_not_fit(tmp_path: Path) -> None:
    path, other = tmp_path / "a.hdf5", tmp_path / "b.hdf5"
    count = sum(LENGTHS)
    d4rl(path, rewards=np.ones(count - 1))
    with pytest.raises(DataError, match="20 rows of 'observations' and 19 of 'rewards'"):
        import_logs(path, tmp_path / "a.h5")
    d4rl(path, next_observations=np.ones((count, 3)))
    with pytest.raises(DataError, match="2 numbers in one row and 3 in another"):
        import_logs(path, tmp_path / "a.h5")
    d4rl(path, rewards=np.asarray([b"x"] * count))
    with pytest.raises(DataError, match=r"'rewards' of .* expected numbers"):
        import_logs(path, tmp_path / "a.h5")
    for odd in (np.full(count, b"false"), np.full(count, np.nan), np.arange(count)):
        d4rl(path, timeouts=odd)
        with pytest.raises(DataError, match=r"end flags 'timeouts' of .* true or false"):
            import_logs(path, tmp_path / "a.h5")
    d4rl(path, chance=np.full(count, b"half"))
    with pytest.raises(DataError, match=r"'chance' of .* expected numbers"):
        import_logs(path, tmp_path / "a.h5", ImportMapping(probability="chance"))
    d4rl(path, robot=np.asarray([b"x"] * (count - 1) + [b""]))
    with pytest.raises(DataError, match=r"1 in 'robot'; first .*row 20\)"):
        import_logs(path, tmp_path / "a.h5", ImportMapping(instance="robot"))
    d4rl(path, robot=np.asarray([b"x"] * count))
    d4rl(other)
    with pytest.raises(DataError, match=r"a\.hdf5 has a dataset 'robot' and .*b\.hdf5 has none"):
        import_logs([path, other], tmp_path / "a.h5", ImportMapping(instance="robot"))


def test_an_action_that_is_not_a_number_is_missing(tmp_path: Path) -> None:
    actions = np.zeros(sum(LENGTHS))
    actions[1:4] = (1, np.nan, 1)
    d4rl(tmp_path / "a.hdf5", actions=actions)
    with pytest.raises(DataError, match="1 in 'actions'"):
        import_logs(tmp_path / "a.hdf5", tmp_path / "a.h5")


def test_options_that_cannot_be_followed_are_named(tmp_path: Path, write_toy: Path) -> None:
    d4rl(tmp_path / "a.hdf5")
    with pytest.raises(DataError, match="--episode, --time do not apply here"):
        import_logs(tmp_path / "a.hdf5", tmp_path / "a.h5", ImportMapping(episode=("e",), time="t"))
    with so.load_dataset(write_toy) as data, (tmp_path / "buffer.h5").open("w+b") as file:
        data.to_d3rlpy().dump(file)
    with pytest.raises(DataError, match="--action does not apply here"):
        import_logs(tmp_path / "buffer.h5", tmp_path / "a.h5", ImportMapping(action="other"))
    with pytest.raises(DataError, match="--reward, --bins do not apply here"):
        import_logs("minari:toy/x-v0", tmp_path / "a.h5", ImportMapping(reward="r", bins=2))


def test_a_replay_buffer_that_does_not_fit(tmp_path: Path, write_toy: Path) -> None:
    path = tmp_path / "buffer.h5"
    with so.load_dataset(write_toy) as data, path.open("w+b") as file:
        data.to_d3rlpy().dump(file)
    with h5py.File(path, "a") as file:
        steps = len(file["observations_0"])
        del file["rewards_0"]
        file["rewards_0"] = np.ones((steps + 1, 1))
    with pytest.raises(DataError, match=rf"episode 0: {steps} obs.* {steps + 1} rewards"):
        import_logs(path, tmp_path / "a.h5")


def test_an_empty_episode_of_a_replay_buffer_is_left_out(tmp_path: Path, write_toy: Path) -> None:
    path = tmp_path / "buffer.h5"
    with so.load_dataset(write_toy) as data, path.open("w+b") as file:
        data.to_d3rlpy().dump(file)
    whole = import_logs(path, tmp_path / "a.h5").card
    with h5py.File(path, "a") as file:
        lost = len(file["observations_0"]) - 1
        for name in ("observations_0", "actions_0", "rewards_0"):
            empty = file[name][:0]
            del file[name]
            file[name] = empty
    card = import_logs(path, tmp_path / "b.h5").card
    assert card["episodes"] == whole["episodes"] - 1 and card["steps"] == whole["steps"] - lost
    before = whole["done"].get("episodes without a step", 0)
    assert card["done"]["episodes without a step"] == before + 1


def test_a_replay_buffer_of_d3rlpy(tmp_path: Path, write_toy: Path) -> None:
    with so.load_dataset(write_toy) as data:
        with (tmp_path / "buffer.h5").open("w+b") as file:
            data.to_d3rlpy().dump(file)
        mapping = ImportMapping(keep_terminal=True, actions=("0", "1", "2"))
        done = import_logs(tmp_path / "buffer.h5", tmp_path / "a.h5", mapping)
        with so.load_dataset(done.path) as again:
            assert again.instances == ["buffer"]
            assert again.num_steps == data.num_steps
            for one, other in zip(data.episodes(), again.episodes(), strict=True):
                np.testing.assert_array_equal(one.actions, other.actions)
                np.testing.assert_array_equal(one.rewards.astype(np.float32), other.rewards)
                np.testing.assert_array_equal(one.observations[:-1], other.observations[:-1])
                assert one.terminated == other.terminated
                if not one.terminated:
                    np.testing.assert_array_equal(one.observations[-1], other.observations[-1])


@pytest.fixture
def write_toy(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    with so.DatasetWriter(tmp_path / "toy.h5", num_actions=3) as writer:
        for number in range(12):
            steps = int(rng.integers(1, 6))
            writer.append(
                instance="one",
                observations=rng.normal(size=(steps + 1, 2)),
                actions=rng.integers(3, size=steps),
                rewards=rng.normal(size=steps),
                terminated=number % 2 == 0,
                truncated=number % 2 == 1,
            )
    return tmp_path / "toy.h5"


def test_a_minari_dataset(tmp_path: Path, write_toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with so.load_dataset(write_toy) as data:
        data.to_minari("toy/import-v0")
        mapping = ImportMapping(probe_steps=2)
        done = import_logs("minari:toy/import-v0", tmp_path / "a.parquet", mapping)
        assert done.card["steps"] == data.num_steps and done.card_path.is_file()
        observations = data.steps().observations
        with so.load_dataset(done.path) as again:
            assert again.content_hash == done.content_hash
            assert again.metadata.extra["card"] == done.card
            assert again.metadata.extra["minari"] == "toy/import-v0"
            assert again.metadata.probe_steps == 2
            np.testing.assert_array_equal(again.steps().observations, observations)
        ranges = done.card["observations"]
        assert [row["max"] for row in ranges] == observations.max(axis=0).tolist()
        assert so.validate(done.path).ok


def test_what_is_not_imported(tmp_path: Path, write_toy: Path) -> None:
    with pytest.raises(DataError, match="already a sept-offline dataset"):
        import_logs(write_toy, tmp_path / "a.h5")
    (tmp_path / "x.pkl").write_bytes(b"")
    with pytest.raises(DataError, match="never loaded"):
        import_logs(tmp_path / "x.pkl", tmp_path / "a.h5")
    (tmp_path / "x.txt").write_text("a")
    with pytest.raises(DataError, match="Unknown format of"):
        import_logs(tmp_path / "x.txt", tmp_path / "a.h5")
    with pytest.raises(DataError, match="nothing at"):
        import_logs(tmp_path / "none*.csv", tmp_path / "a.h5")
    d4rl(tmp_path / "d.hdf5")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="one kind at a time"):
        import_logs([tmp_path / "d.hdf5", tmp_path / "x.csv"], tmp_path / "a.h5")
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["things"] = [1]
    with pytest.raises(DataError, match="expected observations, actions and rewards"):
        import_logs(tmp_path / "odd.h5", tmp_path / "a.h5")

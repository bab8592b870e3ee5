"""What was written is what is read, in both formats, whole or in part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from sept_offline.data import Dataset
from sept_offline.data.hdf5 import Hdf5Source
from sept_offline.data.parquet_source import ParquetSource
from sept_offline.errors import DataError


def in_file_order(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = list(dict.fromkeys(e["instance"] for e in episodes))
    return sorted(episodes, key=lambda e: order.index(e["instance"]))


def assert_same(record: Any, other: Any) -> None:
    for name in record.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(record, name), getattr(other, name), err_msg=name)


def test_every_episode_comes_back(path: Path, episodes: list[dict[str, Any]]) -> None:
    data = so.load_dataset(path)
    assert data.instances == ["train-0", "train-1", "train-2"]
    assert (data.num_episodes, data.num_steps) == (20, sum(len(e["actions"]) for e in episodes))
    for number, (found, wrote) in enumerate(
        zip(data.episodes(), in_file_order(episodes), strict=True)
    ):
        assert found.index == number
        for name in ("observations", "actions", "rewards", "propensities"):
            np.testing.assert_array_equal(getattr(found, name), wrote[name])
        for name in ("instance", "terminated", "truncated", "behaviour", "seed"):
            assert getattr(found, name) == wrote[name]
        assert found.observations.dtype == np.float32
        assert found.actions.dtype == np.int64
        assert found.rewards.dtype == np.float64


def test_episodes_of_an_instance(path: Path, episodes: list[dict[str, Any]]) -> None:
    data = so.load_dataset(path)
    mine = [e for e in episodes if e["instance"] == "train-1"]
    found = data.episodes(instance="train-1")
    assert len(found) == len(mine)
    np.testing.assert_array_equal(found[-1].rewards, mine[-1]["rewards"])
    assert [e.seed for e in found[1:3]] == [e["seed"] for e in mine[1:3]]
    with pytest.raises(DataError, match="no instance 'nobody'"):
        data.episodes(instance="nobody")
    with pytest.raises(IndexError):
        found[len(mine)]


def test_segments_skip_the_short(path: Path, episodes: list[dict[str, Any]]) -> None:
    n = 7
    segments = so.load_dataset(path).segments(n)
    long = [(i, e) for i, e in enumerate(in_file_order(episodes)) if len(e["actions"]) >= n]
    assert segments.skipped == 20 - len(long)
    assert segments.observations.shape == (len(long), n + 1, 3)
    np.testing.assert_array_equal(segments.episode, [i for i, _ in long])
    for row, (_, episode) in enumerate(long):
        np.testing.assert_array_equal(segments.observations[row], episode["observations"][: n + 1])
        np.testing.assert_array_equal(segments.actions[row], episode["actions"][:n])
        np.testing.assert_array_equal(segments.propensities[row], episode["propensities"][:n])
        assert segments.instance[row] == int(episode["instance"][-1])
    with pytest.raises(DataError):
        so.load_dataset(path).segments(0)
    with pytest.raises(DataError, match="expected a whole number"):
        so.load_dataset(path).segments(1.5)  # type: ignore[arg-type]


def test_steps_alignment(path: Path, episodes: list[dict[str, Any]]) -> None:
    steps = so.load_dataset(path).steps()
    ordered = in_file_order(episodes)
    before = np.concatenate([e["observations"][:-1] for e in ordered])
    after = np.concatenate([e["observations"][1:] for e in ordered])
    np.testing.assert_array_equal(steps.observations[steps.row], before)
    np.testing.assert_array_equal(steps.observations[steps.row + 1], after)
    np.testing.assert_array_equal(
        steps.time, np.concatenate([np.arange(len(e["actions"])) for e in ordered])
    )
    ends = np.flatnonzero(steps.terminations | steps.truncations)
    np.testing.assert_array_equal(ends, np.cumsum([len(e["actions"]) for e in ordered]) - 1)
    np.testing.assert_array_equal(steps.instance[ends], [int(e["instance"][-1]) for e in ordered])


@pytest.mark.parametrize("chosen", [[5, 2, 11], [19], []])
def test_selected_views(path: Path, chosen: list[int]) -> None:
    data = so.load_dataset(path)
    view = data.select(chosen)
    mask = np.zeros(20, dtype=bool)
    mask[chosen] = True
    assert [e.index for e in view.episodes()] == chosen
    assert view.num_steps == sum(len(data.episodes()[i].actions) for i in chosen)
    assert view.content_hash == data.content_hash
    assert view.instances == data.instances
    assert_same(data.select(mask).segments(4), data.select(sorted(chosen)).segments(4))
    steps, segments = view.steps(), view.segments(4)
    np.testing.assert_array_equal(segments.episode, chosen)
    if chosen:
        first = data.episodes()[chosen[0]]
        np.testing.assert_array_equal(
            steps.observations[: len(first.actions) + 1], first.observations
        )
        np.testing.assert_array_equal(segments.actions[0], first.actions[:4])
    inner = view.select(np.arange(len(chosen))[::-1])
    assert [e.index for e in inner.episodes()] == chosen[::-1]


@pytest.mark.parametrize("bad", [[20], [-1], [0.5], [True] * 3])
def test_bad_selections_are_named(path: Path, bad: list[Any]) -> None:
    with pytest.raises(DataError, match="select"):
        so.load_dataset(path).select(bad)


def reachable(root: object) -> list[object]:
    """Everything that attributes, items and closures lead to."""
    seen: dict[int, object] = {}
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, (type, str, bytes, int, float)):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, dict):
            todo.extend(thing.values())
        elif isinstance(thing, (list, tuple, set)):
            todo.extend(thing)
        else:
            todo.extend(vars(thing).values() if hasattr(thing, "__dict__") else [])
    return list(seen.values())


def test_the_learners_view_cannot_return_hidden(path: Path) -> None:
    data = so.load_dataset(path)
    assert data.hidden is not None
    assert data.hidden.names == ("mass", "length")
    np.testing.assert_array_equal(data.hidden.values, [[0, 0], [1, -0.1], [2, -0.2]])
    view = data.without_hidden()
    for blind in (view, view.select([1, 2]), view.without_propensities()):
        assert blind.hidden is None
        assert not [x for x in reachable(blind) if isinstance(x, so.data.HiddenTable)]
        assert blind.content_hash == data.content_hash


def test_unknown_propensities_are_none_or_nan(
    tmp_path: Path, suffix: str, episodes: list[dict[str, Any]], write: Any
) -> None:
    none = [{**e, "propensities": None} for e in episodes]
    data = so.load_dataset(write(tmp_path / f"none.{suffix}", none))
    assert data.episodes()[0].propensities is None
    assert data.segments(4).propensities is None
    assert data.steps().propensities is None
    some = [{**e, "propensities": e["propensities"] if i else None} for i, e in enumerate(episodes)]
    data = so.load_dataset(write(tmp_path / f"some.{suffix}", some))
    first, second = data.episodes()[0].propensities, data.episodes()[1].propensities
    assert first is not None and np.isnan(first).all()
    assert second is not None and not np.isnan(second).any()
    blind = data.without_propensities()
    assert blind.steps().propensities is None
    assert blind.select([1]).episodes()[0].propensities is None
    with pytest.raises(DataError):
        blind.columns("propensities")


def test_metadata_travels(tmp_path: Path, suffix: str, episodes: Any, write: Any) -> None:
    path = write(
        tmp_path / f"meta.{suffix}",
        episodes,
        family="acrobot",
        family_arguments={"limit": 5},
        observation_names=("x", "y", "z"),
        action_names=("a", "b", "c", "d"),
        root_seed=3,
        probe_steps=2,
        extra={"note": [1, 2]},
    )
    meta = so.load_dataset(path).metadata
    assert (meta.family, meta.family_arguments, meta.root_seed) == ("acrobot", {"limit": 5}, 3)
    assert meta.observation_names == ("x", "y", "z")
    assert meta.action_names == ("a", "b", "c", "d")
    assert (meta.probe_steps, meta.extra, meta.format_version) == (2, {"note": [1, 2]}, 1)
    assert set(meta.behaviours) == {"random", "expert"}
    assert set(meta.versions) >= {"numpy", "h5py", "pyarrow", "sept-offline"}


class Counting:
    """A source that counts the rows it is asked for."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        self.rows += len(rows)
        return self.inner.take(name, rows)


def test_segments_ask_only_for_their_rows(
    tmp_path: Path, suffix: str, tools: Any, write: Any
) -> None:
    rng = np.random.default_rng(0)
    long = [tools.episode(rng, i, 3000, 2) for i in range(4)]
    path = write(tmp_path / f"long.{suffix}", long)
    source = Counting(Hdf5Source(path) if suffix == "h5" else ParquetSource(path))
    data = Dataset(source, source.index, None, hash_of_file="")
    data.segments(8)
    assert source.rows == 4 * (9 + 3 * 8)


@pytest.mark.parametrize("order", ["hive", "flat", "shuffled"])
def test_partitioned_directories(tmp_path: Path, episodes: Any, write: Any, order: str) -> None:
    # Twelve instances: "instance=train-10" sorts before "instance=train-2".
    many = [{**e, "instance": f"train-{i % 12}"} for i, e in enumerate(episodes * 2)]
    path = write(
        tmp_path / "data.parquet", many, hidden={f"train-{i}": {"z": i} for i in range(12)}
    )
    table = pq.read_table(path)
    folder = tmp_path / "parts"
    if order == "hive":
        pq.write_to_dataset(table, folder, partition_cols=["instance"])
    else:
        folder.mkdir()
        rows = np.arange(len(table))
        if order == "shuffled":
            rows = np.random.default_rng(0).permutation(rows)
        for part, piece in enumerate(np.array_split(rows, 3)):
            pq.write_table(table.take(piece), folder / f"{part}.parquet", row_group_size=50)
    one, parts = so.load_dataset(path), so.load_dataset(folder)
    assert parts.content_hash == one.content_hash
    assert so.validate(folder).ok
    assert_same(parts.steps(), one.steps())
    assert_same(parts.segments(5), one.segments(5))
    assert so.convert(folder, tmp_path / "again.h5") == one.content_hash
    assert (tmp_path / "again.h5").exists()


def test_ids_in_names_of_folders_are_text(tmp_path: Path, episodes: Any, write: Any) -> None:
    ids = ["007", "7", "a b/c"]
    named = [{**e, "instance": ids[i % 3]} for i, e in enumerate(episodes)]
    path = write(tmp_path / "data.parquet", named)
    folder = tmp_path / "x=1"
    table = pq.read_table(path).replace_schema_metadata(None)
    pq.write_to_dataset(table, folder, partition_cols=["instance"])
    one, parts = so.load_dataset(path), so.load_dataset(folder)
    assert sorted(parts.instances) == ids
    owners = [
        {e.observations.tobytes(): e.instance for e in data.episodes()} for data in (one, parts)
    ]
    assert owners[0] == owners[1]


def test_parquet_of_another_tool(tmp_path: Path, episodes: Any, write: Any) -> None:
    path = write(tmp_path / "data.parquet", episodes)
    table = pq.read_table(path).replace_schema_metadata(None).drop_columns(["behaviour", "seed"])
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(table, foreign)
    data, ours = so.load_dataset(foreign), so.load_dataset(path)
    assert_same(data.segments(4), ours.segments(4))
    assert (data.num_actions, data.observation_dim) == (4, 3)
    assert data.metadata.behaviours == ("unknown",)
    assert so.convert(foreign, tmp_path / "native.h5") == data.content_hash
    assert so.load_dataset(tmp_path / "native.h5").content_hash == data.content_hash


@pytest.mark.parametrize("name", ["gone.h5", "gone.parquet", "gone"])
def test_missing_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="There is no dataset at"):
        so.load_dataset(tmp_path / name)
    with pytest.raises(DataError, match="There is no dataset at"):
        so.validate(tmp_path / name)


@pytest.mark.parametrize("name", ["text.h5", "text.parquet", "text.csv"])
def test_files_that_are_something_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a,b\n" * 300)
    with pytest.raises(DataError, match=name):
        so.load_dataset(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.tsv", "a.csv.gz"])
def test_a_table_is_called_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("stay,pulse\n1,60\n")
    for look in (so.load_dataset, so.validate, so.inspect):
        with pytest.raises(
            DataError, match=r"is a [CT]SV file.*convert it with sept-offline import"
        ):
            look(tmp_path / name)


def test_agents_are_called_what_they_are(tmp_path: Path) -> None:
    for name, inside in (("run", "run.json"), ("agent", "agent.json"), ("out", "manifest.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / inside).write_text("{}")
        said = "an exported agent" if name == "out" else "a run of fit"
        for look in (so.load_dataset, so.validate, so.inspect):
            with pytest.raises(DataError, match=f"is {said}, not a dataset"):
                look(tmp_path / name)


def test_what_cannot_be_read_is_said_before_changed_bytes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(3)
    pq.write_table(pa.table({"stay": [1], "pulse": [60]}), tmp_path / "logs.parquet")
    for name in ("other.h5", "logs.parquet"):
        with pytest.raises(DataError, match="sept-offline import"):
            so.validate(tmp_path / name).raise_if_bad()


def test_other_hdf5_and_empty_directories(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(DataError, match="not a sept-offline dataset"):
        so.load_dataset(tmp_path / "other.h5")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Parquet file"):
        so.load_dataset(tmp_path / "empty")


def test_another_version_is_refused(path: Path, tools: Any) -> None:
    if path.suffix == ".h5":
        header = {**tools.header(path), "format_version": 3}
        tools.hdf5(path, "header", lambda _: np.bytes_(json.dumps(header).encode()))
    else:
        table = pq.read_table(path)
        entries = dict(table.schema.metadata.items())
        old = entries[b"sept_offline.header"]
        entries[b"sept_offline.header"] = old.replace(b'"format_version":1', b'"format_version":3')
        pq.write_table(table.replace_schema_metadata(entries), path)
    with pytest.raises(DataError, match="format version 3"):
        so.load_dataset(path)

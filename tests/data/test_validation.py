"""Every defect `validate` promises to find, in both formats, found, named and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from sept_offline.data import ValidationReport
from sept_offline.errors import DataError


def kinds(report: ValidationReport) -> dict[str, int]:
    """Kind to count, without the marks every edit of a file leaves."""
    marks = ("changed bytes", "content hash")
    return {p.kind: p.count for p in report.problems if p.kind not in marks}


def set_at(*places: Any) -> Callable[[Any], Any]:
    """An edit that puts values at rows: (row, value) for each."""

    def change(values: Any) -> Any:
        for row, value in places:
            values[row] = value
        return values

    return change


def test_a_sound_file_is_ok(path: Path) -> None:
    report = so.validate(path)
    assert report.ok and not report.problems
    assert (report.episodes, report.content_hash) == (20, so.load_dataset(path).content_hash)
    report.raise_if_bad()
    assert report.to_json()["ok"] is True


# Step rows and the observation (Parquet) rows of the same steps: both lie in the first episode,
# which has at least four steps, so that the two numbers agree.
VALUES = {
    "reward NaN": ("rewards", [(1, np.nan), (2, np.nan)], {"NaN": 2}),
    "reward inf": ("rewards", [(1, np.inf)], {"infinite": 1}),
    "observation NaN": ("observations", [(3, [0, np.nan, 0])], {"NaN": 1}),
    "observation inf": ("observations", [(0, [-np.inf, 0, 0])], {"infinite": 1}),
    "action too large": ("actions", [(0, 4), (1, 77)], {"action range": 2}),
    "action below zero": ("actions", [(2, -1)], {"action range": 1}),
    "sum not one": ("propensities", [(0, [0.5, 0.5, 0.5, 0.5])], {"propensity sum": 1}),
    "some probabilities NaN": ("propensities", [(1, [np.nan, 0.5, 0.25, 0.25])], {"NaN": 1}),
    "early termination": ("terminations", [(1, True)], {"early end flag": 1}),
    "early truncation": ("truncations", [(0, True), (1, True)], {"early end flag": 2}),
}


@pytest.mark.parametrize("case", VALUES)
def test_bad_values(path: Path, tools: Any, case: str) -> None:
    column, places, expected = VALUES[case]
    if path.suffix == ".h5":
        tools.hdf5(path, column, set_at(*places))
    else:
        tools.parquet(path, tools.rows(column, set_at(*places)))
    report = so.validate(path)
    found = kinds(report)
    assert {kind: found.get(kind) for kind in expected} == expected
    assert not report.ok
    problem = next(p for p in report.problems if p.kind in expected)
    assert problem.where == f"{column}, instance 'train-0', episode 0, step {places[0][0]}" or (
        column == "truncations"
    )
    with pytest.raises(DataError, match=str(path)):
        report.raise_if_bad()


def test_the_logged_action_had_probability_zero(path: Path, tools: Any) -> None:
    action = int(so.load_dataset(path).episodes()[0].actions[0])
    row = [1 / 3] * 4
    row[action] = 0.0
    edit(path, tools, "propensities", set_at((0, row)))
    assert kinds(so.validate(path)) == {"impossible action": 1}


def test_negative_probability(path: Path, tools: Any) -> None:
    edit(path, tools, "propensities", set_at((0, [0.5, 0.5, 0.5, -0.5])))
    assert kinds(so.validate(path))["propensity range"] == 1


def edit(path: Path, tools: Any, column: str, change: Callable[[Any], Any]) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, column, change)
    else:
        tools.parquet(path, tools.rows(column, change))


def test_both_end_flags(path: Path, tools: Any) -> None:
    last = len(so.load_dataset(path).episodes()[0].actions) - 1
    edit(path, tools, "terminations", set_at((last, True)))
    edit(path, tools, "truncations", set_at((last, True)))
    assert kinds(so.validate(path)) == {"both end flags": 1}


def test_no_end_flag(path: Path, tools: Any) -> None:
    last = len(so.load_dataset(path).episodes()[0].actions) - 1
    edit(path, tools, "terminations", set_at((last, False)))
    edit(path, tools, "truncations", set_at((last, False)))
    assert kinds(so.validate(path)) == {"no end flag": 1}


def retyped(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, table.column(name).cast(kind))

    return change


@pytest.mark.parametrize(
    ("column", "dtype", "kind"),
    [
        ("actions", np.float64, pa.float64()),
        ("rewards", np.float32, pa.float32()),
        ("observations", np.float64, pa.list_(pa.float64(), 3)),
    ],
)
def test_wrong_dtype(path: Path, tools: Any, column: str, dtype: Any, kind: pa.DataType) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, column, lambda values: values.astype(dtype))
    else:
        tools.parquet(path, retyped(column, kind))
    assert kinds(so.validate(path)) == {"dtype": 1}
    with pytest.raises(DataError, match=f"{column!r} holds"):
        so.load_dataset(path)


def test_wrong_shape(path: Path, tools: Any) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, "observations", lambda values: values[:, :2])
    else:

        def narrower(table: pa.Table) -> pa.Table:
            rows = [row[:2] for row in table.column("observations").to_pylist()]
            at = table.schema.get_field_index("observations")
            return table.set_column(at, "observations", pa.array(rows, pa.list_(pa.float32(), 2)))

        tools.parquet(path, narrower)
    assert kinds(so.validate(path)) == {"shape": 1}
    with pytest.raises(DataError, match="shape"):
        so.load_dataset(path)


def test_missing_column(path: Path, tools: Any) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, "rewards", lambda _: None)
    else:
        tools.parquet(path, lambda table: table.drop_columns(["rewards"]))
    assert kinds(so.validate(path)) == {"missing column": 1}
    with pytest.raises(DataError, match="'rewards' is missing"):
        so.load_dataset(path)


def test_t_instead_of_t_plus_one_observations(path: Path, tools: Any) -> None:
    if path.suffix == ".h5":
        steps = so.load_dataset(path).num_steps
        tools.hdf5(path, "observations", lambda values: values[:steps])
    else:
        tools.parquet(path, lambda table: table.filter(pc.is_valid(table.column("actions"))))
    report = so.validate(path)
    assert kinds(report)["final observation"] == 20
    with pytest.raises(DataError, match=r"T\+1"):
        so.load_dataset(path)


def numbers(edit_number: Callable[[np.ndarray], np.ndarray]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column("episode").to_numpy()
        renamed = edit_number(np.arange(20))[values]
        return table.set_column(0, "episode", pa.array(renamed))

    return change


@pytest.mark.parametrize(
    ("rename", "kind"),
    [
        (lambda n: np.where(n > 4, n + 2, n), "gap"),
        (lambda n: np.where(n == 6, 5, n), "duplicate"),
        (lambda n: np.where(n == 5, 6, np.where(n == 6, 5, n)), "disorder"),
    ],
    ids=["gap", "duplicate", "disorder"],
)
def test_episode_ids(path: Path, tools: Any, rename: Any, kind: str) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, "episodes/number", rename)
    else:
        tools.parquet(path, numbers(rename))
    found = kinds(so.validate(path))
    assert found[kind] >= 1
    with pytest.raises(DataError):
        so.load_dataset(path)


def test_gap_within_an_episode(path: Path, tools: Any) -> None:
    """A step is gone: a row of Parquet, a hole between offsets in HDF5."""
    if path.suffix == ".h5":
        tools.hdf5(path, "episodes/offset", lambda v: np.where(np.arange(20) > 3, v + 1, v))
    else:
        tools.parquet(path, lambda t: t.take(np.delete(np.arange(len(t)), 2)))
    assert kinds(so.validate(path))["gap"] == 1


def test_duplicate_steps(path: Path, tools: Any) -> None:
    """A step is there twice: a row of Parquet, overlapping offsets in HDF5."""
    if path.suffix == ".h5":
        tools.hdf5(path, "episodes/offset", lambda v: np.where(np.arange(20) > 3, v - 1, v))
        assert kinds(so.validate(path))["overlap"] == 1
    else:
        tools.parquet(path, lambda t: t.take(np.insert(np.arange(len(t)), 2, 2)))
        assert kinds(so.validate(path))["duplicate"] == 1


def test_instances_apart(path: Path, tools: Any) -> None:
    """The episodes of an instance do not lie together."""
    if path.suffix == ".h5":
        tools.hdf5(path, "episodes/instance", set_at((0, 2)))
    else:

        def moved(table: pa.Table) -> pa.Table:
            words = table.column("instance").to_pylist()
            numbers = table.column("episode").to_pylist()
            words = ["train-2" if n == 0 else w for w, n in zip(words, numbers, strict=True)]
            at = table.schema.get_field_index("instance")
            return table.set_column(at, "instance", pa.array(words))

        tools.parquet(path, moved)
    assert kinds(so.validate(path)) == {"disorder": 1}


def test_unknown_instance(path: Path, tools: Any) -> None:
    if path.suffix == ".h5":
        tools.hdf5(path, "episodes/instance", set_at((19, 9)))
    else:

        def renamed(table: pa.Table) -> pa.Table:
            words = table.column("instance").to_pylist()
            words = [
                "?" if n == 19 else w
                for w, n in zip(words, table["episode"].to_pylist(), strict=True)
            ]
            at = table.schema.get_field_index("instance")
            return table.set_column(at, "instance", pa.array(words))

        tools.parquet(path, renamed)
    assert kinds(so.validate(path))["unknown id"] == 1


def test_warnings_leave_a_file_ok(tmp_path: Path, suffix: str, episodes: Any, write: Any) -> None:
    some = [{**e, "propensities": None} if i == 1 else e for i, e in enumerate(episodes)]
    some.append({**episodes[0], "instance": "alone"})
    report = so.validate(write(tmp_path / f"w.{suffix}", some), probe_steps=6)
    short = sum(len(e["actions"]) < 6 for e in some)
    assert kinds(report) == {
        "missing propensities": len(episodes[1]["actions"]),
        "short episode": short,
        "single episode": 1,
    }
    assert report.ok and len(report.warnings) == 3
    none = [{**e, "propensities": None} for e in episodes]
    report = so.validate(write(tmp_path / f"n.{suffix}", none))
    assert kinds(report) == {"missing propensities": report.steps}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files(path: Path, share: float) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    report = so.validate(path)
    assert not report.ok and "unreadable" in kinds(report)
    with pytest.raises(DataError, match=str(path)):
        so.load_dataset(path)


def test_any_flipped_bit_is_found(path: Path) -> None:
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [0, len(whole) - 1, *rng.integers(len(whole), size=60).tolist()]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        report = so.validate(path)
        assert not report.ok, f"byte {place} of {len(whole)}"


def test_an_edit_that_is_sound_in_itself_changes_the_hash(path: Path, tools: Any) -> None:
    edit(path, tools, "rewards", set_at((0, 12345.0)))
    report = so.validate(path)
    assert not kinds(report) and not report.ok
    assert "content hash" in {p.kind for p in report.problems}
    with pytest.raises(DataError, match="does not match its hash"):
        so.convert(path, path.parent / "copy.h5")
    assert not (path.parent / "copy.h5").exists()


def test_hidden_is_part_of_the_hash(tmp_path: Path, episodes: Any, write: Any) -> None:
    hashes = {
        so.load_dataset(
            write(tmp_path / "x.h5", episodes, hidden={f"train-{i}": {"z": z} for i in range(3)})
        ).content_hash
        for z in (1.0, 2.0)
    }
    hashes.add(so.load_dataset(write(tmp_path / "x.h5", episodes)).content_hash)
    assert len(hashes) == 3


def test_flip_in_a_chunk_is_an_error_when_read(tmp_path: Path, episodes: Any, write: Any) -> None:
    path = write(tmp_path / "x.h5", episodes)
    with h5py.File(path) as file:
        chunk = file["rewards"].id.get_chunk_info(0)
    raw = bytearray(path.read_bytes())
    raw[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="'rewards' cannot be read"):
        so.load_dataset(path).steps()


def test_flip_in_a_page_is_an_error_when_read(tmp_path: Path, episodes: Any, write: Any) -> None:
    path = write(tmp_path / "x.parquet", episodes)
    group = pq.read_metadata(path).row_group(0)
    names = [group.column(i).path_in_schema for i in range(group.num_columns)]
    column = group.column(names.index("rewards"))
    raw = bytearray(path.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size - 9] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="'rewards' cannot be read"):
        so.load_dataset(path).steps()

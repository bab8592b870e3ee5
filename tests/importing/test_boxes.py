"""Actions that are vectors: from any source, with bounds, densities and exact places."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sept_offline as so
from sept_offline.actions import Box
from sept_offline.cli.main import cli
from sept_offline.errors import DataError, SeptError
from sept_offline.tools.importing import Imported, ImportMapping, import_logs, mapping_from
from tests.importing.tables import COLUMNS, Row, stays, write_table

MAPPING = {**COLUMNS, "action": ("dose", "rate")}
BOUNDS = {"action_low": (0.0, -1.0), "action_high": (5.0, 1.0)}


def doses(count: int = 6, **options: Any) -> list[Row]:
    """Stays with a dose, a rate and the density of both."""
    rng = np.random.default_rng(5)
    rows = stays(count, **options)
    for row in rows:
        step = row.pop("drug") is not None
        dose, rate = (float(np.float32(value)) for value in (rng.uniform(0, 5), rng.uniform(-1, 1)))
        row["dose"], row["rate"] = (dose, rate) if step else (None, None)
        row["density"] = float(rng.uniform(0.05, 0.2)) if step else None
    return rows


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Imported]:
    def run_import(rows: list[Row], **options: Any) -> Imported:
        path = write_table(tmp_path / "log.csv", rows)
        return import_logs(path, tmp_path / "log.h5", ImportMapping(**{**MAPPING, **options}))

    return run_import


def put(name: str, value: Any, *places: int) -> list[Row]:
    rows = doses()
    for place in places:
        rows[place][name] = value
    return rows


def steps_of(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["dose"] is not None]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("out", ["log.h5", "log.parquet"])
def test_vectors_and_densities_are_what_was_logged(tmp_path: Path, suffix: str, out: str) -> None:
    rows = doses()
    by_instance = sorted(steps_of(rows), key=lambda row: (row["site"], int(row["stay"][1:])))
    order = np.random.default_rng(0).permutation(len(rows))
    path = write_table(tmp_path / f"t.{suffix}", [rows[place] for place in order])
    mapping = ImportMapping(**MAPPING, **BOUNDS, density="density")
    done = import_logs(path, tmp_path / out, mapping)
    assert so.validate(done.path).ok
    with so.load_dataset(done.path) as data:
        assert data.action_space == Box.of([0, -1], [5, 1], ("dose", "rate"))
        assert data.metadata.action_names == ("dose", "rate")
        steps = data.steps()
        expected = np.float32([[row["dose"], row["rate"]] for row in by_instance])
        np.testing.assert_array_equal(steps.actions, expected)
        densities = data.episodes()[0].log_densities
        assert densities is not None
        logged = np.log([row["density"] for row in by_instance])
        np.testing.assert_array_equal(steps.propensities, logged)
    assert done.card["entropy"]["of_behaviour"] == pytest.approx(-logged.mean())
    assert done.card["entropy"]["largest"] == pytest.approx(np.log(10))
    assert "bounds from the data" not in done.card["done"]
    assert "| dose | 0 | 5 |" in done.card_path.read_text()


def test_no_order_of_rows_shows(tmp_path: Path) -> None:
    rows = doses(12)
    hashes = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))
        path = write_table(tmp_path / "t.csv", [rows[place] for place in order])
        done = import_logs(path, tmp_path / "t.h5", ImportMapping(**MAPPING, density="density"))
        with so.load_dataset(done.path) as data:
            steps = data.steps()
            hashes.add((steps.actions.tobytes(), np.asarray(steps.propensities).tobytes()))
    assert len(hashes) == 1


def test_bounds_with_two_digits_stay(run: Callable[..., Imported]) -> None:
    """0.3 as float32 is a little more than 0.3, which is no reason to allow 0.31."""
    rows = doses()
    for row, value in zip(
        steps_of(rows), np.resize([0.0, 0.1, 0.3], len(steps_of(rows))), strict=True
    ):
        row["dose"] = float(value)
    with so.load_dataset(run(rows).path) as data:
        assert data.action_space.describe()["high"][0] == pytest.approx(0.3)


def test_bounds_from_the_data_are_rounded_outwards_and_stated(run: Callable[..., Imported]) -> None:
    rows = doses()
    for name, low, high in (("dose", 0.1234, 4.8765), ("rate", -0.9876, 0.0)):
        values = np.linspace(low, high, len(steps_of(rows)))
        for row, value in zip(steps_of(rows), values, strict=True):
            row[name] = float(value)
    done = run(rows)
    with so.load_dataset(done.path) as data:
        description = data.action_space.describe()
        assert not data.action_space.outside(data.steps().actions).any()
    assert description["low"] == pytest.approx([0.1, -0.99])
    assert description["high"] == pytest.approx([4.9, 0.0])
    assert done.card["done"]["bounds from the data"] == 2
    text = done.card_path.read_text()
    assert "2 components of the action have bounds that were taken from the data" in text
    assert "densities were not logged" in text
    assert any("densities are unknown for 100%" in line for line in done.warnings)
    half = run(rows, action_high=(6.0,))
    assert half.card["actions"]["dose"]["high"] == 6 and half.card["actions"]["rate"]["high"] == 6
    assert half.card["actions"]["rate"]["low"] == pytest.approx(-0.99)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            put("dose", 5.5, 2, 8),
            BOUNDS,
            r"2 actions lie outside .*first 5.5 in 'dose' of the episode 's0' \(.*log.csv, row 3\)",
        ),
        (put("rate", float("inf"), 6), {}, r"1 in 'rate'; first .*log.csv, row 7\)"),
        (put("rate", None, 6), {}, r"1 in 'rate'; first .*log.csv, row 7\)"),
        (
            put("density", 0.0, 7),
            {"density": "density"},
            r"1 steps in 'density' are not finite numbers above 0, first in the episode 's7' "
            r"\(.*log.csv, row 8\)",
        ),
        (put("density", -0.1, 7), {"density": "density"}, "not finite numbers above 0"),
        (
            put("density", float("-inf"), 7),
            {"log_density": "density"},
            r"'density' are not finite numbers, first .*row 8\)",
        ),
        (put("rate", "fast", 6), {}, "column 'rate': CSV .*'fast' \\(row 7\\), expected a number"),
        (doses(), {"action_low": (0.0, 1.0, 2.0)}, "--action-low names 3 bounds for 2 components"),
        (doses(), {"action_low": (9.0,), "action_high": (9.0,)}, "outside --action-low"),
        (put("rate", 0.5, *range(30)), {}, r"'rate' ranges from 0.5 to 0.5, so there is nothing"),
    ],
)
def test_refused_with_places(
    run: Callable[..., Imported], rows: list[Row], options: dict[str, Any], message: str
) -> None:
    if "fast" in message:
        rows = [{**row, "rate": "" if row["rate"] is None else str(row["rate"])} for row in rows]
    for row in rows:
        if row["dose"] is None:
            row["rate"] = None
    with pytest.raises(DataError, match=message):
        run(rows, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 3}, "^--bins and an action of many columns are mutually exclusive"),
        ({"probability": "density"}, r"--probability and .* mutually exclusive \(use a dens"),
        ({"density": "a", "log_density": "b"}, "--density and --log-density are mutually"),
        ({"actions": "a,b"}, "--actions and an action of many columns"),
        ({"action_low": "low"}, "--action-low is .* expected numbers"),
        ({"action_high": "inf"}, "--action-high must be finite"),
        ({"action": "dose,dose"}, "^--action names 'dose' twice"),
    ],
)
def test_options_that_contradict_a_box(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SeptError, match=message):
        mapping_from({"action": "dose,rate", **options})


def test_missing_components_are_filled_by_column(run: Callable[..., Imported]) -> None:
    rows = put("dose", None, 1, 6)
    rows[3]["rate"] = None
    done = run(rows, fill={"dose": "previous", "rate": "0.25"})
    assert done.card["filled"] == {"dose": 2, "rate": 1}
    with so.load_dataset(done.path) as data:
        first = data.episodes()[0]
        assert first.actions[1, 0] == first.actions[0, 0] and first.actions[3, 1] == 0.25
    with pytest.raises(DataError, match="--fill dose=mean: expected previous, zero or a number"):
        run(rows, fill={"dose": "mean"})


def test_unknown_densities_are_counted(run: Callable[..., Imported]) -> None:
    done = run(put("density", None, 1, 2), density="density")
    assert done.card["done"]["steps without a density"] == 2
    assert done.card["entropy"]["known_steps"] == pytest.approx(22 / 24)
    with so.load_dataset(done.path) as data:
        assert np.isnan(data.steps().propensities).sum() == 2  # type: ignore[arg-type]


def test_one_column_is_a_box_if_it_is_said(tmp_path: Path) -> None:
    path = write_table(tmp_path / "log.csv", doses())
    words = ["import", str(path), "-o", str(tmp_path / "log.h5"), "--instance", "site"]
    words += ["--episode", "stay", "--time", "hour", "--observations", "pulse,pressure"]
    words += ["--action", "dose", "--reward", "score", "--quiet"]
    refused = CliRunner().invoke(cli, words)
    assert "not integers" in str(refused.exception) and "--continuous" in str(refused.exception)
    for said in (["--continuous"], ["--action-low", "-1", "--action-high", "5"]):
        done = CliRunner().invoke(cli, [*words, *said, "--json"])
        assert done.exit_code == 0, done.output
        with so.load_dataset(tmp_path / "log.h5") as data:
            assert data.action_space.shape == (1,)


def test_a_column_of_lists_is_a_box(tmp_path: Path) -> None:
    rows = doses()
    table = pa.table(
        {
            **{name: [row[name] for row in rows] for name in ("site", "stay", "hour", "score")},
            "seen": [[row["pulse"], row["pressure"]] for row in rows],
            "act": [None if row["dose"] is None else [row["dose"], row["rate"]] for row in rows],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    options = {"instance": "site", "episode": ("stay",), "time": "hour", "reward": "score"}
    mapping = ImportMapping(**options, observations=("seen",), action="act")
    done = import_logs(tmp_path / "a.parquet", tmp_path / "a.h5", mapping)
    assert list(done.card["actions"]) == ["act[0]", "act[1]"]
    with so.load_dataset(done.path) as data:
        expected = np.float32([rows[0]["dose"], rows[0]["rate"]])
        np.testing.assert_array_equal(data.episodes()[0].actions[0], expected)


def test_d4rl_actions(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, size=(12, 3)).astype(np.float32)
    with h5py.File(tmp_path / "walker.hdf5", "w") as file:
        file["observations"] = rng.normal(size=(12, 2)).astype(np.float32)
        file["next_observations"] = rng.normal(size=(12, 2)).astype(np.float32)
        file["actions"] = actions
        file["rewards"] = rng.normal(size=12)
        file["terminals"] = np.zeros(12, dtype=bool)
        file["timeouts"] = np.arange(12) % 4 == 3
        file["logp"] = np.linspace(-2, -1, 12)
    mapping = ImportMapping(log_density="logp", action_low=(-1.0,), action_high=(1.0,))
    done = import_logs(tmp_path / "walker.hdf5", tmp_path / "a.h5", mapping)
    assert done.card["steps"] == 12 and done.card["entropy"]["of_behaviour"] == pytest.approx(1.5)
    with so.load_dataset(done.path) as data:
        np.testing.assert_array_equal(data.steps().actions, actions)
        assert data.action_space.names == ("actions[0]", "actions[1]", "actions[2]")
    plain = import_logs(tmp_path / "walker.hdf5", tmp_path / "b.h5")
    assert plain.card["mapping"]["continuous"] is True


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    space = Box.of([-2, 0], [2, 1], ("torque", "grip"))
    with so.DatasetWriter(tmp_path / "vectors.h5", action_space=space) as writer:
        for number in range(6):
            writer.append(
                instance="one",
                observations=rng.normal(size=(5, 2)),
                actions=rng.uniform([-2, 0], [2, 1], size=(4, 2)),
                rewards=rng.normal(size=4),
                terminated=number % 2 == 0,
                truncated=number % 2 == 1,
                propensities=rng.normal(size=4),
            )
    return tmp_path / "vectors.h5"


def test_a_replay_buffer_of_vectors(tmp_path: Path, vectors: Path) -> None:
    with so.load_dataset(vectors) as data:
        with (tmp_path / "buffer.h5").open("w+b") as file:
            data.to_d3rlpy().dump(file)
        mapping = ImportMapping(keep_terminal=True, action_low=(-2, 0), action_high=(2, 1))
        done = import_logs(tmp_path / "buffer.h5", tmp_path / "a.h5", mapping)
        with so.load_dataset(done.path) as again:
            np.testing.assert_array_equal(again.steps().actions, data.steps().actions)
            assert again.episode_index.length.tolist() == data.episode_index.length.tolist()


def test_a_minari_dataset_of_vectors(
    tmp_path: Path, vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with so.load_dataset(vectors) as data:
        data.to_minari("toy/vectors-v0")
        done = import_logs("minari:toy/vectors-v0", tmp_path / "a.h5")
        with so.load_dataset(done.path) as again:
            np.testing.assert_array_equal(again.steps().actions, data.steps().actions)
            np.testing.assert_array_equal(again.steps().propensities, data.steps().propensities)
    assert {row["low"] for row in done.card["actions"].values()} == {-2.0, 0.0}

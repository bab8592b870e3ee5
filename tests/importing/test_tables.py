"""Whatever the order of rows and files: what was logged is what is imported."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sept_offline as so
from sept_offline.tools import importing
from sept_offline.tools.importing import ImportMapping, import_logs
from tests.importing.tables import COLUMNS, stays, write_table

FINAL = ("row", "beside")


@st.composite
def logged(draw: st.DrawFn) -> tuple[int, list[dict[str, Any]]]:
    num_actions, dim = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chances = draw(st.sampled_from(["all", "taken", "none"]))
    episodes = []
    for steps in draw(st.lists(st.integers(1, 12), min_size=1, max_size=9)):
        terminated = draw(st.booleans())
        actions = rng.integers(num_actions, size=steps)
        propensities = rng.dirichlet(np.ones(num_actions) * 9, size=steps)
        if chances == "taken" and num_actions > 2:
            propensities[np.arange(num_actions) != actions[:, None]] = np.nan
        if chances == "taken" and num_actions == 2:
            taken = propensities[np.arange(steps), actions]
            propensities[np.arange(steps), 1 - actions] = 1 - taken
        episodes.append(
            {
                "instance": draw(st.sampled_from(["a", "b/ü", "c, 1", "c, 10", "c, 2"])),
                "observations": rng.normal(size=(steps + 1, dim)) * 10.0 ** rng.integers(-20, 20),
                "actions": actions,
                "rewards": rng.normal(size=steps) * 10.0 ** rng.integers(-100, 100),
                "terminated": terminated,
                "truncated": not terminated,
                "propensities": None if chances == "none" else propensities,
            }
        )
    return num_actions, episodes


def table_of(data: so.Dataset, final: str, words: bool) -> tuple[pa.Table, ImportMapping]:
    """One row per step, with the final observation in a row of its own or beside the last step."""
    parts = []
    dim, count = data.observation_dim, data.num_actions
    for episode in data.episodes():
        rows = len(episode.actions) + (final == "row")
        steps = np.arange(rows) < len(episode.actions)
        pad = rows - len(episode.actions)

        def padded(values: Any, pad: int = pad) -> list[Any]:
            return [*values, *[None] * pad]

        last = np.arange(len(episode.actions)) == len(episode.actions) - 1
        columns: dict[str, Any] = {
            "who": [episode.instance] * rows,
            "id": [f"e{episode.index * 3}"] * rows,
            "t": list(range(10, 10 + rows)),
            "act": padded([f"go {a}" if words else int(a) for a in episode.actions]),
            "gain": padded(episode.rewards.tolist()),
            "done": padded((last & episode.terminated).tolist()),
            "cut": padded((last & episode.truncated).tolist()),
        }
        for i in range(dim):
            columns[f"o{i}"] = pa.array(episode.observations[:rows, i], pa.float32())
            if final == "beside":
                columns[f"n{i}"] = pa.array(episode.observations[1:, i], pa.float32())
        if episode.propensities is not None:
            taken = episode.propensities[np.arange(len(episode.actions)), episode.actions]
            columns["p"] = padded(taken.tolist())
            for a in range(count):
                columns[f"p{a}"] = padded(episode.propensities[:, a].tolist())
        assert steps.sum() == len(episode.actions)
        parts.append(pa.table(columns))
    partial = data.has_propensities and bool(
        np.isnan(data.columns("propensities")["propensities"]).any()
    )
    mapping = ImportMapping(
        instance="who",
        episode=("id",),
        time="t",
        observations=tuple(f"o{i}" for i in range(dim)),
        next_observations=tuple(f"n{i}" for i in range(dim)) if final == "beside" else (),
        action="act",
        reward="gain",
        terminated="done",
        truncated="cut",
        probability="p" if partial else None,
        probabilities=tuple(f"p{a}" for a in range(count))
        if data.has_propensities and not partial
        else (),
        actions=tuple(f"go {a}" if words else str(a) for a in range(count)),
    )
    return pa.concat_tables(parts), mapping


@settings(max_examples=15, deadline=None)
@given(
    logged(),
    st.sampled_from(FINAL),
    st.sampled_from(["csv", "parquet"]),
    st.booleans(),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_an_exported_table_comes_back(
    drawn: tuple[int, list[dict[str, Any]]],
    final: str,
    suffix: str,
    words: bool,
    files: int,
    random: Any,
) -> None:
    num_actions, episodes = drawn
    with TemporaryDirectory() as name:
        folder = Path(name)
        ordered = sorted(episodes, key=lambda e: "a b/ü c, 1 c, 2 c, 10".find(e["instance"]))
        with so.DatasetWriter(folder / "first.h5", num_actions=num_actions) as writer:
            for episode in ordered:
                writer.append(**episode)
        data = so.load_dataset(folder / "first.h5")
        table, mapping = table_of(data, final, words)
        rows = list(range(table.num_rows))
        random.shuffle(rows)
        (folder / "table").mkdir()
        for number in range(files):
            part = table.take(pa.array(rows[number::files], pa.int64()))
            path = folder / "table" / f"{number}.{suffix}"
            if suffix == "csv":
                pc.write_csv(part, path)
            else:
                pq.write_table(part, path)
        done = import_logs(folder / "table", folder / "second.h5", mapping)
        again = so.load_dataset(folder / "second.h5")
        assert so.validate(folder / "second.h5").ok
        same(data, again)
        assert done.content_hash == again.content_hash
        assert again.metadata.action_names == (
            tuple(f"go {a}" for a in range(num_actions)) if words else None
        )
        data.close()
        again.close()


def same(data: so.Dataset, again: so.Dataset) -> None:
    assert again.instances == data.instances and again.num_actions == data.num_actions
    assert again.has_propensities == data.has_propensities
    one, other = data.steps(), again.steps()
    for name in vars(one):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_no_order_of_rows_or_files_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = stays(12)
    mapping = ImportMapping(**COLUMNS)
    straight = import_logs(write_table(tmp_path / "a.csv", rows), tmp_path / "a.h5", mapping)
    np.random.default_rng(0).shuffle(rows)  # type: ignore[arg-type]
    monkeypatch.setattr(importing.rows, "BUCKET_BYTES", 200)
    for number in range(3):
        write_table(tmp_path / f"part-{number}.csv", rows[number::3])
    spread = import_logs(str(tmp_path / "part-*.csv"), tmp_path / "b.h5", mapping)
    assert straight.card["done"].get("unordered rows", 0) == 0
    assert spread.card["done"]["unordered rows"] > 0
    with so.load_dataset(tmp_path / "a.h5") as a, so.load_dataset(tmp_path / "b.h5") as b:
        same(a, b)
    assert not list(tmp_path.glob(".*"))


def test_an_episode_that_runs_over_batches_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing.rows, "GATHERED_ROWS", 3)
    monkeypatch.setattr(importing.tables, "BATCH_ROWS", 3)
    path = write_table(tmp_path / "a.parquet", stays(9))
    assert import_logs(path, tmp_path / "a.h5", ImportMapping(**COLUMNS)).card["episodes"] == 9


def test_what_names_say_is_found(tmp_path: Path) -> None:
    names = {"site": "instance", "stay": "episode", "hour": "time", "drug": "action"}
    names |= {"score": "reward", "cured": "terminated", "left": "truncated"}
    rows = [{names.get(key, key): value for key, value in row.items()} for row in stays()]
    path = write_table(tmp_path / "a.csv", rows)
    done = import_logs(path, tmp_path / "a.h5", ImportMapping(observations=("pulse", "pressure")))
    assert done.card["instances"] == 2 and done.card["episodes"] == 6
    with so.load_dataset(tmp_path / "a.h5") as data:
        assert data.metadata.observation_names == ("pulse", "pressure")
        assert data.metadata.action_names == ("high", "low", "none")


def test_a_file_may_be_an_instance_or_an_episode(tmp_path: Path) -> None:
    rows = stays(4)
    for name in ("s0", "s7", "s14", "s21"):
        kept = [
            {k: v for k, v in row.items() if k != "stay"} for row in rows if row["stay"] == name
        ]
        write_table(tmp_path / f"{name}.csv", kept)
    mapping = ImportMapping(**{**COLUMNS, "instance": "@file", "episode": ("@file",)})
    done = import_logs(tmp_path, tmp_path / "a.h5", mapping)
    with so.load_dataset(done.path) as data:
        assert data.instances == ["s0", "s7", "s14", "s21"] and data.num_episodes == 4


def test_lists_timestamps_and_numbers_as_floats(tmp_path: Path) -> None:
    import datetime

    start = datetime.datetime(2020, 1, 1)
    rows = stays(4)
    table = pa.table(
        {
            "site": [row["site"] for row in rows],
            "stay": [float(row["stay"][1:]) for row in rows],
            "when": [start + datetime.timedelta(hours=row["hour"]) for row in rows],
            "seen": [[row["pulse"], row["pressure"]] for row in rows],
            "drug": [
                None if row["drug"] is None else float(("none", "low", "high").index(row["drug"]))
                for row in rows
            ],
            "score": [row["score"] for row in rows],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    mapping = ImportMapping(
        instance="site",
        episode=("stay",),
        time="when",
        observations=("seen",),
        action="drug",
        reward="score",
    )
    import_logs(tmp_path / "a.parquet", tmp_path / "a.h5", mapping)
    import_logs(
        write_table(tmp_path / "b.csv", stays(4)),
        tmp_path / "b.h5",
        ImportMapping(**COLUMNS, actions=("none", "low", "high")),
    )
    with so.load_dataset(tmp_path / "a.h5") as a, so.load_dataset(tmp_path / "b.h5") as b:
        assert a.num_actions == 3 and a.metadata.action_names is None
        np.testing.assert_array_equal(a.steps().actions, b.steps().actions)
        np.testing.assert_array_equal(a.steps().observations, b.steps().observations)


def test_times_that_turn_out_not_whole(tmp_path: Path) -> None:
    rows = stays(4)
    for row in rows[-9:]:
        row["hour"] = row["hour"] / 2
    first = write_table(tmp_path / "a.csv", rows[:-9])
    (tmp_path / "b.csv").write_text(write_table(tmp_path / "c.csv", rows[-9:]).read_text())
    (tmp_path / "c.csv").unlink()
    done = import_logs([first, tmp_path / "b.csv"], tmp_path / "a.h5", ImportMapping(**COLUMNS))
    assert done.card["episodes"] == 4 and done.card["length"]["max"] == 4


def test_compressed_and_other_delimiters(tmp_path: Path) -> None:
    import gzip

    text = write_table(tmp_path / "a.csv", stays()).read_text()
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write(text.replace(",", ";"))
    mapping = ImportMapping(**COLUMNS)
    plain = import_logs(tmp_path / "a.csv", tmp_path / "a.h5", mapping)
    packed = import_logs(
        tmp_path / "b.csv.gz", tmp_path / "b.h5", ImportMapping(**COLUMNS, delimiter=";")
    )
    assert plain.card["return"] == packed.card["return"]


def test_a_column_may_mean_two_things(tmp_path: Path) -> None:
    rows = stays()
    for row in rows:
        row["score"] = 0.1 if row["score"] is None else row["score"]
    path = write_table(tmp_path / "a.csv", rows)
    mapping = ImportMapping(**{**COLUMNS, "observations": ("pulse", "hour", "score")})
    import_logs(tmp_path, tmp_path / "a.h5", mapping)
    done = import_logs(tmp_path, tmp_path / "a.h5", mapping)  # what is there is no source
    with so.load_dataset(done.path) as data:
        episode = data.episodes()[0]
        assert episode.rewards.tolist() == [row["score"] for row in rows[:4]]
        assert episode.observations[:, 1].tolist() == [0, 1, 2, 3, 4]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("\n", "\r\n"), encoding="utf-8-sig")
    assert import_logs(path, tmp_path / "a.h5", mapping).content_hash == done.content_hash
    path.write_text(text.replace('"pulse"', '"hour"'))
    with pytest.raises(so.SeptError, match="2 columns named 'hour'"):
        import_logs(path, tmp_path / "a.h5", mapping)


def test_a_mapping_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        'instance = "site"\nepisode = "stay"\nnext-observations = "a, b"\n'
        'observations = ["pulse", "pressure"]\n[fill]\npulse = 0\nscore = "zero"\n'
        'pressure = ["previous", 2]\n'
    )
    found = importing.mapping_from({"fill": {"score": "mean"}}, tmp_path / "m.toml")
    assert found.episode == ("stay",) and found.next_observations == ("a", "b")
    assert found.fill == {"pulse": "0", "score": "mean", "pressure": "previous,2"}
    (tmp_path / "m.toml").write_text('episodes = "stay"\n')
    with pytest.raises(so.SeptError, match="did you mean 'episode'"):
        importing.mapping_from({}, tmp_path / "m.toml")

"""Partitioned datasets, local and on a real S3 server: one content, read in place, whole or not."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import sept_offline as so
from sept_offline.cli.main import cli
from sept_offline.data.filesystems import Folder, Remote, locate
from sept_offline.errors import ConfigError, DataError

OVERRIDES = {"behaviour": "random", "episodes": 600, "max_steps": 10}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection that all of these tests compare with, as one file."""
    target = tmp_path_factory.mktemp("whole") / "whole.h5"
    so.collect_dataset("navigation2d", target, overrides=OVERRIDES, seed=1).close()
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("made") / "parts"
    so.collect_dataset("navigation2d", target, overrides=OVERRIDES, seed=1).close()
    return target


@pytest.fixture
def parts(made: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(made, tmp_path / "parts")


@pytest.fixture(scope="module", autouse=True)
def unanswered() -> Iterator[Future[None]]:
    """Logs on a server that does not answer; Arrow tries for six seconds, beside other tests."""
    place = "s3://logs/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(lambda: so.load_dataset(place).close())


def test_places() -> None:
    assert locate("a/b.h5") == Path("a/b.h5")
    assert locate("file:///tmp/a%20b") == Path("/tmp/a b")
    remote = locate(Path("s3://key:secret@bucket/x/nav?region=eu-west-1"))
    assert isinstance(remote, Remote)
    assert remote.uri == "s3://key:secret@bucket/x/nav?region=eu-west-1"
    assert str(remote) == "s3://bucket/x/nav"
    assert "secret" not in repr(remote)
    assert (remote.stem, remote.suffix) == ("nav", "")
    assert pickle.loads(pickle.dumps(remote)) == remote
    with pytest.raises(DataError, match="Cannot reach nowhere://at/all"):
        so.load_dataset("nowhere://at/all")


def test_a_directory_holds_the_same_as_a_file(whole: Path, made: Path, tmp_path: Path) -> None:
    with so.load_dataset(whole) as one, so.load_dataset(made) as many:
        assert many.content_hash == one.content_hash
        assert (many.num_episodes, many.num_steps) == (one.num_episodes, one.num_steps)
        assert many.metadata.behaviours == ("random",)
        assert many.hidden is not None
        assert one.hidden is not None
        np.testing.assert_array_equal(many.hidden.values, one.hidden.values)
        for n in (1, 8):
            a, b = one.segments(n), many.segments(n)
            np.testing.assert_array_equal(a.observations, b.observations)
            np.testing.assert_array_equal(a.actions, b.actions)
        for number in (0, 255, 256, 599):
            np.testing.assert_array_equal(
                one.episodes()[number].observations, many.episodes()[number].observations
            )
    names = sorted(path.name.split("-")[0] for path in made.iterdir())
    assert names == ["_manifest.json", "_plan.json", "_privileged.json", *["part"] * 3]
    assert so.validate(made).problems == ()
    assert so.convert(made, tmp_path / "again.h5") == so.convert(whole, tmp_path / "copy.h5")
    assert (tmp_path / "again.h5").read_bytes() == (tmp_path / "copy.h5").read_bytes()


def test_opening_reads_the_manifest_and_segments_their_rows(
    parts: Path,
) -> None:
    """With two of three parts made unreadable, what lies in the first is still served."""
    names = sorted(path.name for path in parts.glob("part-*"))
    for name in names[1:]:
        size = (parts / name).stat().st_size
        (parts / name).write_bytes(b"\0" * size)
    with so.load_dataset(parts) as data:
        first = data.select(np.arange(256))
        assert first.segments(8).observations.shape == (len(first.segments(8).episode), 9, 2)
        with pytest.raises(DataError, match="damaged"):
            data.segments(8)


def test_without_a_manifest_there_is_no_dataset(parts: Path) -> None:
    (parts / "_manifest.json").unlink()
    with pytest.raises(DataError, match="unfinished collection"):
        so.load_dataset(parts)
    assert not so.validate(parts).ok
    resumed = so.collect_dataset("navigation2d", parts, overrides=OVERRIDES, seed=1, resume=True)
    assert so.validate(parts).ok
    assert resumed.num_episodes == 600


def test_damage_is_found(parts: Path) -> None:
    part = min(parts.glob("part-*"))
    good = part.read_bytes()
    part.write_bytes(good[:-1])
    with pytest.raises(DataError, match=f"{part.name} has {len(good) - 1} of {len(good)} bytes"):
        so.load_dataset(parts)
    part.unlink()
    with pytest.raises(DataError, match="missing"):
        so.load_dataset(parts)
    middle = len(good) // 2
    part.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    assert "changed bytes" in {problem.kind for problem in so.validate(parts).problems}
    part.write_bytes(good)
    assert so.validate(parts).ok
    manifest = parts / "_manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"root_seed":1', '"root_seed":2'))
    with pytest.raises(DataError, match="manifest is not the one"):
        so.load_dataset(parts)


def test_two_parts_swapped_are_found(parts: Path) -> None:
    """Every part is sound, and its size is right: only their content is not where it belongs."""
    first, second, _ = sorted(parts.glob("part-*"))
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    manifest = parts / "_manifest.json"
    stored = json.loads(manifest.read_text())
    stored["parts"][0][1:], stored["parts"][1][1:] = stored["parts"][1][1:], stored["parts"][0][1:]
    del stored["sha256"]
    from sept_offline.data.parquet import _digest
    from sept_offline.data.source import canonical_json

    manifest.write_text(canonical_json({**stored, "sha256": _digest(stored)}))
    assert "disorder" in {problem.kind for problem in so.validate(parts).problems}


def test_arrow_reads_a_directory_as_a_table(made: Path) -> None:
    """Any Parquet reader sees the rows; ours are the files that do not begin with a line."""
    table = pq.read_table(made)
    with so.load_dataset(made) as data:
        assert len(table) == data.num_steps + data.num_episodes
    assert sorted(set(table.column("episode").to_pylist())) == list(range(600))


def test_only_own_directories_are_replaced(parts: Path, tmp_path: Path) -> None:
    def collect(target: Path, **more: object) -> so.Dataset:
        return so.collect_dataset("navigation2d", target, overrides=OVERRIDES, **more)  # type: ignore[arg-type]

    with pytest.raises(DataError, match="finished dataset"):
        collect(parts, seed=1)
    with pytest.raises(DataError, match="another seed"):
        collect(parts, seed=2, resume=True)
    before = so.load_dataset(parts).content_hash
    assert collect(parts, seed=1, resume=True).content_hash == before
    assert collect(parts, seed=2, restart=True).content_hash != before
    assert len(list(parts.glob("part-*"))) == 3
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "part-000000.parquet").write_bytes(b"precious")
    for more in ({}, {"restart": True}, {"resume": True}):
        with pytest.raises(DataError, match="other files"):
            collect(mine, seed=1, **more)
    assert [path.name for path in mine.iterdir()] == ["part-000000.parquet"]
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file"):
        collect(tmp_path / "file", seed=1)
    with pytest.raises(ConfigError, match=r"remove \.h5"):
        so.collect_dataset("navigation2d", "s3://bucket/a.h5", overrides=OVERRIDES)


def test_a_part_of_another_plan_is_never_taken(parts: Path) -> None:
    """What a worker of a discarded collection writes late is swept away, not published."""
    late = {path.name: path.read_bytes() for path in parts.glob("part-*")}
    so.collect_dataset("navigation2d", parts, overrides=OVERRIDES, seed=2, restart=True)
    (parts / "_manifest.json").unlink()
    for name, data in late.items():
        (parts / name).write_bytes(data)
    resumed = so.collect_dataset("navigation2d", parts, overrides=OVERRIDES, seed=2, resume=True)
    assert not any((parts / name).exists() for name in late)
    assert resumed.metadata.root_seed == 2
    assert so.validate(parts).ok


def test_a_damaged_part_is_made_again(parts: Path) -> None:
    before = so.load_dataset(parts).content_hash
    (parts / "_manifest.json").unlink()
    part = min(parts.glob("part-*"))
    good = part.read_bytes()
    part.write_bytes(good[: len(good) // 2])
    resumed = so.collect_dataset("navigation2d", parts, overrides=OVERRIDES, seed=1, resume=True)
    assert resumed.content_hash == before
    assert part.read_bytes() == good


def test_s3_holds_the_same_as_a_file(whole: Path, bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/random/nav"
    # by several processes: tests/engines/test_ray.py
    made = so.collect_dataset("navigation2d", place, overrides=OVERRIDES, seed=1)
    expected = so.load_dataset(whole)
    assert made.content_hash == expected.content_hash
    assert str(made.path) == place
    np.testing.assert_array_equal(made.segments(8).actions, expected.segments(8).actions)
    assert so.validate(place).problems == ()
    assert so.inspect(place).episodes == 600
    assert so.convert(place, tmp_path / "copy.h5") == expected.content_hash
    endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    spelled = f"{place}?endpoint_override={endpoint}&scheme=http&region=us-east-1"
    with so.load_dataset(spelled) as again:
        assert again.content_hash == expected.content_hash
    folder = Folder(locate(place))
    folder.delete("_manifest.json")
    with pytest.raises(DataError, match="unfinished"):
        so.load_dataset(place)
    folder.delete(max(name for name in folder.sizes() if name.startswith("part")))
    resumed = so.collect_dataset("navigation2d", place, overrides=OVERRIDES, seed=1, resume=True)
    assert resumed.content_hash == expected.content_hash


def test_an_expert_acts_from_s3(bucket: str, tmp_path: Path) -> None:
    quick = {
        "behaviour": "random:0.5,replay:0.5",
        "episodes": 20,
        "expert": {
            "rounds": 2,
            "environments": 2,
            "snapshots": 2,
            "updates_per_step": 1,
            "control": {"hidden": [8], "batch_size": 8},
        },
    }
    hashes = {
        so.collect_dataset("navigation2d", place, overrides=quick).content_hash
        for place in (tmp_path / "a.h5", tmp_path / "parts", f"{bucket}/expert")
    }
    assert len(hashes) == 1
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "parts").iterdir()) == [
        "_manifest.json",
        "_plan.json",
        "_privileged.json",
        "part",
    ]


def test_the_commands_take_uris(bucket: str, tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    place = f"{bucket}/commands"
    settings = ["--behaviour", "random", "--episodes", "20", "--quiet", "--json"]
    made = json.loads(call("collect", "navigation2d", *settings, "-o", place))
    assert made["path"] == place
    assert json.loads(call("inspect", place, "--json"))["content_hash"] == made["content_hash"]
    assert json.loads(call("validate", place, "--json", "--quiet"))["ok"]
    run = tmp_path / "run"
    small = ["--method", "avg", "--set", "control.updates=2"]
    call("fit", place, *small, "-o", str(run), "--quiet")
    record = json.loads((run / "run.json").read_text())
    assert (record["dataset"], record["content_hash"]) == (place, made["content_hash"])


def test_a_server_that_does_not_answer_is_named(unanswered: Future[None]) -> None:
    with pytest.raises(DataError, match="Cannot reach s3://logs/x"):
        unanswered.result()

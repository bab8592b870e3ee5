"""Whose shards, parts and dataset these are: nothing of another plan is taken for one's own."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.collect.partition import Partition, check_plan
from sept_offline.data.filesystems import Remote
from sept_offline.data.parquet import MANIFEST, PLAN, write_manifest
from sept_offline.data.source import content_hash, parse_header
from sept_offline.errors import DataError, SeptError
from sept_offline.files import Lock, Workspace
from tests.cli.commands import refused

EPISODES = 20
KNOWN = "1a9298ed5dff5c51"


def collect(out: str | Path | Remote, seed: int = 1, **more: Any) -> so.Dataset:
    overrides = {"behaviour": "random", "episodes": EPISODES, "max_steps": 20}
    given = {"overrides": overrides} | more
    return so.collect_dataset("navigation2d", out, seed=seed, **given)


def mixture(share: float, rounds: int = 2) -> dict[str, Any]:
    expert = {
        "rounds": rounds,
        "environments": 2,
        "snapshots": 1,
        "control": {"hidden": [8], "batch_size": 8},
    }
    behaviour = f"random:{share},replay:{1 - share}"
    return {"behaviour": behaviour, "episodes": 20, "max_steps": 20, "expert": expert}


def test_a_finished_file_of_another_recipe_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "a.h5"
    collect(target, overrides=mixture(0.75)).close()
    collect(target, overrides=mixture(0.75), resume=True).close()
    for other in (mixture(0.25), mixture(0.75, rounds=3)):
        with pytest.raises(DataError, match="another recipe"):
            collect(target, overrides=other, resume=True)


def test_a_file_from_before_it_named_its_plan_is_taken_by_what_it_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sept_offline.collect.collection.plan_digest", lambda plan: None)
    for user in ("partition", "rollout"):
        monkeypatch.setattr(f"sept_offline.collect.{user}.check_collection", lambda *_: None)
    made = collect(tmp_path / "old.h5")
    assert made.metadata.plan is None
    monkeypatch.undo()
    assert collect(tmp_path / "old.h5", resume=True).content_hash == made.content_hash
    with pytest.raises(DataError, match="another kind"):
        collect(tmp_path / "old.h5", seed=2, resume=True)


def test_the_content_hash_knows_nothing_of_the_plan(tmp_path: Path) -> None:
    with collect(tmp_path / "a.h5") as data:
        assert data.metadata.plan is not None
        source = data._source
        header = source.header
        assert parse_header(header.to_json(), tmp_path) == header
        planless = dataclasses.replace(
            header, metadata=dataclasses.replace(header.metadata, plan=None)
        )
        assert "plan" not in json.loads(planless.to_json())
        monkey: Any = source
        monkey.header = planless
        assert content_hash(source, data.hidden) == data.content_hash


def test_a_known_collection_has_the_hash_it_always_had(tmp_path: Path) -> None:
    """As a file; tests/data/test_filesystems.py compares files with directories."""
    given = {"behaviour": "random", "episodes": 300}
    found = so.collect_dataset("navigation2d", tmp_path / "a.h5", overrides=given, seed=1)
    assert found.content_hash.startswith(KNOWN)


def unlocked(path: Path) -> Remote:
    """A directory that is treated as one elsewhere."""
    path.mkdir()
    return Remote(f"file://{path}")


def restarting(place: Remote, began: list[int]) -> Any:
    """A policy during whose first step another process begins seed 2 at the same place."""

    def policy(observations: np.ndarray) -> np.ndarray:
        if not began:
            began.append(1)
            with pytest.raises(KeyboardInterrupt):
                collect(place, seed=2, policy=stopping, restart=True)
        return np.full((len(observations), 4), 0.25)

    return policy


def stopping(observations: np.ndarray) -> np.ndarray:
    raise KeyboardInterrupt


def test_a_discarded_collection_writes_nothing_into_the_next_one(tmp_path: Path) -> None:
    """As on S3, where nothing can be locked."""
    place = unlocked(tmp_path / "shared")
    with pytest.raises(SeptError, match="Another process has started a collection"):
        collect(place, policy=restarting(place, []))
    names = {path.name for path in (tmp_path / "shared").iterdir()}
    assert names == {PLAN}
    with collect(place, seed=2, restart=True) as data:
        assert data.metadata.root_seed == 2


@pytest.mark.parametrize("late", [False, True])
def test_no_manifest_is_left_for_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Another process begins anew right before the manifest is written, or right after."""
    place, other = unlocked(tmp_path / "shared"), tmp_path / "other"
    collect(other, seed=2).close()
    plan = (other / PLAN).read_text()
    step: Any = write_manifest if late else content_hash

    def meanwhile(*arguments: Any) -> Any:
        done = step(*arguments)
        (tmp_path / "shared" / PLAN).write_text(plan)
        return done

    monkeypatch.setattr(f"sept_offline.data.writer.{step.__name__}", meanwhile)
    with pytest.raises(DataError, match="Another process has started a collection"):
        collect(place)
    assert not (tmp_path / "shared" / MANIFEST).exists()


def test_a_manifest_of_another_plan_is_not_what_was_asked_for(tmp_path: Path) -> None:
    place, other = tmp_path / "a", tmp_path / "b"
    for out, seed in ((place, 1), (other, 2)):
        collect(out, seed=seed).close()
    (place / PLAN).write_bytes((other / PLAN).read_bytes())
    with collect(place, seed=2, resume=True) as data, so.load_dataset(other) as wanted:
        assert data.content_hash == wanted.content_hash


@pytest.mark.parametrize("text", ["{", "[]", "", "\udcff"])
def test_a_damaged_plan_is_named(tmp_path: Path, text: str) -> None:
    folder, file = tmp_path / "a", tmp_path / "b.h5"
    collect(folder).close()
    partial = tmp_path / "b.h5.partial"
    partial.mkdir()
    for plan in (folder / PLAN, partial / PLAN):
        plan.write_bytes(text.encode(errors="surrogateescape"))
    settings = ["navigation2d", "--behaviour", "random", "--resume"]
    for out in (folder, file):
        assert "is damaged" in refused("collect", *settings, "-o", out, cwd=tmp_path)
    collect(folder, restart=True).close()
    collect(file, restart=True).close()


def test_another_plan_is_named_in_plain_words() -> None:
    found = {"seed": 1, "instances": [{"drag": 1.0}], "max_steps": 20}
    wanted = {"seed": 1, "instances": [{"drag": 2.0}], "max_steps": 30}
    words = "logs was started with other hidden parameters, another limit of steps; resume"
    with pytest.raises(DataError, match=words):
        check_plan(found, wanted, "logs")


def test_a_lock_is_held_once_though_its_holder_leaves_while_another_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, path = fcntl.flock, tmp_path / "a"
    first = Partition(path)
    first.open({}, False, False)

    def late(handle: Any, operation: int) -> None:
        monkeypatch.undo()
        first.release()
        real(handle, operation)

    monkeypatch.setattr("fcntl.flock", late)
    second, third = Partition(path), Partition(path)
    second.open({}, True, False)
    with pytest.raises(DataError, match="Another process"):
        third.open({}, True, False)
    second.release()
    third.open({}, True, False)
    third.release()
    assert not (path / "_lock").exists()


def test_every_lock_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    work = Workspace(path)
    lock = tmp_path / ".a.h5.lock"
    with pytest.raises(DataError, match="busy"):
        Lock(lock, DataError("busy"))
    work.close()
    assert not lock.exists()
    held = Lock(lock, DataError("busy"))
    with pytest.raises(DataError, match="Another writer"):
        Workspace(path)
    held.release()
    Workspace(path).close()

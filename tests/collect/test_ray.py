"""One collection through both engines, to files, directories and S3: one content hash."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sept_offline as so
from sept_offline.errors import ConfigError

pytest.importorskip("ray", reason="Ray is not installed: pip install sept-offline[ray]")

from sept_offline.engines.cluster import cluster

OVERRIDES = {"behaviour": "random", "episodes": 1200, "max_steps": 20}


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def place(bucket: str, marks: Path) -> Iterator[str]:
    """The bucket, and a cluster of two workers that know the way to it and to `telling`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        patch.setenv("TELLING_FOLDER", str(marks))
        with cluster(2):
            patch.delenv("TELLING_FOLDER")
            yield bucket


def collect(target: str | Path, **more: object) -> so.Dataset:
    return so.collect_dataset("navigation2d", target, overrides=OVERRIDES, seed=3, **more)  # type: ignore[arg-type]


def test_one_hash_through_both_engines_and_everywhere(place: str, tmp_path: Path) -> None:
    whole = collect(tmp_path / "a.h5")
    hashes = {
        collect(target, engine=engine, workers=2).content_hash
        for target, engine in (
            (tmp_path / "local", "local"),
            (tmp_path / "ray", "ray"),
            (tmp_path / "ray.parquet", "ray"),
            (f"{place}/ray", "ray"),
        )
    }
    assert hashes == {whole.content_hash}
    assert len(list((tmp_path / "local").iterdir())) == 8
    for one in (tmp_path / "local").iterdir():
        assert (tmp_path / "ray" / one.name).read_bytes() == one.read_bytes()
    assert so.validate(f"{place}/ray").problems == ()


def test_workers_find_a_place_that_is_named_from_here(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand where the cluster was started, not where it is used."""
    monkeypatch.chdir(tmp_path)
    for target in ("parts", "file.h5"):
        collect(target, engine="ray").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.h5", "parts"]


def test_a_worker_killed_in_the_middle_changes_nothing(
    place: str, marks: Path, tmp_path: Path
) -> None:
    waiting = marks / "waiting"

    def kill() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and not waiting.exists():
            time.sleep(0.02)
        os.kill(int(waiting.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    made = collect(tmp_path / "ray", engine="ray", policy="telling:uniform")
    killer.join()
    assert len(set(marks.iterdir()) - {waiting}) >= 2, "another process has taken over"
    here = collect(tmp_path / "here.h5", policy="telling:uniform")
    assert made.content_hash == here.content_hash


def test_what_workers_cannot_load_is_refused(place: str, tmp_path: Path) -> None:
    def policy(observations: object) -> object:
        return observations

    with pytest.raises(ConfigError, match=r"package\.module:object"):
        collect(tmp_path / "a", engine="ray", policy=policy)
    with pytest.raises(ConfigError, match="did you mean 'ray'"):
        collect(tmp_path / "a", engine="rya")
    assert not list(tmp_path.iterdir())

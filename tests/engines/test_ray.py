"""The Ray engine on a real cluster of two workers: the same as the local one's, in all it runs.

One cluster for tasks, collections and benches: starting one takes seconds. Workers that are killed
are killed first, before they have loaded what a collection needs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pieces
import pytest

import sept_offline as so
from sept_offline.engines import run_tasks
from sept_offline.errors import ConfigError, DataError
from sept_offline.tools.bench import make_plan, run_bench
from tests.bench.coins import DEADLY, MARK, SMALL, tables

pytest.importorskip("ray", reason="Ray is not installed: pip install sept-offline[ray]")

from sept_offline.engines.cluster import cluster

OVERRIDES = {"behaviour": "random", "episodes": 600, "max_steps": 5}
"""Three shards."""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module", autouse=True)
def place(bucket: str, marks: Path) -> Iterator[str]:
    """The bucket, and a cluster of two workers that know the way to it and to `telling`.

    They alone know where to leave marks, by which one of them is killed.
    """
    (marks / "announced").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "collect"))
        patch.setenv("TELLING_FOLDER", str(marks / "announced"))
        patch.setenv(MARK, str(marks / "killed"))
        patch.setenv("OMP_NUM_THREADS", "2")
        with cluster(2):
            patch.delenv("TELLING_FOLDER")
            patch.setenv("OMP_NUM_THREADS", "1")
            yield bucket


def ray_outcomes(function, tasks, **more):  # type: ignore[no-untyped-def]
    return {o.task: o for o in run_tasks(function, tasks, engine="ray", workers=2, **more)}


def test_the_same_outcomes_as_local_on_one_thread() -> None:
    local = {o.task: o for o in run_tasks(pieces.square, range(20), workers=2)}
    assert ray_outcomes(pieces.square, range(20)) == local
    assert ray_outcomes(pieces.threads, [0])[0].value == {1}


def test_workers_are_as_nice_as_whoever_started_them() -> None:
    assert ray_outcomes(pieces.niceness, [0])[0].value == os.nice(0)


def test_errors_are_the_same_as_local() -> None:
    local = {o.task: o for o in run_tasks(pieces.fail, range(5), retries=1)}
    found = ray_outcomes(pieces.fail, range(5), retries=1)
    assert found == local
    assert found[3].attempts == 2
    with pytest.raises(ValueError, match="no 3"):
        found[3].result()
    refused = ray_outcomes(pieces.refuse, [7])[7]
    assert (refused.error, refused.attempts) == ("7 is not a dataset.", 1)
    with pytest.raises(DataError):
        refused.result()


def test_a_second_try_is_counted(tmp_path: Path) -> None:
    found = ray_outcomes(pieces.fail_once, [(tmp_path, 4)])
    assert [(o.value, o.attempts) for o in found.values()] == [(16, 2)]


def test_a_worker_killed_in_the_middle(tmp_path: Path) -> None:
    """Its task runs elsewhere, and nobody else notices."""

    def kill() -> None:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for mark in tmp_path.glob("1-*.pid"):
                os.kill(int(mark.stem.split("-")[1]), signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    found = ray_outcomes(pieces.write_pid_and_wait, [(tmp_path, number) for number in range(6)])
    killer.join()
    assert {task[1]: o.value for task, o in found.items()} == {n: n**2 for n in range(6)}
    attempts = {task[1]: o.attempts for task, o in found.items()}
    assert attempts[1] == 2
    assert len({path.stem for path in tmp_path.glob("1-*.pid")}) == 2
    assert all(attempts[n] == 1 for n in (0, 2, 3, 4, 5))


def test_a_task_that_kills_every_worker_is_given_up(tmp_path: Path) -> None:
    found = ray_outcomes(pieces.die_always, [(tmp_path, number) for number in (1, 2, 3)])
    values = {task[1]: o.value for task, o in found.items()}
    assert values == {1: 1, 2: None, 3: 9}
    lost = found[(tmp_path, 2)]
    assert lost.attempts == 2
    assert lost.error is not None
    assert lost.error.startswith("The worker died at this task")


def collect(target: str | Path, family: str = "navigation2d", **more: object) -> so.Dataset:
    return so.collect_dataset(family, target, overrides=OVERRIDES, seed=3, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process collects; that local workers write the same is seen in tests/collect."""
    out = tmp_path_factory.mktemp("one") / "local"
    collect(out).close()
    return out


def test_one_hash_through_both_engines_and_everywhere(
    place: str, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers stand where the cluster was started, not here, where two of the places are named."""
    monkeypatch.chdir(tmp_path)
    found = {}
    for target in ("parts", "file.h5", f"{place}/ray"):
        with collect(target, engine="ray", workers=2) as made:
            found[target] = made.content_hash
    with so.load_dataset(local) as whole:
        assert found == dict.fromkeys(found, whole.content_hash)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.h5", "parts"]
    assert len(list(local.iterdir())) == 6
    for one in local.iterdir():
        assert (tmp_path / "parts" / one.name).read_bytes() == one.read_bytes()
    assert so.validate(f"{place}/ray").problems == ()


def test_one_hash_of_continuous_actions_through_both_engines(tmp_path: Path) -> None:
    here = collect(tmp_path / "here.h5", "point-robot-wind")
    there = collect(tmp_path / "there", "point-robot-wind", engine="ray", workers=2)
    assert there.action_space.kind == "box"
    assert there.content_hash == here.content_hash


def test_a_collection_whose_worker_is_killed_is_the_same(marks: Path, tmp_path: Path) -> None:
    announced = marks / "announced"
    waiting = announced / "waiting"

    def kill() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end and not waiting.exists():
            time.sleep(0.02)
        os.kill(int(waiting.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    made = collect(tmp_path / "ray", engine="ray", policy="telling:uniform")
    killer.join()
    assert len(set(announced.iterdir()) - {waiting}) >= 2, "another process has taken over"
    here = collect(tmp_path / "here.h5", policy="telling:uniform")
    assert made.content_hash == here.content_hash


def test_what_workers_cannot_load_is_refused(tmp_path: Path) -> None:
    def policy(observations: object) -> object:
        return observations

    with pytest.raises(ConfigError, match=r"package\.module:object"):
        collect(tmp_path / "a", engine="ray", policy=policy)
    with pytest.raises(ConfigError, match="did you mean 'ray'"):
        collect(tmp_path / "a", engine="rya")
    assert not list(tmp_path.iterdir())


# a bench hands its cells to the engine as a collection does its shards
@pytest.mark.long
def test_a_bench_whose_worker_is_killed_has_the_same_numbers(marks: Path, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "local", tmp_path / "ray"
    cells = make_plan([DEADLY], ("avg",), seeds=2, settings=SMALL)
    assert run_bench(cells, theirs, engine="ray", workers=2).ran == 2
    # the mark is there now, so that nobody is killed here
    assert (marks / "killed").exists()
    assert run_bench(cells, ours).ran == 2
    assert tables(ours) == tables(theirs)

"""The Ray engine on a real cluster of two workers: the same outcomes as the local one's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pieces
import pytest

from sept_offline.engines import run_tasks
from sept_offline.errors import DataError

pytest.importorskip("ray", reason="Ray is not installed: pip install sept-offline[ray]")

from sept_offline.engines.cluster import cluster


@pytest.fixture(scope="module", autouse=True)
def two_workers() -> Iterator[None]:
    """One cluster for all of these tests: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "2")
        with cluster(2):
            yield


def ray_outcomes(function, tasks, **more):  # type: ignore[no-untyped-def]
    return {o.task: o for o in run_tasks(function, tasks, engine="ray", workers=2, **more)}


def test_the_same_outcomes_as_local_on_one_thread() -> None:
    local = {o.task: o for o in run_tasks(pieces.square, range(20), workers=2)}
    assert ray_outcomes(pieces.square, range(20)) == local
    assert ray_outcomes(pieces.threads, [0])[0].value == 1


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

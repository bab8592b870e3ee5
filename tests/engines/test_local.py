"""The local engine: every task is answered for, whatever happens to the process it ran in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pieces
import pytest

import sept_offline.engines.cluster as cluster
from sept_offline.engines import run_tasks
from sept_offline.errors import ConfigError, DataError, EngineError


def test_one_worker_stays_in_this_process() -> None:
    (outcome,) = run_tasks(pieces.process, [0])
    assert (outcome.value, outcome.error, outcome.attempts) == (os.getpid(), None, 1)


def test_two_workers_are_other_processes_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    values = {o.value for o in run_tasks(pieces.process, range(4), workers=2)}
    assert os.getpid() not in values
    assert len(values) == 2
    assert [o.value for o in run_tasks(pieces.threads, [0], workers=2)] == [{1}]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_task_has_its_outcome(workers: int) -> None:
    found = {o.task: o.result() for o in run_tasks(pieces.square, range(20), workers=workers)}
    assert found == {number: number**2 for number in range(20)}
    assert list(run_tasks(pieces.square, [], workers=workers)) == []


def test_outcomes_come_in_the_order_of_finishing() -> None:
    # Three, so that both workers are up before the difference counts.
    values = [o.value for o in run_tasks(pieces.nap, [1.0, 0.0, 0.0], workers=2)]
    assert values == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_is_retried_and_reported(workers: int) -> None:
    found = {o.task: o for o in run_tasks(pieces.fail, range(5), workers=workers, retries=2)}
    assert [found[n].value for n in range(5)] == [0, 1, 2, None, 4]
    assert found[3].attempts == 3
    assert found[3].error is not None
    assert found[3].error.startswith("ValueError: no 3 at all (in fail, ")
    with pytest.raises(ValueError, match="no 3"):
        found[3].result()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_of_the_user_s_is_not_tried_again(workers: int) -> None:
    for outcome in run_tasks(pieces.refuse, [1, 2], workers=workers):
        assert outcome.attempts == 1
        assert outcome.error == f"{outcome.task} is not a dataset."
        with pytest.raises(DataError):
            outcome.result()


def test_a_second_try_may_succeed(tmp_path: Path) -> None:
    tasks = [(tmp_path, number) for number in range(3)]
    for outcome in run_tasks(pieces.fail_once, tasks):
        assert (outcome.value, outcome.attempts) == (outcome.task[1] ** 2, 2)


def test_what_cannot_be_sent_is_reported() -> None:
    for outcome in run_tasks(pieces.unsendable, [1, 2], workers=2, retries=0):
        assert outcome.error is not None
        assert "cannot be sent between processes" in outcome.error
    for outcome in run_tasks(pieces.awkward, [1, 2], workers=2, retries=0):
        assert outcome.error is not None
        assert outcome.error.startswith(f"Awkward: {outcome.task} and 2")
        with pytest.raises(EngineError, match="Awkward"):
            outcome.result()


def test_a_dead_worker_costs_one_try_and_nobody_else(tmp_path: Path) -> None:
    tasks = [(tmp_path, number) for number in range(6)]
    found = {o.task[1]: o for o in run_tasks(pieces.die_once, tasks, workers=2)}
    assert {number: o.value for number, o in found.items()} == {n: n**2 for n in range(6)}
    assert {number: o.attempts for number, o in found.items()} == {
        **dict.fromkeys(range(6), 1),
        2: 2,
    }


def test_a_task_that_kills_again_is_given_up(tmp_path: Path) -> None:
    tasks = [(tmp_path, number) for number in range(5)]
    found = {o.task[1]: o for o in run_tasks(pieces.die_always, tasks, workers=2)}
    assert {number: o.value for number, o in found.items() if number != 2} == {
        n: n**2 for n in (0, 1, 3, 4)
    }
    assert (found[2].value, found[2].attempts) == (None, 2)
    assert found[2].error == "The worker process died at this task (SIGKILL)."


def test_a_signal_without_a_name_is_reported_by_number() -> None:
    tasks = run_tasks(pieces.die_of_a_nameless_signal, [1, 2], workers=2, retries=0)
    found = {o.task: o for o in tasks}
    assert found[1].value == 1
    number = signal.SIGRTMIN + 1
    assert found[2].error == f"The worker process died at this task (signal {number})."


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from pathlib import Path; import pieces\n"
        "from sept_offline.engines import run_tasks\n"
        "if __name__ == '__main__':\n"
        "    list(run_tasks(pieces.write_pid_and_wait, [(Path(sys.argv[2]), 1)] * 2, workers=2))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(program)
    here = str(Path(__file__).parent)
    parent = subprocess.Popen([sys.executable, str(script), here, str(tmp_path)])
    pids = _wait_for(lambda: [int(p.stem.split("-")[1]) for p in tmp_path.glob("1-*.pid")])
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert _wait_for(lambda: not any(_alive(pid) for pid in pids))


def test_leaving_early_stops_the_workers(tmp_path: Path) -> None:
    tasks = [(tmp_path, 0), (tmp_path, 1)]
    outcomes = run_tasks(pieces.write_pid_and_wait, tasks, workers=2)
    assert next(outcomes).value == 0
    (pid,) = _wait_for(lambda: [int(p.stem.split("-")[1]) for p in tmp_path.glob("1-*.pid")])
    outcomes.close()  # type: ignore[attr-defined]
    assert not _alive(pid)


def test_unknown_engines_and_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="did you mean 'ray'"):
        next(run_tasks(pieces.square, [1], engine="rya"))
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"sept-offline\[ray\]"):
        next(run_tasks(pieces.square, [1], engine="ray"))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def _wait_for(condition, seconds: float = 20.0):  # type: ignore[no-untyped-def]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_tells_how_far_it_is(workers: int) -> None:
    heard: dict[int, list[int]] = {}

    def listen(task: int, value: int) -> None:
        heard.setdefault(task, []).append(value)

    outcomes = run_tasks(pieces.count, [3, 5], workers=workers, heard=listen)
    assert sorted(outcome.result() for outcome in outcomes) == [3, 5]
    assert heard == {3: [0, 1, 2], 5: [0, 1, 2, 3, 4]}

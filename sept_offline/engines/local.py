"""Independent tasks on this machine: in this process, or on a few others that may die."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from sept_offline.engines.environment import WORKER, environment
from sept_offline.engines.outcome import Attempt, Note, Outcome, Result, Task, attempt

Heard = Callable[[Any, Any], None]


def run_local(
    function: Callable[..., Result],
    tasks: Sequence[Task],
    workers: int = 1,
    retries: int = 1,
    heard: Heard | None = None,
) -> Iterator[Outcome[Task, Result]]:
    """Each task with what became of it, in the order in which they end.

    Workers are fresh processes (a fork would inherit torch's and HDF5's locks), so `function` and
    the tasks must be importable and picklable; with one worker everything stays in this process.
    """
    if workers <= 1:
        for task in tasks:
            call = function
            if heard is not None:
                call = functools.partial(function, tell=functools.partial(heard, task))
            attempts, tried = 1, attempt(call, task)
            while not tried.final and attempts <= retries:
                attempts, tried = attempts + 1, attempt(call, task)
            yield _outcome(task, tried, attempts)
        return
    yield from _run_processes(function, tasks, min(workers, len(tasks)), retries, heard)


def _outcome(task: Task, tried: Attempt, attempts: int) -> Outcome[Task, Any]:
    return Outcome(task, tried.value, tried.error, attempts, tried.exception)


@dataclass
class _Worker:
    """A process, this end of its pipe, and the number of the task it is at."""

    process: BaseProcess
    pipe: Connection
    at: int = -1

    def receive(self) -> Attempt | Note:
        """A message or the result of its task; the exit code if the worker died."""
        try:
            found: Attempt | Note = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            how = _told(self.process.exitcode or 0)
            return Attempt(None, f"The worker process died at this task ({how}).", final=False)
        return found

    def stop(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


def _run_processes(
    function: Callable[..., Result],
    tasks: Sequence[Task],
    workers: int,
    retries: int,
    heard: Heard | None,
) -> Iterator[Outcome[Task, Result]]:
    waiting = deque(range(len(tasks)))
    begun = [0] * len(tasks)
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}

    def begin() -> None:
        worker = idle.pop() if idle else _start()
        worker.at = waiting.popleft()
        begun[worker.at] += 1
        busy[worker.pipe] = worker
        # A worker that is already dead is found out when its answer is read.
        with contextlib.suppress(BrokenPipeError):
            worker.pipe.send((function, tasks[worker.at], heard is not None))

    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                begin()
            ended: list[tuple[int, Attempt]] = []
            answered = set(wait(list(busy)))
            for pipe in [pipe for pipe in busy if pipe in answered]:
                worker = busy[pipe]
                tried = worker.receive()
                if isinstance(tried, Note):
                    if heard is not None:
                        heard(tasks[worker.at], tried.value)
                    continue
                del busy[pipe]
                if worker.process.exitcode is None:
                    idle.append(worker)
                else:
                    worker.stop()
                if tried.final or begun[worker.at] > retries:
                    ended.append((worker.at, tried))
                else:
                    waiting.append(worker.at)
            # Before the caller is given anything to do, so that no worker waits for the caller.
            while waiting and idle:
                begin()
            for number, tried in ended:
                yield _outcome(tasks[number], tried, begun[number])
    finally:
        for worker in [*idle, *busy.values()]:
            worker.stop()


def _told(code: int) -> str:
    """How a process ended: the name of the signal if it has one (most real-time signals do not)."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def _start() -> _Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    with environment(WORKER):
        process.start()
    # The only other copy: its end shows when the worker dies.
    there.close()
    return _Worker(process, here)


def _serve(pipe: Connection) -> None:
    """A worker's life: tasks in, attempts out, until this end or the other is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    while True:
        try:
            function, task, tells = pipe.recv()
        except (EOFError, OSError):
            return
        # What cannot be unpickled here ends the process, which the other end reports.
        if tells:
            function = functools.partial(function, tell=lambda value: pipe.send(Note(value)))
        tried = attempt(function, task)
        try:
            pipe.send(tried)
        except Exception as error:
            pipe.send(attempt(_refuse, error))


def _refuse(error: Exception) -> None:
    raise TypeError(f"the result cannot be sent between processes: {error}")


def _follow_parent() -> None:
    """End at once when the parent was killed: its successor will run the task again."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)

"""Independent tasks on this machine: in this process, or on a few others that may die."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from sept_offline.errors import EngineError, SeptError, SimulatorError, one_line
from sept_offline.threads import one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """One task, done or given up."""

    task: Task
    value: Result | None
    """The function's result; None if it failed."""
    error: str | None
    """One line that says what went wrong; None if nothing did."""
    attempts: int
    """How often the task was started."""
    exception: Exception | None = field(default=None, repr=False, compare=False)
    """The error itself, if the worker survived to return it."""

    def result(self) -> Result:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.exception or EngineError(self.error)
        return self.value  # type: ignore[return-value]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task: picklable for any error."""

    value: Any
    error: str | None = None
    exception: Exception | None = None
    final: bool = True
    """Whether the task must not be tried again: it succeeded, or its input is invalid."""

    def outcome(self, task: Task, attempts: int) -> Outcome[Task, Any]:
        """What became of the task if this was the last of `attempts`."""
        return Outcome(task, self.value, self.error, attempts, self.exception)


def attempt(function: Callable[[Any], Any], task: Any) -> Attempt:
    """Call `function` on one thread; errors are caught and described."""
    try:
        with one_thread():
            return Attempt(function(task))
    except Exception as error:
        final = isinstance(error, SeptError) and not isinstance(error, SimulatorError)
        return Attempt(None, describe(error), portable(error), final=final)


def describe(error: BaseException) -> str:
    """One line: a mistake of the user's in its own words, anything else with its place."""
    if isinstance(error, SeptError):
        return str(error)
    words = one_line(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} (in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})"


def portable(error: Exception) -> Exception | None:
    """The error if it survives a trip between processes, else None."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


Heard = Callable[[Any, Any], None]
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMBA")
WORKER = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {"PYTHONSAFEPATH": "1"}
"""One thread per worker, set before a library can start its own. Without PYTHONSAFEPATH Python
would put the current folder before all others and import whatever lies there, multiprocessing.py
for instance; a family that the user names is found by the path that workers are handed."""


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
            yield tried.outcome(task, attempts)
        return
    yield from _run_processes(function, tasks, min(workers, len(tasks)), retries, heard)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Processes started inside have `values` in their environment; afterwards all is as before."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@dataclass(frozen=True)
class _Note:
    """A progress report of a running task, sent by a worker."""

    value: Any


@dataclass
class _Worker:
    """A process, this end of its pipe, and the number of the task it is at."""

    process: BaseProcess
    pipe: Connection
    at: int = -1

    def receive(self) -> Attempt | _Note:
        """A message or the result of its task; the exit code if the worker died."""
        try:
            message: Attempt | _Note = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            cause = _cause(self.process.exitcode or 0)
            return Attempt(None, f"The worker process died at this task ({cause}).", final=False)
        return message

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
                if isinstance(tried, _Note):
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
                yield tried.outcome(tasks[number], begun[number])
    finally:
        for worker in [*idle, *busy.values()]:
            worker.stop()


def _cause(code: int) -> str:
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
            function = functools.partial(function, tell=lambda value: pipe.send(_Note(value)))
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

"""Independent tasks on this machine: in this process, or on a few others."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_local(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 1
) -> Iterator[tuple[Task, Result]]:
    """Each task with its result, in the order in which they finish.

    Workers are fresh processes (a fork would inherit torch's and HDF5's locks), so `function` and
    the tasks must be importable and picklable; with one worker everything stays in this process.
    """
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield task, function(task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=context) as pool:
        # A bounded window keeps finished results from piling up behind a slow reader.
        queue = iter(tasks)
        running: dict[Future[Any], Task] = {}
        try:
            for task in queue:
                running[pool.submit(function, task)] = task
                if len(running) < 2 * workers:
                    continue
                yield from _finished(running)
            while running:
                yield from _finished(running)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finished(running: dict[Future[Any], Task]) -> Iterator[tuple[Task, Any]]:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        yield running.pop(future), future.result()

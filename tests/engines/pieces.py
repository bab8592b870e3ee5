"""Functions for workers, who must be able to import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from sept_offline.errors import DataError


def square(number: int) -> int:
    return number * number


def count(number: int, tell: Callable[[int], None]) -> int:
    """Tells every number up to its own."""
    for one in range(number):
        tell(one)
    return number


def process(_: object) -> int:
    return os.getpid()


def threads(_: object) -> set[int]:
    """How many threads a library takes that has started, and what the others will be allowed.

    As the process was started, before any library could read it. Torch obeys the same variables,
    and takes seconds to load.
    """
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    given = Path("/proc/self/environ").read_text(encoding="utf-8").split("\0")
    variables = dict(line.partition("=")[::2] for line in given if line)
    allowed = {int(variables[f"{name}_NUM_THREADS"]) for name in ("OMP", "MKL", "NUMBA")}
    pools = {int(pool["num_threads"]) for pool in threadpool_info()}
    assert pools, "NumPy has a pool of threads"
    return allowed | pools


def niceness(_: object) -> int:
    return os.nice(0)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(number: int) -> int:
    if number == 3:
        raise ValueError(f"no {number}\nat all")
    return number


def refuse(number: int) -> int:
    raise DataError(f"{number} is not a dataset.")


def unsendable(_: int) -> object:
    return lambda: None


class Awkward(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def awkward(number: int) -> int:
    raise Awkward(number, 2)


def die_always(task: tuple[Path, int]) -> int:
    if task[1] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return task[1] ** 2


def die_of_a_nameless_signal(number: int) -> int:
    if number == 2:
        os.kill(os.getpid(), signal.SIGRTMIN + 1)
    return number**2


def die_once(task: tuple[Path, int]) -> int:
    """Killed in the middle of its first try at task 2; a mark says that it was."""
    folder, number = task
    mark = folder / "died"
    if number == 2 and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def fail_once(task: tuple[Path, int]) -> int:
    folder, number = task
    mark = folder / f"failed-{number}"
    if not mark.exists():
        mark.write_text("")
        raise OSError("the disk hiccuped")
    return number**2


def write_pid_and_wait(task: tuple[Path, int]) -> int:
    """Says where it runs; the first try of task 1 then waits to be killed from outside."""
    folder, number = task
    (folder / f"{number}-{os.getpid()}.pid").write_text("")
    if number == 1 and len(list(folder.glob("1-*.pid"))) == 1:
        time.sleep(60)
    return number**2

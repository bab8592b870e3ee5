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


def threads(_: object) -> int:
    import torch

    return torch.get_num_threads()


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

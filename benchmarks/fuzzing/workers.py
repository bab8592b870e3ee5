"""Forked workers under a limit of memory and time; one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.inputs import MEMORY, SECONDS, Fuzzer, Hang
from benchmarks.fuzzing.outcomes import Finding


def load_everything() -> None:
    """Before the fork, so that no worker counts what the libraries take."""
    import torch

    import sept_offline.methods
    import sept_offline.tools.deploy
    import sept_offline.tools.report  # noqa: F401

    torch.set_num_threads(1)


def fuzz(
    fuzzer: Fuzzer, inputs: int, workers: int = 2, first: int = 0, memory: int = MEMORY
) -> Iterator[Finding]:
    """The findings of `inputs` inputs, as they come; a worker that dies is replaced."""
    context = multiprocessing.get_context("fork")
    share = -(-inputs // workers)
    waiting = [
        range(low, min(low + share, first + inputs)) for low in range(first, first + inputs, share)
    ]
    busy: dict[Any, tuple[Any, range, int, float]] = {}

    def start(numbers: range) -> None:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(fuzzer, numbers, there, memory), daemon=True)
        process.start()
        there.close()
        busy[here] = (process, numbers, numbers.start - 1, time.monotonic())

    def lost(pipe: Any, outcome: str) -> Iterator[Finding]:
        process, numbers, at, _ = busy.pop(pipe)
        process.kill()
        process.join()
        yield Finding(at, "?", outcome, f"exit code {process.exitcode}")
        if at >= numbers.start and at + 1 < numbers.stop:
            start(range(at + 1, numbers.stop))

    for numbers in waiting:
        start(numbers)
    while busy:
        ready = multiprocessing.connection.wait(list(busy), timeout=1)
        for pipe in list(busy):
            process, numbers, _, since = busy[pipe]
            if pipe not in ready:
                if time.monotonic() - since > 6 * SECONDS:
                    yield from lost(pipe, "hang")
                continue
            try:
                found = pipe.recv()
            except (EOFError, OSError, pickle.UnpicklingError):
                yield from lost(pipe, "crash")
                continue
            if found is None:
                busy.pop(pipe)
                process.join()
            elif isinstance(found[0], int):
                busy[pipe] = (process, numbers, found[0], time.monotonic())
            else:
                yield from found


def _work(fuzzer: Fuzzer, numbers: range, pipe: Any, memory: int) -> None:
    """A worker's life: its own copy of the corpus, and one finding after another."""
    signal.signal(signal.SIGALRM, _stop)
    with tempfile.TemporaryDirectory(dir=_quick_folder()) as scratch:
        folder = Path(scratch) / "corpus"
        shutil.copytree(fuzzer.corpus, folder)
        os.chdir(folder)
        sys.path.append(str(folder))  # as if the user had typed a family of their own
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
        fuzzer.learn(folder)
        fuzzer.watch.install()
        for number in numbers:
            pipe.send([number])
            pipe.send(fuzzer.one(number, folder))
    pipe.send(None)


def _stop(*_: object) -> None:
    raise Hang


def _quick_folder() -> str | None:
    """Where files are quick to write, if there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None

"""Independent tasks on a Ray cluster; one whose worker dies is run again elsewhere."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sept_offline.engines.local import WORKER, Attempt, Outcome, Result, Task, attempt, environment
from sept_offline.errors import EngineError, one_line

PENDING = 1000
"""Tasks submitted to Ray at once: enough for an autoscaler, few enough to wait on quickly."""
OBJECT_STORE = 256 << 20
"""Size of a local cluster's object store in bytes; small, because tasks write data to files."""


def check_ray() -> None:
    """Refuse where Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise EngineError(
            'The engine ray needs Ray, which is not installed: pip install "sept-offline[ray]".'
        )


def refuse_modules_here() -> None:
    """Refuse a current folder with Python modules in it, unless it is on this process' path, too.

    Ray puts the current folder first on the path of its workers.
    """
    here = Path.cwd()
    if any(Path(place).absolute() == here for place in sys.path):
        return
    for entry in sorted(here.iterdir()):
        module = entry.name.endswith(tuple(importlib.machinery.all_suffixes()))
        package = entry.is_dir() and (
            (entry / "__init__.py").exists()
            or (entry.name.isidentifier() and importlib.util.find_spec(entry.name) is not None)
        )
        if module or package:
            raise EngineError(
                f"This folder contains the Python module {entry.name}, which Ray's workers would "
                "import instead of an installed one; run the command in another folder."
            )


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[None]:
    """The cluster this process is connected to, that of RAY_ADDRESS, or a local one for a while."""
    import ray

    if ray.is_initialized():
        yield
        return
    refuse_modules_here()
    address = os.environ.get("RAY_ADDRESS")
    local: dict[str, Any] = {
        "address": "local",
        "num_cpus": workers,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE,
    }
    started = {
        **WORKER,
        "RAY_USAGE_STATS_ENABLED": "0",
        # With Ray's default, 15, workers starve if anything else runs.
        "RAY_worker_niceness": "0",
        # Ray warns of a default to come that concerns accelerators; no task here asks for one.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Workers search the same path for the user's family or policy.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    try:
        with environment({} if address else started):
            ray.init(
                **({"address": address} if address else local),
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {address}" if address else "a local Ray cluster"
        raise EngineError(f"Cannot reach {where}: {one_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


def run_ray(
    function: Callable[[Task], Result], tasks: Sequence[Task], workers: int = 1, retries: int = 1
) -> Iterator[Outcome[Task, Result]]:
    """Each task with what became of it, in the order in which they end.

    `workers` is the size of a cluster started here; one that was running before keeps its own.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    with cluster(workers):
        # A task is submitted again here, not by Ray, which does not say how often it started one.
        remote = ray.remote(num_cpus=1, max_retries=0)(attempt)
        # Once into the store, not once a task: it may close over a good deal.
        shared = ray.put(function)
        waiting = deque(range(len(tasks)))
        begun = [0] * len(tasks)
        running: dict[Any, int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < PENDING:
                    number = waiting.popleft()
                    begun[number] += 1
                    running[remote.remote(shared, tasks[number])] = number
                ready, _ = ray.wait(list(running), num_returns=1)
                number = running.pop(ready[0])
                try:
                    tried = ray.get(ready[0])
                except RayTaskError as error:
                    # Errors of the function are caught: this task or its result is not picklable.
                    words = one_line(getattr(error, "cause", error))
                    tried = Attempt(None, words, final=False)
                except RayError as error:
                    words = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
                    tried = Attempt(None, f"The worker died at this task ({words}).", final=False)
                if tried.final or begun[number] > retries:
                    yield tried.outcome(tasks[number], begun[number])
                else:
                    waiting.append(number)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

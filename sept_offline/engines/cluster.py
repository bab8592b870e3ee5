"""Independent tasks on a Ray cluster: Ray places them, and runs them elsewhere if one dies."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sept_offline.engines.local import WORKER, environment
from sept_offline.engines.outcome import Attempt, Outcome, Result, Task, attempt
from sept_offline.errors import EngineError

PENDING = 1000
"""Tasks submitted to Ray at once: enough for an autoscaler, few enough to wait on quickly."""
OBJECT_STORE = 256 << 20
"""Size of a local cluster's object store in bytes; small, because tasks write data to files."""


class Again(Exception):
    """Raised inside Ray so that it runs the task once more; carries the attempt that failed."""


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
        raise EngineError(f"Cannot reach {where}: {' '.join(str(error).split())}") from error
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
        remote = ray.remote(num_cpus=1, max_retries=retries, retry_exceptions=True)(_attempt)
        # Once into the store, not once a task: it may close over a good deal.
        shared = ray.put(function)
        queue = iter(range(len(tasks)))
        running: dict[Any, int] = {}
        try:
            while True:
                while len(running) < PENDING and (number := next(queue, None)) is not None:
                    running[remote.remote(shared, tasks[number])] = number
                if not running:
                    return
                ready, _ = ray.wait(list(running), num_returns=1)
                number = running.pop(ready[0])
                attempts = retries + 1
                try:
                    attempts, tried = ray.get(ready[0])
                except RayTaskError as error:
                    cause = getattr(error, "cause", error)
                    # Anything but Again broke before the task was begun: it could not be unpickled.
                    words = " ".join(str(cause).split())
                    tried = cause.args[0] if isinstance(cause, Again) else Attempt(None, words)
                except RayError as error:
                    words = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
                    tried = Attempt(None, f"The worker died at this task ({words}).")
                yield tried.outcome(tasks[number], attempts)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _attempt(function: Callable[[Any], Any], task: Any) -> tuple[int, Attempt]:
    """On a worker: run the task and return the attempt's number and outcome."""
    tried = attempt(function, task)
    if not tried.final:
        raise Again(tried)
    return _tries(), tried


def _tries() -> int:
    """How often Ray has started the current task; its public API does not expose the count."""
    from ray._private.worker import global_worker

    core: Any = getattr(global_worker, "core_worker")  # noqa: B009 - set once Ray has connected
    return int(core.get_current_task_attempt_number()) + 1

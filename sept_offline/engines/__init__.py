"""Engines for independent tasks: local processes or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sept_offline.engines.local import Outcome, Result, Task, run_local
from sept_offline.errors import ConfigError
from sept_offline.family import suggest

__all__ = ["ENGINES", "Outcome", "check_engine", "run_tasks"]

ENGINES = ("local", "ray")


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist or is not installed, before any work is begun."""
    if engine not in ENGINES:
        raise ConfigError(
            f"There is no engine {engine!r}{suggest(engine, ENGINES)}; expected local or ray."
        )
    if engine == "ray":
        from sept_offline.engines.cluster import check_ray

        check_ray()


def run_tasks(
    function: Callable[..., Result],
    tasks: Sequence[Task],
    *,
    engine: str = "local",
    workers: int = 1,
    retries: int = 1,
    heard: Callable[[Task, Any], None] | None = None,
) -> Iterator[Outcome[Task, Result]]:
    """Each task with what became of it, in the order in which they end; one thread a task.

    A task that fails is run again up to `retries` times, in another process if its own has died
    and elsewhere if its machine has; then it is reported, and the others go on. A `SeptError` is
    reported at once: what was asked for is wrong, and would be wrong again; but a `SimulatorError`
    may pass. `function` must be importable and the tasks picklable wherever they leave this
    process.

    With `heard` the function is called as `function(task, tell=…)`: values passed to `tell` reach
    `heard(task, value)` while the task runs. On a Ray cluster nothing arrives before the end, and
    `tell` is omitted.
    """
    check_engine(engine)
    if engine == "ray":
        from sept_offline.engines.cluster import run_ray

        yield from run_ray(function, tasks, workers, retries)
        return
    yield from run_local(function, tasks, workers, retries, heard)

"""The driver of a bench: logs first, then the cells that are missing, gathered as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sept_offline.data import load_dataset
from sept_offline.engines import check_engine, run_tasks
from sept_offline.errors import DataError
from sept_offline.files import TEMPORARY, Lock, write_text, writing
from sept_offline.progress import Progress, Silent
from sept_offline.tools.bench.cell import CellTask, identity, run_cell
from sept_offline.tools.bench.logs import Logs, logs_of, provide, provided
from sept_offline.tools.bench.plan import Plan
from sept_offline.tools.bench.store import (
    differences,
    gather,
    read_identity,
    read_table,
    refuse_other,
    scatter,
    set_aside,
)
from sept_offline.tools.bench.summary import Table, make_tables, markdown, summarise_bench, unlike

GATHER_SECONDS = 30.0
"""Seconds between two gatherings while cells run, so that the tables stay current."""
GATHER_SHARE = 0.05
"""Largest share of the time spent on gathering: many cells take a while to read."""


@dataclass(frozen=True)
class Failure:
    """A cell, or the logs of some cells, that failed."""

    name: str
    error: str
    attempts: int


@dataclass(frozen=True)
class Report:
    """What a call of `run_bench` did."""

    planned: int
    found: int
    """Cells that were finished before."""
    ran: int
    failed: tuple[Failure, ...]
    seconds: float


def run_bench(
    plan: Plan,
    out: str | Path,
    *,
    engine: str = "local",
    workers: int = 1,
    replace: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run the cells of `plan` that `out` does not hold yet, and gather all that it holds.

    A bench that was stopped can be run again: a finished cell is never run twice. A finished cell
    with the same name but other settings is an error, or is run again with `replace`.
    """
    progress, folder, began = progress or Silent(), Path(out), time.monotonic()
    check_engine(engine)
    refuse_other(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    busy = DataError(f"Another bench is running in {folder}; wait for it to end.")
    with Lock(folder / ".lock", busy):
        scatter(folder)
        (folder / "cells").mkdir(exist_ok=True)
        for leftover in (folder / "cells").iterdir():
            if TEMPORARY.fullmatch(leftover.name):
                leftover.unlink()
        tasks = _tasks(plan, folder)
        failed = list(_provide([logs for _, logs in tasks], engine, workers, progress))
        lost = {failure.name for failure in failed}
        ready = [task for task, logs in tasks if logs.path.name not in lost]
        failed += [
            Failure(task.cell.name, f"Its logs, {logs.path.name}, could not be made.", 0)
            for task, logs in tasks
            if logs.path.name in lost
        ]
        missing = _missing(ready, folder, replace)
        lost_cells = _run(missing, folder, engine, workers, progress, len(failed))
        failed += lost_cells
        gather(folder)
        write_tables(folder)
        failures = [vars(failure) for failure in failed]
        write_text(folder / "failures.json", json.dumps(failures, indent=2) + "\n")
    return Report(
        planned=len(plan.cells),
        found=len(ready) - len(missing),
        ran=len(missing) - len(lost_cells),
        failed=tuple(failed),
        seconds=time.monotonic() - began,
    )


def gather_finished(out: Path) -> None:
    """Gather the cells of a bench that was stopped; one that is running does so itself."""
    if not any((out / "cells").glob("*.parquet")):
        return
    running = DataError("")
    try:
        with Lock(out / ".lock", running):
            gather(out)
    except DataError as problem:
        if problem is not running:
            raise


def write_tables(out: Path) -> tuple[list[dict[str, Any]], list[Table]]:
    """Draw `tables.md` from the gathered tables; the figures, and how they are shown."""
    summary = summarise_bench(out)
    tables = make_tables(summary)
    write_text(out / "tables.md", markdown(tables, unlike(read_table(out, "cells"))))
    return summary, tables


def _run(
    tasks: list[CellTask], folder: Path, engine: str, workers: int, progress: Progress, lost: int
) -> list[Failure]:
    """Run the cells, gather now and then; returns failures. `lost` failed before they began."""
    failed: list[Failure] = []
    progress.start("cells", len(tasks), "cells")
    progress.update(0, running=min(workers, len(tasks)), failed=lost)
    due = time.monotonic() + GATHER_SECONDS
    running = run_tasks(run_cell, tasks, engine=engine, workers=workers)
    for done, outcome in enumerate(running, 1):
        if outcome.error is not None:
            name = outcome.task.cell.name
            failed.append(Failure(name, outcome.error, outcome.attempts))
            progress.message(f"{name} failed after {outcome.attempts} tries: {outcome.error}")
        if time.monotonic() > due:
            due = _gather_and_plan(folder)
        still = min(workers, len(tasks) - done)
        progress.update(done, running=still, failed=lost + len(failed))
    progress.finish()
    return failed


def _gather_and_plan(folder: Path) -> float:
    """Gather now; returns the time of the next gathering."""
    began = time.monotonic()
    gather(folder)
    now = time.monotonic()
    return now + max(GATHER_SECONDS, (now - began) / GATHER_SHARE)


def _tasks(plan: Plan, out: Path) -> list[tuple[CellTask, Logs]]:
    # Absolute, for a worker may stand somewhere else.
    folder, tasks = out.absolute(), []
    for cell in plan.cells:
        logs = logs_of(cell, folder / "datasets")
        target = folder / "cells" / f"{cell.name}.parquet"
        tasks.append((CellTask(cell, logs.path, plan.split, plan.episodes, target), logs))
    return tasks


def _provide(
    wanted: list[Logs], engine: str, workers: int, progress: Progress
) -> Iterator[Failure]:
    """Make all logs, collections before parts of them; yields those that failed."""
    wholes = {logs.path: logs for logs in (part.whole or part for part in wanted)}
    parts = {logs.path: logs for logs in wanted if logs.whole is not None}
    for title, group in (("collect", wholes), ("thin", parts)):
        absent = [logs for logs in group.values() if not provided(logs)]
        if not absent:
            continue
        absent[0].path.parent.mkdir(parents=True, exist_ok=True)
        progress.start(title, len(absent), "datasets")
        progress.update(0)
        running = run_tasks(provide, absent, engine=engine, workers=workers)
        for done, outcome in enumerate(running, 1):
            if outcome.error is not None:
                progress.message(f"{outcome.task.path.name} failed: {outcome.error}")
                yield Failure(outcome.task.path.name, outcome.error, outcome.attempts)
            progress.update(done)
        progress.finish()


def _missing(tasks: list[CellTask], folder: Path, replace: bool) -> list[CellTask]:
    """The tasks without a finished cell; refuses cells that were made with other settings."""
    opened: dict[Path, Any] = {}
    missing: set[Path] = set()
    other: list[tuple[CellTask, list[str]]] = []
    for path in {*(folder.absolute() / "cells").glob("*.parquet")} - {
        task.target for task in tasks
    }:
        read_identity(path)  # All cells are gathered: a damaged one is found before anything runs.
    try:
        for task in tasks:
            if not task.target.exists():
                missing.add(task.target)
                continue
            if task.logs not in opened:
                opened[task.logs] = load_dataset(task.logs)
            changed = differences(read_identity(task.target), identity(task, opened[task.logs]))
            if changed:
                other.append((task, changed))
    finally:
        for data in opened.values():
            data.close()
    if other and not replace:
        task, changed = other[0]
        raise DataError(
            f"{len(other)} finished cells in {folder} have other settings (the first, "
            f"{task.cell.name}, another {', '.join(changed[:3])}); choose another --out, or "
            "add --replace to run them again."
        )
    for task, _ in other:
        # At once: even if the new cell fails, the old one must not count.
        set_aside(task.target)
    missing |= {task.target for task, _ in other}
    return [task for task in tasks if task.target in missing]

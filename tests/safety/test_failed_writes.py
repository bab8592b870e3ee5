"""Every write, sync, rename and new folder of a command fails once: one sentence, nothing lost."""

from __future__ import annotations

import errno
import hashlib
import itertools
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Sheet

from benchmarks.fuzzing.corpus import BOX, foreign, log
from sept_offline.tools.bench import figures
from tests.safety.failing import failing

Command = Callable[..., tuple[int, str]]
SMALL = ("--behaviour", "random", "--episodes", "6", "--max-steps", "6", "--quiet")
TINY = (
    *("--no-verdict", "--set", "control.updates=2"),
    *("--set", "control.hidden=[4]", "--set", "control.members=1"),
)


@dataclass(frozen=True)
class Case:
    """A command, how it is continued, and what it must leave."""

    command: tuple[str, ...]
    again: tuple[str, ...]
    outputs: tuple[str, ...]
    before: tuple[str, ...] = ()
    """A command that is run first: what it writes is there to lose."""


CASES = {
    "collect": Case(
        ("collect", "navigation2d", *SMALL, "-o", "new.h5"), ("--resume",), ("new.h5",)
    ),
    "collect a directory": Case(
        ("collect", "navigation2d", *SMALL, "-o", "new"), ("--resume",), ("new",)
    ),
    "import": Case(
        ("import", "steps.csv", "--mapping", "mapping.toml", "-o", "old.h5", "--quiet"),
        (),
        ("old.h5", "old.card.md"),
        ("convert", "logs.h5", "old.h5", "--quiet"),
    ),
    "convert to HDF5": Case(
        ("convert", "other.parquet", "old.h5", "--quiet"),
        (),
        ("old.h5",),
        ("convert", "logs.h5", "old.h5", "--quiet"),
    ),
    "convert to Parquet": Case(
        ("convert", "logs.h5", "old.parquet", "--quiet"),
        (),
        ("old.parquet",),
        ("convert", "other.parquet", "old.parquet", "--quiet"),
    ),
    "fit": Case(
        ("fit", "logs.h5", "--method", "avg", "--quiet", *TINY, "-o", "new"),
        ("--resume",),
        ("new/agent/weights.safetensors", "new/metrics.csv"),
    ),
    "export": Case(
        ("export", "run", "--numpy", "--observations", "5", "--seed", "1", "-o", "old"),
        (),
        ("old/weights.npz", "old/manifest.json", "old/runtime.py"),
        ("export", "run", "--numpy", "--observations", "5", "-o", "old"),
    ),
    "report": Case(("report", "run", "-o", "old.html", "--quiet"), (), ("old.html",)),
    "bench": Case(
        (
            *("bench", "--quick", "--families", "navigation2d", "--methods", "avg", "--quiet"),
            *("--workers", "1", "--episodes", "1", "--set", "control.updates=2", "-o", "new"),
        ),
        (),
        ("new/training.parquet",),
    ),
}


def contents(folder: Path, names: tuple[str, ...]) -> dict[str, str | None]:
    """The digests of files, and of all files of folders; None where there is none."""
    found: dict[str, str | None] = {}
    for name in names:
        path = folder / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if not file.is_dir():
                key = str(file.relative_to(folder))
                there = file.exists()
                found[key] = hashlib.sha256(file.read_bytes()).hexdigest() if there else None
    return found


def hidden(folder: Path) -> list[str]:
    """What a command may leave only until it is run again."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


CODES = (errno.ENOSPC, errno.EIO)


def sweep(
    case: Case, source: Path, scratch: Path, command: Command, wanted: Iterable[tuple[int, int]]
) -> int:
    """Let operations fail, each with an error code; how many did. `operations_of` comes first."""
    failures = 0
    whole = scratch / "whole"
    for number, code in wanted:
        here = scratch / f"{number}-{code}"
        shutil.copytree(source, here)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(here)
            if case.before:
                assert command(*case.before)[0] == 0
            old = contents(here, case.outputs)
            with failing(here, number, code) as disk:
                status, said = command(*case.command)
            if disk.failed is None:
                assert status == 0, said
            else:
                failures += 1
                _judge(case, here, whole, old, status, said, disk.failed)
                status, said = command(*case.command, *(case.again if status else ()))
                if status == 2 and "finished" in said:
                    status = 0  # it had ended before the failure that was reported
                # a run that never began is begun without --resume
                assert status == 0, (disk.failed, said)
            now = contents(here, case.outputs)
            assert now == contents(whole, case.outputs), disk.failed
            assert hidden(here) == hidden(whole), disk.failed
        shutil.rmtree(here)
    return failures


def _judge(
    case: Case,
    here: Path,
    whole: Path,
    old: dict[str, str | None],
    status: int,
    said: str,
    failed: str,
) -> None:
    """One sentence and the old files, or the new ones and a word of what was not kept."""
    lines = [line for line in said.splitlines() if line.startswith("Error:")]
    now = contents(here, case.outputs)
    if status == 0:
        assert now == contents(whole, case.outputs), failed
        return
    if case.command[0] == "bench" and status == 1:
        assert "Failed: " in said, (failed, said)  # a cell or its logs: the same command goes on
        return
    assert status == 2 and len(lines) == 1, (failed, status, said)
    if case.before and len(old) == 1:
        assert now in (old, contents(whole, case.outputs)), failed


def operations_of(case: Case, source: Path, scratch: Path, command: Command) -> list[str]:
    """The operations of a command, in order; `whole` holds what it leaves."""
    here = scratch / "whole"
    shutil.copytree(source, here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        if case.before:
            assert command(*case.before)[0] == 0
        with failing(here, None) as disk:
            status, said = command(*case.command)
    assert status == 0, said
    return disk.operations


@pytest.fixture(autouse=True)
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench writes all of its figures, and draws nothing on them, which took most of its time."""
    monkeypatch.setattr(figures, "draw", lambda _: Sheet(figsize=(3, 2)))


@pytest.fixture
def source(whole: Path, tmp_path: Path) -> Path:
    """The logs, a table of steps and other logs, whose actions are vectors."""
    import sept_offline as so

    folder = tmp_path / "source"
    shutil.copytree(whole, folder)
    foreign(folder)
    log(folder / "other.h5", episodes=4, space=BOX)
    so.convert(folder / "other.h5", folder / "other.parquet")
    return folder


@pytest.mark.parametrize("name", ["convert to HDF5", "convert to Parquet", "export", "import"])
def test_some_failures_of_quick_commands(
    name: str, source: Path, tmp_path: Path, command: Command
) -> None:
    """One error in turn with the other; a full disk and a broken one fail in the same places."""
    case = CASES[name]
    last = len(operations_of(case, source, tmp_path, command)) - 1
    numbers = sorted({1 + last * place // 5 for place in range(6)})
    wanted = list(zip(numbers, itertools.cycle(CODES)))
    assert sweep(case, source, tmp_path, command, wanted) == len(numbers)


def test_a_bench_that_cannot_write_a_cell_or_a_table(
    source: Path, tmp_path: Path, command: Command
) -> None:
    """Most of its operations write logs and figures: what it would lose is a cell or a table."""
    case = CASES["bench"]
    operations = operations_of(case, source, tmp_path, command)
    numbers = [
        1 + next(n for n, one in enumerate(operations) if re.search(what, one))
        for what in ("^write .*new/cells/", r"^write .*new/[^/]*training\.parquet")
    ]
    assert sweep(case, source, tmp_path, command, zip(numbers, CODES, strict=True)) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_failure(
    name: str, source: Path, tmp_path: Path, command: Command, record_property: Callable[..., None]
) -> None:
    case = CASES[name]
    operations = len(operations_of(case, source, tmp_path, command))
    every = itertools.product(range(1, operations + 1), CODES)
    failures = sweep(case, source, tmp_path, command, every)
    record_property("failures", failures)
    print(f"{name}: {failures} failures of {operations} operations")
    assert failures >= operations

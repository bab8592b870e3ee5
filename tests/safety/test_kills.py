"""Killed with SIGKILL thirty times each, spread over its stages: every command can be run again."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import BOX, foreign, log
from tests import processes
from tests.safety.test_failed_writes import CASES, contents

KILLS = 30
NAMES = [name for name in CASES if name != "report"]
BEGUN = ("new.h5.partial/_plan.json", "new.h5", "new/_plan.json", "new/run.json")
"""What is there once a command that can be resumed has begun."""


def run(here: Path, *arguments: str) -> float:
    began = time.monotonic()
    done = processes.run(*arguments, cwd=here)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def killed(here: Path, seconds: float, *arguments: str) -> bool:
    """Whether a command was killed after some seconds; otherwise it had ended before."""
    with processes.start(*arguments, cwd=here) as process:
        time.sleep(seconds)
        process.kill()
        process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_thirty_kills(name: str, whole: Path, tmp_path: Path) -> None:
    case, source = CASES[name], tmp_path / "source"
    shutil.copytree(whole, source)
    foreign(source)
    log(source / "other.h5", episodes=4, space=BOX)
    so.convert(source / "other.h5", source / "other.parquet")
    if case.before:
        run(source, *case.before)
    expected = tmp_path / "expected"
    shutil.copytree(source, expected)
    seconds = run(expected, *case.command)
    rng, kills, early = random.Random(0), 0, 0
    while kills < KILLS:
        here = tmp_path / "here"
        shutil.copytree(source, here)
        share = (kills + rng.random()) / KILLS
        if killed(here, seconds * share, *case.command):
            kills += 1
            again = case.again if any((here / one).exists() for one in BEGUN) else ()
            run(here, *case.command, *again)
        else:
            # It is quicker than it was: aim earlier.
            early += 1
            seconds *= 0.95
            assert early < 3 * KILLS
        where = f"kill {kills} of {name}"
        assert contents(here, case.outputs) == contents(expected, case.outputs), where
        shutil.rmtree(here)
    print(f"{name}: {kills} kills, {early} ended before theirs")

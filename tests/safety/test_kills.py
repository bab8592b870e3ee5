"""Killed with SIGKILL thirty times each, spread over its stages: every command can be run again."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sept_offline as so
from tests.safety.conftest import fuzz_module
from tests.safety.test_failed_writes import CASES, contents

KILLS = 30
NAMES = [name for name in CASES if name != "report"]


def start(here: Path, *arguments: str) -> subprocess.Popen[bytes]:
    program = "from sept_offline.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=here,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def run(here: Path, *arguments: str) -> float:
    began = time.monotonic()
    process = start(here, *arguments)
    _, said = process.communicate()
    assert process.returncode == 0, said.decode()
    return time.monotonic() - began


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_thirty_kills(name: str, whole: Path, tmp_path: Path) -> None:
    case, source = CASES[name], tmp_path / "source"
    shutil.copytree(whole, source)
    fuzz_module()._foreign(source)
    fuzz_module().log(source / "other.h5", episodes=4)
    so.convert(source / "other.h5", source / "other.parquet")
    if case.before:
        run(source, *case.before)
    expected = tmp_path / "expected"
    shutil.copytree(source, expected)
    seconds = run(expected, *case.command)
    # Most of it goes into loading torch: the kills fall into what comes after.
    loading = run(source, "validate", "logs.h5", "--quiet") * 0.8
    rng, killed = random.Random(0), 0
    for number in range(KILLS):
        here = tmp_path / str(number)
        shutil.copytree(source, here)
        process = start(here, *case.command)
        share = (number + rng.random()) / KILLS
        time.sleep(loading + (seconds - loading) * share)
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if process.returncode:
            again = case.again if any((here / one).exists() for one in _begun(case)) else ()
            run(here, *case.command, *again)
        assert contents(here, case.outputs) == contents(expected, case.outputs), number
        shutil.rmtree(here)
    print(f"{name}: {killed} kills")
    assert killed >= KILLS // 2


def _begun(case: object) -> list[str]:
    """What is there once a command that can be resumed has begun."""
    return ["new.h5.partial/plan.json", "new.h5", "new/_plan.json", "new/run.json"]

"""Killed with SIGKILL at any moment and resumed, `collect` ends with the same bytes."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import sept_offline as so
from tests import processes

RECIPE = """
behaviour = "random:0.5,replay:0.5"
episodes = 1200

[expert]
rounds = 6
environments = 4
snapshots = 4

[expert.control]
hidden = [32]
batch_size = 16
"""


def start(recipe: Path, out: Path, *more: str) -> processes.Process:
    arguments = ["collect", "navigation2d", "--recipe", recipe, "--seed", "5", "--quiet"]
    return processes.start(
        *arguments, "-o", out, *more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def run_and_kill(recipe: Path, out: Path, seconds: float) -> bool:
    process = start(recipe, out)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return process.returncode == -signal.SIGKILL


def kill_and_resume(tmp_path: Path, kills: int) -> int:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    whole = tmp_path / "whole.h5"
    began = time.monotonic()
    assert start(recipe, whole).wait() == 0
    lasts = time.monotonic() - began
    rng = random.Random(0)
    killed = 0
    for number in range(kills):
        out = tmp_path / f"{number}.h5"
        # Stratified, so that few kills still fall into every part of the run.
        moment = lasts * (number + rng.random()) / kills
        killed += run_and_kill(recipe, out, moment)
        if out.exists():
            assert out.read_bytes() == whole.read_bytes()
        assert start(recipe, out, "--resume").wait() == 0
        assert out.read_bytes() == whole.read_bytes()
        assert so.validate(out).ok
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"recipe.toml", "whole.h5", out.name}
        out.unlink()
    return killed


def test_five_kills(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, 5) >= 3


@pytest.mark.long
def test_thirty_kills(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, 30) >= 20

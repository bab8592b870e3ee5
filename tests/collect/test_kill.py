"""Killed with SIGKILL at any moment and resumed, `collect` ends with the same bytes."""

from __future__ import annotations

import contextlib
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
episodes = 600
max_steps = 10

[expert]
rounds = 3
environments = 4
snapshots = 4
updates_per_step = 1

[expert.control]
hidden = [32]
batch_size = 16
"""


def start(family: str, recipe: Path, out: Path, *more: str) -> processes.Process:
    arguments = ["collect", family, "--recipe", recipe, "--seed", "5", "--quiet"]
    return processes.start(
        *arguments, "-o", out, *more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def written(process: processes.Process, out: Path, enough: float = float("inf")) -> int:
    """How often a file of the unfinished collection was written, until it ends or has `enough`."""
    seen: set[tuple[str, int]] = set()
    while process.poll() is None and len(seen) < enough:
        for path in out.with_name(f"{out.name}.partial").glob("[!.]*"):
            with contextlib.suppress(FileNotFoundError):
                seen.add((path.name, path.stat().st_mtime_ns))
        time.sleep(0.003)
    return len(seen)


def kill_and_resume(family: str, tmp_path: Path, kills: int) -> int:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    whole = tmp_path / "whole.h5"
    process = start(family, recipe, whole)
    # By what it has done and not by the clock, which says little on a busy machine.
    steps = written(process, whole)
    assert process.wait() == 0
    rng = random.Random(0)
    killed = 0
    for number in range(kills):
        out = tmp_path / f"{number}.h5"
        process = start(family, recipe, out)
        # Stratified, so that few kills still fall into every part of the run.
        written(process, out, steps * (number + rng.random()) / kills)
        time.sleep(rng.uniform(0, 0.01))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        if out.exists():
            assert out.read_bytes() == whole.read_bytes()
        assert start(family, recipe, out, "--resume").wait() == 0
        assert out.read_bytes() == whole.read_bytes()
        assert so.validate(out).ok
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"recipe.toml", "whole.h5", out.name}
        out.unlink()
    return killed


# test_boxes.py resumes a collection and an expert of continuous actions without a kill
@pytest.mark.parametrize(
    "family", ["navigation2d", pytest.param("point-robot-wind", marks=pytest.mark.long)]
)
def test_two_kills(family: str, tmp_path: Path) -> None:
    """One falls into the training of the expert, one into the episodes."""
    assert kill_and_resume(family, tmp_path, 2) >= 1


@pytest.mark.long
@pytest.mark.parametrize("family", ["navigation2d", "point-robot-wind"])
def test_thirty_kills(family: str, tmp_path: Path) -> None:
    assert kill_and_resume(family, tmp_path, 30) >= 20

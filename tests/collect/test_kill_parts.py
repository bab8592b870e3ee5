"""Killed with SIGKILL while it fills a directory, and resumed: the same parts, nothing stale."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

import sept_offline as so
from sept_offline.errors import DataError
from tests import processes

EPISODES, STEPS, SEED = 1600, 8, 5


def start(out: Path, *more: str) -> processes.Process:
    numbers = ["--episodes", str(EPISODES), "--max-steps", str(STEPS), "--seed", str(SEED)]
    arguments = ["collect", "navigation2d", "--behaviour", "random", *numbers, "-o", str(out)]
    return processes.start(*arguments, "--quiet", *more, stdout=None, stderr=None)


def finish(out: Path, resume: bool) -> None:
    given = {"behaviour": "random", "episodes": EPISODES, "max_steps": STEPS}
    so.collect_dataset("navigation2d", out, overrides=given, seed=SEED, resume=resume).close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_and_resume(tmp_path: Path, kills: int, *more: str) -> int:
    whole = tmp_path / "whole"
    finish(whole, resume=False)
    expected = contents(whole)
    rng = random.Random(0)
    killed = 0
    for number in range(kills):
        out = tmp_path / str(number)
        process = start(out, *more)
        # From the first part on, so that every kill finds a collection half made.
        parts = rng.randint(1, 5)
        while process.poll() is None and len(list(out.glob("part-*"))) < parts:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not (out / "_manifest.json").exists():
            killed += 1
            with pytest.raises(DataError, match="unfinished"):
                so.load_dataset(out)
        done = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
        finish(out, resume=True)
        assert contents(out) == expected
        kept = [name for name in done if (out / name).stat().st_mtime_ns == done[name]]
        assert kept, "complete shards are not made again"
    assert so.validate(whole).ok
    return killed


def test_two_kills(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, 2) >= 1


@pytest.mark.long
def test_twelve_kills_of_two_workers(tmp_path: Path) -> None:
    assert kill_and_resume(tmp_path, 12, "--workers", "2") >= 8


@pytest.mark.long
def test_kills_of_a_driver_with_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install sept-offline[ray]")
    assert kill_and_resume(tmp_path, 3, "--engine", "ray", "--workers", "2") >= 1

"""Killed at any moment and resumed, `fit` ends with the same bits as if it had never been."""

from __future__ import annotations

import csv
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sept_offline.cli import main
from tests.methods.check_method import weights
from tests.methods.mirrored import log_mirrored
from tests.methods.navigation import log_navigation
from tests.processes import Process, start

DRIVER = Path(__file__).parent / "drive_fit.py"
SETTINGS = (
    "verdict=false",
    "fallback=avg",
    "latent.updates=60",
    "latent.hidden=32",
    "probe.steps=40",
    "probe.use=always",
    "control.updates=200",
    "control.hidden=[32,32]",
)
STAGES = ("latent", "probe", "control", "fallback")
LONGEST = 120.0


class Runs:
    """One dataset, one unbroken run, and ways to start others like it."""

    def __init__(self, folder: Path, log: Callable[..., Path]) -> None:
        self.folder = folder
        self.data = log(folder / "logs.h5", episodes=120)
        self.whole = folder / "whole"
        assert self.here(self.whole) == 0
        with (self.whole / "metrics.csv").open(newline="") as handle:
            rows = [f"{row['stage']} {row['update']}" for row in csv.DictReader(handle)]
        self.epochs = list(dict.fromkeys(rows))

    def arguments(self, out: Path, *more: str) -> list[str]:
        chosen = [part for setting in SETTINGS for part in ("--set", setting)]
        return [str(self.data), "-o", str(out), "--seed", "4", "--quiet", *chosen, *more]

    def here(self, out: Path, *more: str) -> int:
        """The exit code of the command in this very process."""
        with pytest.raises(SystemExit) as end:
            main(["fit", *self.arguments(out, *more)])
        return int(end.value.code or 0)

    def start(self, out: Path, mark: str, *more: str, waits: bool = False) -> Process:
        """A process of its own, returned when it has written this mark, at which it may wait."""
        marks = self.folder / f"{out.name}.marks"
        marks.unlink(missing_ok=True)
        waiting = {"SEPT_TESTS_WAIT_AT": mark} if waits else {}
        arguments = self.arguments(out, *more)
        process = start(marks, *arguments, script=DRIVER, env=os.environ | waiting)
        until = time.monotonic() + LONGEST
        while process.poll() is None and time.monotonic() < until:
            if marks.exists() and mark in marks.read_text().splitlines():
                break
            time.sleep(0.0005)
        return process

    def kill(self, out: Path, mark: str, delay: float, *more: str) -> bool:
        """Kill a process `delay` seconds after its mark; whether that was in time."""
        process = self.start(out, mark, *more)
        time.sleep(delay)
        process.kill()
        process.communicate(timeout=LONGEST)
        return process.returncode == -signal.SIGKILL

    def resume(self, out: Path) -> None:
        """Resume to the end, and compare everything that is left with the unbroken run."""
        assert self.here(out, "--resume") == 0
        assert weights(out) == weights(self.whole)
        assert (out / "metrics.csv").read_bytes() == (self.whole / "metrics.csv").read_bytes()
        assert {p.name for p in out.iterdir()} == {p.name for p in self.whole.iterdir()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("kill"), log_navigation)


@pytest.fixture(scope="module")
def runs_in_a_box(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("box"), log_mirrored)


# test_methods.py stops and resumes each stage with continuous actions, without a kill
@pytest.mark.parametrize("kind", ["runs", pytest.param("runs_in_a_box", marks=pytest.mark.long)])
def test_killed_in_each_stage_and_while_checkpointing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    runs: Runs = request.getfixturevalue(kind)
    rng = random.Random(0)
    out = runs.folder / "each"
    more: list[str] = []
    for stage in STAGES:
        own = [epoch for epoch in runs.epochs if epoch.startswith(stage)]
        assert len(own) == 20
        assert runs.kill(out, own[8], rng.uniform(0, 0.004), *more), stage
        more = ["--resume"]
    assert runs.kill(out, f"checkpointing {own[15]}", 0.0, *more)
    runs.resume(out)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["runs", "runs_in_a_box"])
def test_killed_twenty_times(kind: str, request: pytest.FixtureRequest) -> None:
    runs: Runs = request.getfixturevalue(kind)
    rng = random.Random(0)
    killed = 0
    for number in range(20):
        # Stratified, so that every part of the run is hit; every other kill while checkpointing.
        epoch = runs.epochs[int(len(runs.epochs) * (number + rng.random()) / 20)]
        mark = f"checkpointing {epoch}" if number % 2 else epoch
        out = runs.folder / f"long-{number}"
        killed += runs.kill(out, mark, rng.uniform(0, 0.01))
        runs.resume(out)
    assert killed >= 18


def test_control_c_leaves_a_resumable_run_and_says_how(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    out = runs.folder / "interrupted"
    process = runs.start(out, runs.epochs[5], waits=True)
    try:
        assert runs.here(out, "--resume") == 2
        assert "Another process is fitting" in capsys.readouterr().err
    finally:
        process.send_signal(signal.SIGINT)
    said = "".join(process.communicate(timeout=LONGEST))
    assert process.returncode == 1
    assert "--resume" in said and "Traceback" not in said
    assert runs.here(out) == 2
    assert "an unfinished run" in capsys.readouterr().err
    runs.resume(out)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ([], "a finished run"),
        (["--resume", "--set", "control.batch_size=7"], "other settings"),
        (["--resume", "--seed", "5"], "another seed"),
        (["--resume", "--method", "totalvar"], "another method"),
    ],
)
def test_a_run_is_not_replaced_or_mixed_by_accident(
    runs: Runs, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = weights(runs.whole)
    assert runs.here(runs.whole, *more) == 2
    said = capsys.readouterr().err
    assert sentence in said and "--restart" in said
    assert weights(runs.whole) == before


def test_a_finished_run_has_nothing_to_resume(runs: Runs) -> None:
    before = weights(runs.whole)
    assert runs.here(runs.whole, "--resume") == 0
    assert weights(runs.whole) == before

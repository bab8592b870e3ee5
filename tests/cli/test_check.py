"""The check of a family on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import run

FAMILY = """
import gymnasium
import numpy as np

import sept_offline as so


class Slide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-100.0, 100.0, ({width},), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, amount=1.0):
        self.amount = amount

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal()
        return self.seen(), {{}}

    def step(self, action):
        self.place += self.amount if action else -self.amount
        return self.seen(), -abs(self.place), False, False, {{}}

    def seen(self):
        return np.array({seen}, dtype=np.float32)


def family(name):
    return so.Family(
        name=name,
        make=lambda hidden: Slide(**hidden),
        splits={{split: [{{"amount": 1.0}}, {{"amount": 2.0}}] for split in SPLITS}},
        train_steps=9,
        test_steps=9,
        probe_steps=2,
        latent_dim=1,
    )


SPLITS = ("train", "validation", "test")
slide = family("slide")
"""


def write(folder: Path, name: str, seen: str, width: int) -> str:
    (folder / f"{name}.py").write_text(FAMILY.format(seen=seen, width=width))
    return f"{name}:slide"


@pytest.mark.parametrize("name", ["navigation2d", "own"])
def test_a_sound_family(name: str, tmp_path: Path) -> None:
    spec = write(tmp_path, "sound_slide", "[self.place]", 1) if name == "own" else name
    done = run("check", spec, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"] and found["problem"] is None and found["warnings"] == []
    assert run("check", spec, cwd=tmp_path).stdout == f"{spec} is valid.\n"


def test_a_family_that_shows_its_secret(tmp_path: Path) -> None:
    spec = write(tmp_path, "telling_slide", "[self.place, self.amount]", 2)
    done = run("check", spec, "--json", cwd=tmp_path)
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert not found["ok"]
    assert "column 1 of the observation equals the hidden parameter 'amount'" in found["problem"]
    assert done.stderr == f"Error: {found['problem']}\n"


def test_a_warning_leaves_it_sound(tmp_path: Path) -> None:
    spec = write(tmp_path, "labelled_slide", "[self.place, -self.amount]", 2)
    done = run("check", spec, cwd=tmp_path)
    assert done.returncode == 0
    first, last = done.stdout.splitlines()
    assert first.startswith("Warning: Family 'slide': column 1 of the observation is constant")
    assert last == f"{spec} is valid."


@pytest.mark.parametrize("spec", ["navigaton2d", "nowhere_at_all:family"])
def test_no_such_family(spec: str, tmp_path: Path) -> None:
    done = run("check", spec, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["check"], ["collect", "-o", "x.h5"]])
def test_an_error_in_the_simulator_is_one_sentence(command: list[str], tmp_path: Path) -> None:
    spec = write(tmp_path, "failing_slide", "[1 / (self.place * 0)]", 1)
    done = run(command[0], spec, *command[1:], cwd=tmp_path)
    assert done.returncode == 2
    problem = "instance train-0: reset() raised ZeroDivisionError: float division by zero"
    assert done.stderr == f"Error: Family 'slide', {problem}\n"
    assert not (tmp_path / "x.h5").exists()

"""The merging of datasets on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from commands import run


def collect(folder: Path, name: str, seed: int) -> None:
    options = ("--behaviour", "random", "--episodes", 4, "--seed", seed, "-o", name)
    assert run("collect", "navigation2d", *options, cwd=folder).returncode == 0


def test_two_files_become_one(tmp_path: Path) -> None:
    collect(tmp_path, "a.h5", 0)
    collect(tmp_path, "b.parquet", 1)
    done = run("merge", "a.h5", "b.parquet", "-o", "c.h5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["path"], found["instances"], found["episodes"]) == ("c.h5", 2, 8)
    told = run("merge", "a.h5", "b.parquet", "-o", "d.h5", "--separate", cwd=tmp_path)
    assert told.stdout.startswith("d.h5: 8 episodes,") and "of 4 instances" in told.stdout


def test_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    collect(tmp_path, "a.h5", 0)
    for words in (["a.h5"], ["a.h5", "a.h5"], ["a.h5", "none.h5"]):
        done = run("merge", *words, "-o", "c.h5", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
        assert not (tmp_path / "c.h5").exists()

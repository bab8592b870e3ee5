"""The page of results shows the study that is kept beside it."""

from __future__ import annotations

from pathlib import Path

from tests import processes

ROOT = Path(__file__).parent.parent


def test_the_tables_are_those_of_the_kept_study() -> None:
    """`python benchmarks/pages.py` writes them."""
    done = processes.run("--check", script=ROOT / "benchmarks" / "pages.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr

"""The page of results shows the study that is kept beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_tables_are_those_of_the_kept_study() -> None:
    """`python benchmarks/pages.py` writes them."""
    command = [sys.executable, "benchmarks/pages.py", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0

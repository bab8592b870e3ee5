"""One small dataset and one quick run that the tests of the commands share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from commands import run

QUICK = """
verdict = false
[latent]
updates = 20
[probe]
steps = 5
[control]
updates = 20
hidden = [16]
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nav.h5, quick.toml and runs/nav."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "quick.toml").write_text(QUICK)
    collect = "collect navigation2d --behaviour random --episodes 60 --seed 1 -o nav.h5 --quiet"
    fit = "fit nav.h5 --config quick.toml -o runs/nav --quiet"
    for command in (collect, fit):
        done = run(*command.split(), cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder

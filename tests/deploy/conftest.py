"""An agent that was really fitted, with its logs."""

from __future__ import annotations

from pathlib import Path

import pytest

import sept_offline as so

QUICK = {
    "verdict": False,
    "latent": {"updates": 20},
    "probe": {"steps": 10},
    "control": {"updates": 50, "hidden": [64, 64]},
    "fallback": "avg",
}


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nav.h5, which holds more than 2,000 observations, and runs/nav."""
    folder = tmp_path_factory.mktemp("deploy")
    so.collect_dataset(
        "navigation2d",
        folder / "nav.h5",
        overrides={"behaviour": "random", "episodes": 50},
        seed=1,
    )
    so.fit(folder / "nav.h5", "sept", QUICK, seed=0, out=folder / "runs" / "nav")
    return folder

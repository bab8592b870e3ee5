"""The small agents of tests/agent, and one agent that was really fitted, with its logs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sept_offline as so

QUICK = {
    "verdict": False,
    "latent": {"updates": 60},
    "probe": {"steps": 20},
    "control": {"updates": 150, "hidden": [64, 64]},
    "fallback": "avg",
}


@pytest.fixture(scope="session")
def builders() -> ModuleType:
    """The module of small agents with random weights."""
    name = "sept_offline_test_agents"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "agent" / "builders.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nav.h5, which holds more than 10,000 observations, and runs/nav."""
    folder = tmp_path_factory.mktemp("deploy")
    so.collect_dataset(
        "navigation2d",
        folder / "nav.h5",
        overrides={"behaviour": "random", "episodes": 300},
        seed=1,
    )
    so.fit(folder / "nav.h5", "sept", QUICK, seed=0, out=folder / "runs" / "nav")
    return folder

"""A user's family, outside the library: logged, learned and evaluated, in Python and by command."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import sept_offline as so
from tests import processes
from tests.margins import Margins

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
QUICK: dict[str, Any] = {
    "verdict": False,
    "latent": {"updates": 300},
    "control": {
        "updates": 1500,
        "hidden": [64, 64],
        "gamma": 0.97,
        "learning_rate": 1e-3,
        "average_decay": 0.99,
    },
}


@pytest.fixture(scope="module")
def own() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cartpole_family", HERE / "cartpole_family.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_this_file() -> None:
    text = (ROOT / "docs" / "your-own-simulator.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert first and first[1] == (HERE / "cartpole_family.py").read_text(encoding="utf-8")


def test_one_episode_is_enough_where_one_policy_for_all_is_not(
    own: ModuleType, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    so.check_family(own.cartpole)
    with so.collect_dataset(
        own.cartpole, tmp_path / "cartpole.h5", overrides={"episodes": 800}
    ) as d:
        agents = {
            method: so.fit(d, method, QUICK, seed=training_seed) for method in ("sept", "avg")
        }
    returns = {
        method: so.evaluate(agent, own.cartpole, "test", episodes_per_instance=5).summary()
        for method, agent in agents.items()
    }
    sept, avg = (returns[method]["return"]["mean"] for method in ("sept", "avg"))
    # A cart that is pushed the wrong way round falls under whoever cannot tell: random lasts 20.
    margin("return", sept, above=60)
    margin("times as long", sept / avg, above=1.5)
    assert returns["sept"]["needs"] == []


def test_the_same_by_command(tmp_path: Path) -> None:
    shutil.copy(HERE / "cartpole_family.py", tmp_path / "cartpole_family.py")
    family = "cartpole_family:cartpole"
    logged = command(
        tmp_path,
        *("collect", family, "--policy", "cartpole_family:hesitant"),
        *("--episodes", 320, "--workers", 2, "-o", "cartpole.h5"),
    )
    assert (logged["instances"], logged["episodes"]) == (8, 320)
    with so.load_dataset(tmp_path / "cartpole.h5") as data:
        assert set(data.metadata.behaviours) == {"cartpole_family:hesitant"}
        chances = data.columns("propensities")["propensities"]
        assert {round(float(p), 3) for p in chances.flat} == {0.4, 0.5, 0.6}
    settings = [f"control.{k}={v}" for k, v in QUICK["control"].items() if k != "updates"]
    fit = ["fit", "cartpole.h5", "-o", "runs/cartpole", "--set", "latent.updates=50"]
    for setting in [*settings, "control.updates=100"]:
        fit += ["--set", setting]
    assert command(tmp_path, *fit)["needs"] == []
    found = command(tmp_path, "evaluate", "runs/cartpole", "--family", family)
    assert found["family"] == "cartpole" and found["episodes"] == 4
    assert found["solved"] is None and found["normalised"] is None
    # The agent knows which object its logs came from; only the user may have it imported.
    refused = processes.run("evaluate", "runs/cartpole", cwd=tmp_path)
    assert refused.returncode == 2 and "'cartpole_family:cartpole'" in refused.stderr
    assert "--family" in refused.stderr


def command(cwd: Path, *arguments: object) -> dict[str, Any]:
    """As a user does, with the family's file where the user is."""
    done = processes.run(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found

"""A user's family, outside the library: logged, learned and evaluated, in Python and by command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import sept_offline as so
from tests import processes
from tests.margins import Margins

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SETTINGS = ("hidden=[64,64]", "gamma=0.97", "learning_rate=1e-3", "average_decay=0.99")


def blocks() -> list[str]:
    """The page's code, block by block."""
    text = (ROOT / "docs" / "your-own-simulator.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_page_shows_this_file() -> None:
    assert blocks()[0] == (HERE / "cartpole_family.py").read_text(encoding="utf-8")


def test_one_episode_is_enough_where_one_policy_for_all_is_not(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    """By the page's own code, all of it: tests/test_docs.py leaves it to this test."""
    code = "\n".join(blocks())
    fit = "so.fit(data, method, settings, seed=0)"
    assert code.count(fit) == 1
    (tmp_path / "page.py").write_text(code.replace(fit, fit.replace("0", str(training_seed))))
    done = processes.run(script=tmp_path / "page.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    returns = {line[0]: float(line[1]) for line in lines if line[0] in ("sept", "avg")}
    # A cart that is pushed the wrong way round falls under whoever cannot tell: random lasts 20.
    margin("return", returns["sept"], above=60)
    margin("times as long", returns["sept"] / returns["avg"], above=1.5)


def test_the_same_by_command(tmp_path: Path) -> None:
    shutil.copy(HERE / "cartpole_family.py", tmp_path / "cartpole_family.py")
    family = "cartpole_family:cartpole"
    logged = command(
        tmp_path,
        *("collect", family, "--policy", "cartpole_family:hesitant"),
        *("--episodes", 32, "--workers", 2, "-o", "cartpole.h5"),
    )
    assert (logged["instances"], logged["episodes"]) == (8, 32)
    with so.load_dataset(tmp_path / "cartpole.h5") as data:
        assert set(data.metadata.behaviours) == {"cartpole_family:hesitant"}
        chances = data.columns("propensities")["propensities"]
        assert {round(float(p), 3) for p in chances.flat} == {0.4, 0.5, 0.6}
    fit = ["fit", "cartpole.h5", "-o", "runs/cartpole", "--no-verdict"]
    fit += ["--set", "latent.updates=5"]
    for setting in (*SETTINGS, "updates=5"):
        fit += ["--set", f"control.{setting}"]
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

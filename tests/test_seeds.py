"""A seed is a whole number of at least 0, Python's or NumPy's, in every function that takes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.errors import ConfigError
from tests.evaluation.navigation_agents import mode_one_agent
from tests.methods.check_method import SMALL
from tests.methods.two_step import log_two_step


@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "1", [1]])
def test_invalid_seeds_are_refused(seed: Any, tmp_path: Path) -> None:
    path, agent = log_two_step(tmp_path / "logs.h5", episodes=40), mode_one_agent()
    wrong = pytest.raises(ConfigError, match=r"The seed is .* a whole number of at least 0")
    with wrong:
        so.collect_dataset("navigation2d", tmp_path / "new.h5", seed=seed)
    with wrong:
        so.fit(path, seed=seed)
    with wrong:
        so.evaluate(agent, seed=seed)
    with wrong:
        so.judge(agent, path, seed=seed)
    with wrong:
        so.demarcate_dataset(path, seed=seed)
    with wrong:
        agent.begin(seed=seed)
    assert [file.name for file in tmp_path.iterdir()] == ["logs.h5"]


def test_numpy_integers_are_seeds(tmp_path: Path) -> None:
    logs = log_two_step(tmp_path / "logs.h5", episodes=40)
    options = {"overrides": {"behaviour": "random", "episodes": 4}}
    made: list[Any] = []
    for name, seed in (("plain", 3), ("numpy", np.int64(3))):
        with so.collect_dataset(
            "navigation2d", tmp_path / f"{name}.h5", seed=seed, **options
        ) as data:
            collected = data.content_hash
        agent = so.fit(logs, "avg", SMALL, seed, out=tmp_path / name)
        results = so.evaluate(mode_one_agent(), seed=seed)
        results.write(tmp_path / f"{name}.json")
        made.append((collected, agent.control.network.to_arrays(""), results.seed))
    assert made[0][0] == made[1][0] and made[0][2] == made[1][2]
    for key, weights in made[0][1].items():
        assert np.array_equal(weights, made[1][1][key])

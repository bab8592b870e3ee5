"""Methods on continuous actions: what is learned, what is refused, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.data import DatasetWriter
from sept_offline.errors import ConfigError, DataError
from sept_offline.settings import merge
from tests.margins import Margins
from tests.methods.mirrored import COST, cost_of, log_mirrored
from tests.methods.two_step import log_two_step

SMALL = {
    "verdict": False,
    "stack": 1,
    "control": {
        "updates": 300,
        "hidden": [32, 32],
        "learning_rate": 3e-3,
        "gamma": 0.9,
        "average_decay": 0.99,
    },
}


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_mirrored(tmp_path_factory.mktemp("mirrored") / "logs.h5")


def test_who_does_not_know_the_sign_cannot_end_at_once(
    mirrored: Path, training_seed: int, margin: Margins
) -> None:
    average = cost_of(so.fit(mirrored, "avg", SMALL, seed=training_seed))
    margin("avg's cost", average, above=0.7 * COST)


# two actors that know the sign learn it below; one actor learns with a box in test_methods.py
@pytest.mark.long
def test_who_knows_the_sign_ends_at_once(
    mirrored: Path, training_seed: int, margin: Margins
) -> None:
    longer = merge(SMALL, {"control": {"updates": 1500}})
    oracle = so.fit(mirrored, "oracle", longer, seed=training_seed)
    margin("oracle's cost", cost_of(oracle), below=0.15 * COST)


def test_permuted_rewards_teach_nothing(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    broken = log_mirrored(tmp_path / "broken.h5", permuted=True)
    oracle = so.fit(broken, "oracle", SMALL, seed=training_seed)
    margin("oracle's cost", cost_of(oracle), above=0.5 * COST)


def test_an_ensemble_of_actors_acts(mirrored: Path, margin: Margins, training_seed: int) -> None:
    config = merge(SMALL, {"control": {"members": 2, "updates": 500}})
    margin(
        "cost", cost_of(so.fit(mirrored, "oracle", config, seed=training_seed)), below=0.15 * COST
    )


def test_the_algorithm_must_fit_the_actions(mirrored: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'double_dqn', but the actions of .* are continuous"):
        so.fit(mirrored, "avg", merge(SMALL, {"control": {"algorithm": "double_dqn"}}))
    finite = log_two_step(tmp_path / "finite.h5", episodes=8)
    with pytest.raises(ConfigError, match=r"'rebrac', but the actions of .* are discrete"):
        so.fit(finite, "avg", merge(SMALL, {"control": {"algorithm": "rebrac"}}))


def test_a_component_that_never_varies_is_refused(tmp_path: Path) -> None:
    space = so.Box.of([-1.0, -1.0], [1.0, 1.0], ["left", "right"])
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path / "logs.h5", action_space=space, probe_steps=1) as writer:
        for number in range(4):
            actions = np.stack([rng.uniform(-1, 1, 3), np.full(3, 0.5)], axis=1)
            writer.append(
                instance=f"i{number % 2}",
                observations=rng.normal(size=(4, 1)),
                actions=actions,
                rewards=np.zeros(3),
                terminated=True,
                truncated=False,
            )
    with pytest.raises(DataError, match=r"component 'right' of the actions is always 0\.5"):
        so.fit(tmp_path / "logs.h5", "avg", SMALL)

"""What a method and its control are given of the logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.control import Replay
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.methods import METHODS
from sept_offline.methods.method import control_stage
from sept_offline.settings import ControlConfig
from tests.methods.two_step import log_two_step


def test_an_episode_that_was_cut_is_not_one_that_ended(tmp_path: Path) -> None:
    """What follows the last step of a cut episode is worth something, after an end nothing."""
    ended = (True, False, True, False)
    with DatasetWriter(tmp_path / "logs.h5", num_actions=2) as writer:
        for number, terminated in enumerate(ended):
            writer.append(
                instance=f"pump {number % 2}",
                observations=np.full((4, 1), number, dtype=np.float32),
                actions=np.array([0, 1, 0]),
                rewards=np.zeros(3),
                terminated=terminated,
                truncated=not terminated,
            )
    given: dict[str, Any] = {}

    class Watched(Replay):
        def __init__(self, *columns: Any, **contexts: Any) -> None:
            given["terminals"] = np.asarray(columns[4])
            super().__init__(*columns, **contexts)

    with so.load_dataset(tmp_path / "logs.h5") as data:
        order = data.steps().observations[data.steps().row, 0].astype(int)
        next(control_stage(data, ControlConfig(hidden=(4,)), seed=0, replay=Watched))
    last = np.tile([False, False, True], len(ended))
    assert np.array_equal(given["terminals"].astype(bool), last & np.array(ended)[order])


class Given(Exception):
    """Raised in place of training."""


@pytest.mark.parametrize("name", sorted(METHODS))
def test_hidden_parameters_are_given_to_the_oracle_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stages(data: Dataset, *_: Any) -> Any:
        raise Given(data.hidden)

    monkeypatch.setitem(METHODS, name, replace(METHODS[name], stages=stages))
    with so.load_dataset(log_two_step(tmp_path / "logs.h5", episodes=8)) as data:
        assert data.hidden is not None
        with pytest.raises(Given) as given:
            so.fitter(data, name).begin()
        assert (given.value.args[0] is not None) == (name == "oracle")

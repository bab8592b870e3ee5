"""What control is given of the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.control import ControlConfig, Replay
from sept_offline.data import DatasetWriter
from sept_offline.methods.shared import control_stage


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

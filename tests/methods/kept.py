"""Finished stages, kept in memory for other fits of the same logs with the same settings and seed.

`check_resumes` shows that a restored stage ends with the same bits as one that was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.methods import Fitter
from sept_offline.methods.run import RunDirectory
from sept_offline.stage import Stage, StageState


class Kept(RunDirectory):
    """A run without files: it restores the stages that it names, once one fit has trained them."""

    def __init__(self, *names: str) -> None:
        super().__init__("nowhere")
        self.states: dict[str, StageState | None] = dict.fromkeys(names)

    def restore(self, number: int, stage: Stage) -> None:
        """Its end, if it is kept."""
        state = self.states.get(stage.name)
        if state is not None:
            stage.restore(state)

    def save(self, number: int, stage: Stage, force: bool) -> None:
        """Keep its end."""
        if stage.name in self.states and stage.done >= stage.total:
            self.states[stage.name] = stage.state()

    def log(self, stage: str, done: int, metrics: dict[str, float]) -> None:
        """Nothing is written."""

    def finish(self, agent: Agent) -> None:
        """Nothing is written."""


def fit_from(kept: Kept, path: Path, method: str, settings: Mapping[str, Any], seed: int) -> Agent:
    """`so.fit`, without training again what is kept."""
    with so.load_dataset(path) as data:
        work = Fitter(data, method, settings, seed, kept)
        for _ in work:
            pass
    assert work.agent is not None
    return work.agent

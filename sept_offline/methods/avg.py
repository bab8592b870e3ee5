"""Avg: one policy π(a | s) on the logs of all instances, as if they were one system."""

from __future__ import annotations

from collections.abc import Generator

from sept_offline.agent import Agent, NoContext
from sept_offline.data import Dataset
from sept_offline.methods.method import Method
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    control = yield from control_stage(data, config.control, seed)
    return Agent("avg", data.metadata.family or "", spaces_of(data), NoContext(), control)


AVG = Method("avg", _stages, "One policy for all instances: the lower bound.", title="Avg")

"""History: π(a | the last k observations and actions); not in the paper, but tried first."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent, HistoryContext
from sept_offline.agent.networks import Array, Standardiser
from sept_offline.data import Dataset
from sept_offline.data.records import Steps
from sept_offline.methods.method import Method
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage


def histories(steps: Steps, context: HistoryContext, space: ActionSpace) -> Array:
    """The history features at each logged observation, `[N+E, context.dim]`."""
    rows = len(steps.observations)
    time = np.zeros(rows, dtype=np.int64)
    time[steps.row + 1] = steps.time + 1
    actions = np.zeros((rows, context.action_width), dtype=np.float32)
    actions[steps.row] = space.encode(steps.actions)
    lag = np.arange(1, context.steps + 1)
    seen = time[:, None] >= lag
    before = np.where(seen, np.arange(rows)[:, None] - lag, 0)
    return context.features(steps.observations[before], actions[before], seen)


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    steps = data.steps()
    scaler = Standardiser.fit(steps.observations)
    spaces = spaces_of(data)
    context = HistoryContext(config.history_steps, spaces.actions.width, scaler)
    beside = histories(steps, context, spaces.actions)
    control = yield from control_stage(data, config.control, seed, beside=beside)
    return Agent("history", data.metadata.family or "", spaces, context, control)


HISTORY = Method(
    "history",
    _stages,
    "One policy on the last observations and actions.",
    stacks=False,
    title="History",
)

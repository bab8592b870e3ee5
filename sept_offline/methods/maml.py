"""MAML: a value network that one gradient step on the first T_p steps adapts to the instance."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.agent import AdaptedContext, Agent
from sept_offline.control import Batch, Replay
from sept_offline.control.meta import MetaLearner, Tasks, check_single
from sept_offline.control.rewards import common_form, reward_form
from sept_offline.data import Dataset
from sept_offline.errors import DataError
from sept_offline.methods.method import Method
from sept_offline.methods.shared import centre_rewards, control_stage, spaces_of
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage


class TaskReplay(Replay):
    """Minibatches of tasks: an instance's first steps in one episode, and others of its steps.

    time `[N]`: 0 at an episode's first step; steps of an episode are consecutive. A minibatch is
    `tasks` shares of T + Q rows: the first T steps of an episode, then Q transitions drawn from all
    of the instance's but these; instances are drawn uniformly. There are no contexts.
    """

    def __init__(
        self, *columns: Any, time: NDArray[np.int64], steps: int, tasks: int, **contexts: Any
    ) -> None:
        super().__init__(*columns, **contexts)
        self._steps, self._tasks = steps, tasks
        # laid out instance after instance, so that a task's transitions are one stretch
        self._order = np.argsort(self._instance, kind="stable")
        present, self._first, self._count = np.unique(
            self._instance[self._order], return_index=True, return_counts=True
        )
        few = np.flatnonzero(self._count <= steps)
        if len(few):
            raise DataError(
                f"Instance number {present[few[0]]} has {self._count[few[0]]} transitions, but "
                f"'maml' adapts with {steps} and needs others to evaluate it; log more episodes."
            )
        self._starts = np.flatnonzero(time[self._order] == 0)
        self._first_start = np.searchsorted(self._starts, self._first)
        ends = np.searchsorted(self._starts, self._first + self._count)
        self._start_count = ends - self._first_start

    def minibatches(
        self, first: int, count: int, batch_size: int, rng: np.random.Generator
    ) -> list[Batch]:
        """See Replay; `batch_size` is that of all tasks' queries together."""
        index = self.draw_tasks(count * self._tasks, max(1, batch_size // self._tasks), rng)
        return list(self.gather(torch.from_numpy(index.reshape(-1)), None).split(count))

    def draw_tasks(self, tasks: int, queries: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Transitions `[tasks, T + queries]`."""
        which = rng.integers(0, len(self._first), size=tasks)
        episode = rng.integers(0, self._start_count[which])
        start = self._starts[self._first_start[which] + episode]
        support = start[:, None] + np.arange(self._steps)
        # drawn as if the support were not there, then carried over it
        first, others = self._first[which][:, None], (self._count[which] - self._steps)[:, None]
        place = first + rng.integers(0, others, size=(tasks, queries))
        query = np.where(place >= start[:, None], place + self._steps, place)
        drawn: NDArray[np.int64] = self._order[np.concatenate([support, query], axis=1)]
        return drawn


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    check_single(config.control)
    maml, steps = config.maml, config.probe_steps
    settings = centre_rewards(data, common_form(data.steps().rewards, config.control))
    control = yield from control_stage(
        data,
        settings,
        seed,
        replay=partial(TaskReplay, time=data.steps().time, steps=steps, tasks=maml.tasks),
        learner=partial(MetaLearner, tasks=Tasks(maml.tasks, steps, maml.inner_rate)),
    )
    return Agent(
        "maml",
        data.metadata.family or "",
        spaces_of(data),
        AdaptedContext(steps, maml.inner_rate, reward_form(settings)),
        control,
    )


MAML = Method(
    "maml",
    _stages,
    "One gradient step on the first steps and their rewards: MAML.",
    segments=True,
    judged=False,
    finite=True,
    double_dqn=True,
    title="MAML",
)

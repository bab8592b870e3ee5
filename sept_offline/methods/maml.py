"""MAML: a value network that one gradient step on the first T_p steps adapts to the instance.

It is first-order MAML: d3rlpy's update, at parameters stepped for each task.

A task is one instance, met by the first T steps of one of its episodes, the *support*. The inner
step on them is taken per task, the outer gradient, of other transitions of the instance, the
*query*, at the stepped parameters, and is applied to the parameters before the step.

A gradient on T transitions changes a layer's weights by a sum of T outer products, so the stepped
layer is applied as

    h (W + ΔW)ᵀ = h Wᵀ − rate · (h Hᵀ) D

with H `[T, in]` the layer's inputs and D `[T, out]` the loss's slopes at its outputs in the
support: no task's weights are ever laid out. As the second term is held constant, automatic
differentiation with respect to W gives the gradient at W + ΔW, which is all that first order means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sept_offline.agent import AdaptedContext
from sept_offline.control import Batch, Learner, Replay
from sept_offline.control.d3rlpy import Critic, QNetworks
from sept_offline.control.learner import Member
from sept_offline.control.rewards import common_form, reward_form
from sept_offline.data import Dataset
from sept_offline.errors import ConfigError, DataError
from sept_offline.methods.method import Method, Stages, agent_of, centre_rewards, control_stage
from sept_offline.settings import ControlConfig, FitConfig

Step = list[tuple[torch.Tensor, torch.Tensor]]
"""Per layer: inputs `[M, T, in]` and `rate` times gradients `[M, T, out]`, for M tasks."""


@dataclass(frozen=True)
class Tasks:
    """The tasks of an update: M of them, each with T transitions and one step at this rate."""

    count: int
    steps: int
    rate: float


class SteppedCritic(Critic):
    """A critic whose values are those after each task's step, while there is one.

    Its rows are then M equal shares, one a task, in order.
    """

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__(layers)
        self._linear = [part for part in layers if isinstance(part, nn.Linear)]
        self.step: Step | None = None

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, num_actions]` of `x[n, input_dim]`."""
        if self.step is None:
            return super().values(x)
        tasks = len(self.step[0][0])
        value = x.view(tasks, -1, x.shape[1])
        for number, (layer, (seen, slope)) in enumerate(zip(self._linear, self.step, strict=True)):
            # a bias is a weight on an input that is always 1
            match = value @ seen.transpose(1, 2) + 1
            value = layer(value) - match @ slope
            if number < len(self._linear) - 1:
                value = value.relu()
        return value.reshape(len(x), -1)

    @torch.no_grad()
    def adapt(self, support: Batch, tasks: int, gamma: float, rate: float) -> None:
        """Take each task's step; support's rows are M·T, task after task.

        The loss is the mean Huber error against r + γ · (1 − done) · max_a Q(s′, a), by this very
        network: the only inputs available in the test episode.
        """
        seen = [support.inputs]
        for layer in self._linear[:-1]:
            seen.append(layer(seen[-1]).relu())
        values = self._linear[-1](seen[-1])
        best = super().values(support.next_inputs).max(dim=1).values
        target = support.rewards + gamma * best * (1 - support.terminals)
        chosen = support.actions.view(-1, 1)
        error = values.gather(1, chosen) - target.view(-1, 1)
        steps = len(support.actions) // tasks
        slope = torch.zeros_like(values).scatter_(1, chosen, error.clamp(-1, 1) / steps)
        parts: Step = []
        for layer, below in zip(reversed(self._linear), reversed(seen), strict=True):
            parts.append((below.view(tasks, steps, -1), rate * slope.view(tasks, steps, -1)))
            slope = (slope @ layer.weight) * (below > 0)
        self.step = parts[::-1]


class MetaMember(Member):
    """One network that learns to be stepped; a batch's rows are M shares of T + Q each."""

    def __init__(self, config: ControlConfig, networks: QNetworks, tasks: Tasks) -> None:
        super().__init__(config, networks)
        self._tasks = tasks
        self.online, self.behind = networks.critics

    def update(self, batch: Batch) -> float:
        """Step network and target for each task, then one update of d3rlpy's on the queries."""
        tasks = self._tasks
        support, query = divide(batch, tasks.count, tasks.steps)
        for critic in (self.online, self.behind):
            critic.adapt(support, tasks.count, self.config.gamma, tasks.rate)
        loss = super().update(query)
        self.online.step = self.behind.step = None
        return loss


class MetaLearner(Learner):
    """A single value network that learns to be adapted by one step on a task's support."""

    def __init__(
        self, config: ControlConfig, input_dim: int, width: int, seed: int, *, tasks: Tasks
    ) -> None:
        check_single(config)
        self._tasks = tasks
        super().__init__(config, input_dim, width, seed)

    def _member(self, seed: int) -> Member:
        networks = QNetworks(self.config, self.input_dim, self.width, seed, SteppedCritic)
        return MetaMember(self.config, networks, self._tasks)


def check_single(config: ControlConfig) -> None:
    """Refuse what the step by hand does not know."""
    wanted = {"algorithm": "double_dqn", "layer_norm": False, "critics": 1, "members": 1}
    settings = replace(config, critics=config.num_critics)
    for name, value in wanted.items():
        if getattr(settings, name) != value:
            raise ConfigError(
                f"control.{name} is {getattr(config, name)!r}, but 'maml' adapts a single plain "
                f"network; set it to {value!r}."
            )


def divide(batch: Batch, tasks: int, steps: int) -> tuple[Batch, Batch]:
    """The supports' rows and the queries', of `tasks` shares whose first `steps` are support."""
    columns = (batch.inputs, batch.actions, batch.rewards, batch.next_inputs, batch.terminals)
    shares = [column.view(tasks, -1, *column.shape[1:]) for column in columns]
    support = Batch(*(share[:, :steps].flatten(0, 1) for share in shares))
    return support, Batch(*(share[:, steps:].flatten(0, 1) for share in shares))


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


def _stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
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
    context = AdaptedContext(steps, maml.inner_rate, reward_form(settings))
    return agent_of("maml", data, context, control)


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

"""First-order MAML of a value network: d3rlpy's update, at parameters stepped for each task.

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

import torch
from torch import nn

from sept_offline.control.d3rlpy import Critic, QNetworks
from sept_offline.control.learner import Learner, Member
from sept_offline.control.replay import Batch
from sept_offline.errors import ConfigError
from sept_offline.settings import ControlConfig

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
    chosen = replace(config, critics=config.num_critics)
    for name, value in wanted.items():
        if getattr(chosen, name) != value:
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

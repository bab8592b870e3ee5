"""Gradient updates: learning rates, checks, and a stage that repeats one update."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sept_offline.errors import TrainingError
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.snapshots import load_training, save_training


def annealed(start: float, end: float, done: int, total: int) -> float:
    """The learning rate at update `done` of `total`, on half a cosine from `start` to `end`."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(done / max(total, 1), 1.0)))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter group this learning rate, times its own factor if it has one."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def descend(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float | None = None) -> None:
    """One step down the gradient of `loss`, at this learning rate if one is given."""
    if rate is not None:
        set_rate(optimiser, rate)
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    optimiser.step()


def check_finite(values: Mapping[str, float], stage: str, update: int) -> None:
    """Stop at the first loss that is not a number, with what to look at."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"The {name} of the {stage} stage is {value} by update {update}; likely causes are "
                f"a learning rate that is too high (lower {stage}.learning_rate) "
                "or observations that are not finite (see `sept-offline validate`)."
            )


class UpdateStage(ABC):
    """Base of stages that repeat one update, with one optimiser and one generator; see Stage.

    Its constructor is called first; optimiser and rng are there before the first update.
    """

    optimiser: torch.optim.Optimizer
    rng: torch.Generator

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0

    @abstractmethod
    def _modules(self) -> dict[str, nn.Module]:
        """All that learns, by the names it has in a snapshot."""

    @abstractmethod
    def _update(self) -> Tensor:
        """One update; what is watched of it, [m]."""

    def _repeat(
        self, updates: int, watched: int, dtype: torch.dtype = torch.float32
    ) -> list[float]:
        """Up to `updates` more, never beyond the total; means of the m numbers that are watched.

        dtype: what they are added up in.
        """
        count = min(updates, self.total - self.done)
        sums = torch.zeros(watched, dtype=dtype)
        with one_thread():
            for _ in range(count):
                sums += self._update()
                self.done += 1
        means: list[float] = (sums / max(count, 1)).tolist()
        return means

    def state(self) -> StageState:
        """See Stage."""
        state = StageState(values={"done": self.done})
        save_training(state, self._modules(), self.optimiser, self.rng)
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        load_training(state, self._modules(), self.optimiser, self.rng)
        self.done = int(state.values["done"])

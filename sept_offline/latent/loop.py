"""A training stage that repeats one update: counted, averaged, and whole in a snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sept_offline.latent.training import load_training, save_training
from sept_offline.stage import StageState
from sept_offline.threads import one_thread


class Loop(ABC):
    """Base of stages with one optimiser and one generator; see Stage.

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

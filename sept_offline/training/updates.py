"""Gradient updates: learning rates, checks, snapshots, and a stage that repeats one update."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sept_offline.errors import TrainingError
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.adam import Adam


def annealed(start: float, end: float, done: int, total: int) -> float:
    """The learning rate at update `done` of `total`, on half a cosine from `start` to `end`."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(done / max(total, 1), 1.0)))


def descend(optimiser: Adam, loss: Tensor, rate: float | None = None) -> None:
    """One step down the gradient of `loss`, at this learning rate if one is given."""
    if rate is not None:
        optimiser.set_rate(rate)
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    optimiser.step()


def check_finite(values: Mapping[str, float], stage: str, update: int) -> None:
    """Stop at the first loss that is not a number, with what to look at."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"The {name} of the {stage} stage is {value} at update {update}; likely causes are "
                f"a learning rate that is too high (lower {stage}.learning_rate) "
                "or observations that are not finite (see `sept-offline validate`)."
            )


def save_module(state: StageState, prefix: str, module: nn.Module) -> None:
    """Copy a module's weights into a snapshot."""
    for name, tensor in module.state_dict().items():
        state.tensors[f"{prefix}.{name}"] = tensor.detach().clone()


def load_module(state: StageState, prefix: str, module: nn.Module) -> None:
    """Copy a module's weights out of a snapshot."""
    module.load_state_dict(
        {name: state.tensors[f"{prefix}.{name}"] for name in module.state_dict()}
    )


def save_optimiser(state: StageState, prefix: str, optimiser: Adam) -> None:
    """Copy an optimiser's moments and counts into a snapshot."""
    for name, value in optimiser.state().items():
        state.tensors[f"{prefix}.{name}"] = value.clone()


def load_optimiser(state: StageState, prefix: str, optimiser: Adam) -> None:
    """Copy an optimiser's moments and counts out of a snapshot."""
    start = f"{prefix}."
    optimiser.restore(
        {n.removeprefix(start): value for n, value in state.tensors.items() if n.startswith(start)}
    )


class UpdateStage(ABC):
    """Base of stages that repeat one update of `modules`; see Stage.

    watched: names of the means that `advance` reports; rates: first and last learning rate;
    minibatches: how often an update calls `_update`.
    """

    watched: tuple[str, ...]
    minibatches = 1

    def __init__(self, name: str, total: int, rates: tuple[float, float]) -> None:
        self.name, self.total, self.done = name, total, 0
        self._rates = rates

    def optimise(
        self,
        modules: Mapping[str, nn.Module],
        rng: torch.Generator,
        factors: Mapping[str, float] | None = None,
    ) -> None:
        """Set what learns, by the names that snapshots use, and the generator of all draws.

        factors: on the learning rates of some modules.
        """
        self.modules, self.rng = dict(modules), rng
        groups = [
            (module.parameters(), (factors or {}).get(name, 1.0))
            for name, module in modules.items()
        ]
        self.optimiser = Adam.of_groups(groups, self._rates[0])

    @abstractmethod
    def _update(self) -> Tensor:
        """One update; the `watched` numbers, [m]."""

    def _descend(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`, at the rate of this update."""
        descend(self.optimiser, loss, annealed(*self._rates, self.done, self.total))

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are means over these updates."""
        metrics = self._repeat(updates)
        check_finite(metrics, self.name, self.done)
        return metrics

    def _repeat(
        self,
        updates: int,
        watched: tuple[str, ...] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> dict[str, float]:
        """Up to `updates` more, never beyond the total; means of the numbers that are watched.

        dtype: what they are added up in.
        """
        names = watched or self.watched
        count = min(updates, self.total - self.done)
        sums = torch.zeros(len(names), dtype=dtype)
        with one_thread():
            for _ in range(count):
                for _ in range(self.minibatches):
                    sums += self._update()
                self.done += 1
        means = sums / max(count * self.minibatches, 1)
        return dict(zip(names, means.tolist(), strict=True))

    def state(self) -> StageState:
        """See Stage."""
        state = StageState(values={"done": self.done})
        for name, module in self.modules.items():
            save_module(state, name, module)
        save_optimiser(state, "optimiser", self.optimiser)
        state.tensors["rng"] = self.rng.get_state()
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        for name, module in self.modules.items():
            load_module(state, name, module)
        load_optimiser(state, "optimiser", self.optimiser)
        self.rng.set_state(state.tensors["rng"])
        self.done = int(state.values["done"])

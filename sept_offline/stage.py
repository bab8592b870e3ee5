"""The interface of every training stage: advance, save, restore, finish."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")


@dataclass
class StageState:
    """All a stage needs to go on as if it had never stopped: tensors, and JSON-ready values."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class Stage(Protocol):
    """One training loop, cut into pieces so that progress, checkpoints and files stay above it."""

    name: str
    total: int
    """Updates in all."""
    done: int
    """Updates made so far."""

    def advance(self, updates: int) -> dict[str, float]:
        """Make up to `updates` more updates (never beyond `total`) and return metrics."""
        ...

    def state(self) -> StageState:
        """A snapshot; restoring it and advancing gives the bits of an unbroken run."""
        ...

    def restore(self, state: StageState) -> None:
        """Continue from a snapshot."""
        ...


def train_all(stages: Generator[Stage, None, Result]) -> Result:
    """Train each stage to its end; returns what the generator returns."""
    while True:
        try:
            stage = next(stages)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        stage.advance(stage.total)

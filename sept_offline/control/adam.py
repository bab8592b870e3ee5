"""Adam over one flat tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

ALIGNMENT = 16
"""Floats a parameter's start is aligned to, 64 bytes: kernels, and so bits, may depend on it."""


def flatten(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """Move `parameters` into one flat tensor, which is returned, and make them views into it."""
    offsets, size = [], 0
    for parameter in parameters:
        offsets.append(size)
        size += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
    flat = torch.zeros(size)
    for offset, parameter in zip(offsets, parameters, strict=True):
        view = flat[offset : offset + parameter.numel()].view_as(parameter)
        view.copy_(parameter.data)
        parameter.data = view
    return flat


def part_of(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """The part of `flat` at the position of `parameter` in its own flat tensor."""
    offset = parameter.data.storage_offset()
    return flat[offset : offset + parameter.numel()].view_as(parameter)


class FlatAdam:
    """Adam as one fused call, its parameters and moments in flat tensors.

    torch's own optimiser calls the same kernel, but spends as long again in Python around it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.online = flatten(self.parameters)
        self.first = torch.zeros_like(self.online)
        self.second = torch.zeros_like(self.online)
        self.steps = torch.zeros(())
        self._weights = [parameter.detach() for parameter in self.parameters]
        self._first = [part_of(self.first, parameter) for parameter in self.parameters]
        self._second = [part_of(self.second, parameter) for parameter in self.parameters]
        self._counts = [self.steps] * len(self.parameters)
        self._learning_rate = learning_rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, so that the backward pass assigns new ones instead of adding."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """One step along the gradients."""
        gradients = [parameter.grad for parameter in self.parameters]
        if any(gradient is None for gradient in gradients):
            raise RuntimeError("A parameter has no gradient: the loss does not depend on it.")
        self.steps += 1
        torch._fused_adam_(
            self._weights,
            gradients,  # type: ignore[arg-type]  # none is None
            self._first,
            self._second,
            [],
            self._counts,
            lr=self._learning_rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights, moments and the number of steps."""
        names = ("online", "first", "second", "steps")
        return {name: getattr(self, name) for name in names}

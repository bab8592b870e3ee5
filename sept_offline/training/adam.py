"""Adam, as torch's fused kernel computes it: for any parameters, and over one flat tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

ALIGNMENT = 16
"""Floats a parameter's start is aligned to, 64 bytes: kernels, and so bits, may depend on it."""


@dataclass
class Moments:
    """What Adam remembers of a parameter, from its first gradient on."""

    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


@dataclass
class Group:
    """Parameters of one learning rate: that of an update times `factor`."""

    parameters: list[Tensor]
    rate: float
    factor: float = 1.0
    moments: dict[int, Moments] = field(default_factory=dict)
    """By the place of a parameter among `parameters`."""


class Adam:
    """The bits of `torch.optim.Adam(fused=True)`, which calls the same kernel.

    torch's own optimiser takes several times as long as the kernel in the Python around it, and its
    first step loads torch's compiler, which takes two seconds.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        self.groups = [Group(list(parameters), rate)]

    @classmethod
    def of_groups(cls, groups: Iterable[tuple[Iterable[Tensor], float]], rate: float) -> Adam:
        """Several groups: the parameters of each and the factor on its rate."""
        made = cls((), rate)
        made.groups = [Group(list(parameters), rate * f, f) for parameters, f in groups]
        return made

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step; a group multiplies it by its factor."""
        for group in self.groups:
            group.rate = rate * group.factor

    def zero_grad(self) -> None:
        """Drop the gradients, so that the backward pass assigns new ones instead of adding."""
        for group in self.groups:
            for parameter in group.parameters:
                parameter.grad = None

    def step(self) -> None:
        """One step along the gradients; a parameter that has none stays as it is."""
        with torch.no_grad():
            for group in self.groups:
                _step(group)

    def state(self) -> dict[str, Tensor]:
        """Moments and counts, by the number of the parameter over all groups."""
        return {
            f"{first + place}.{name}": value
            for first, group in self._numbered()
            for place, moments in group.moments.items()
            for name, value in vars(moments).items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from copies of what `state` gave."""
        for first, group in self._numbered():
            group.moments = {}
            for place in range(len(group.parameters)):
                if f"{first + place}.step" in state:
                    names = Moments.__dataclass_fields__
                    moments = {name: state[f"{first + place}.{name}"].clone() for name in names}
                    group.moments[place] = Moments(**moments)

    def _numbered(self) -> Iterable[tuple[int, Group]]:
        """Each group with the number of its first parameter."""
        first = 0
        for group in self.groups:
            yield first, group
            first += len(group.parameters)


def _step(group: Group) -> None:
    parameters, gradients, moments = [], [], []
    for place, parameter in enumerate(group.parameters):
        if parameter.grad is None:
            continue
        if place not in group.moments:
            first, second = torch.zeros_like(parameter), torch.zeros_like(parameter)
            group.moments[place] = Moments(torch.zeros(()), first, second)
        parameters.append(parameter)
        gradients.append(parameter.grad)
        moments.append(group.moments[place])
    if not parameters:
        return
    steps = [moment.step for moment in moments]
    torch._foreach_add_(steps, 1)
    means = [moment.exp_avg for moment in moments]
    squares = [moment.exp_avg_sq for moment in moments]
    _descend(parameters, gradients, means, squares, steps, group.rate)


def _descend(
    parameters: list[Tensor],
    gradients: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    steps: list[Tensor],
    rate: float,
) -> None:
    """One step of torch's kernel; `steps` count it already."""
    torch._fused_adam_(
        parameters,
        gradients,
        means,
        squares,
        [],
        steps,
        lr=rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
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


def part_of(flat: Tensor, parameter: Tensor) -> Tensor:
    """The part of `flat` that lies where `parameter` lies in its own flat tensor."""
    offset = parameter.data.storage_offset()
    return flat[offset : offset + parameter.numel()].view_as(parameter)


class FlatAdam:
    """The same with parameters and moments in flat tensors, all of which have a gradient."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        self.parameters = list(parameters)
        self.online = flatten(self.parameters)
        self.first = torch.zeros_like(self.online)
        self.second = torch.zeros_like(self.online)
        self.steps = torch.zeros(())
        self._weights = [parameter.detach() for parameter in self.parameters]
        self._first = [part_of(self.first, parameter) for parameter in self.parameters]
        self._second = [part_of(self.second, parameter) for parameter in self.parameters]
        self._counts = [self.steps] * len(self.parameters)
        self.rate = rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, so that the backward pass assigns new ones instead of adding."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """One step along the gradients."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if len(gradients) < len(self.parameters):
            raise RuntimeError("A parameter has no gradient: the loss does not depend on it.")
        self.steps += 1
        _descend(self._weights, gradients, self._first, self._second, self._counts, self.rate)

    def tensors(self) -> dict[str, Tensor]:
        """Weights, moments and the number of steps."""
        names = ("online", "first", "second", "steps")
        return {name: getattr(self, name) for name in names}

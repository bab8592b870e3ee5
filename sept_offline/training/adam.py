"""Adam, as torch's fused kernel computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


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
                    found = {name: state[f"{first + place}.{name}"].clone() for name in names}
                    group.moments[place] = Moments(**found)

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
    steps = [one.step for one in moments]
    torch._foreach_add_(steps, 1)
    torch._fused_adam_(
        parameters,
        gradients,
        [one.exp_avg for one in moments],
        [one.exp_avg_sq for one in moments],
        [],
        steps,
        lr=group.rate,
        beta1=0.9,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )

"""Value networks of a finite set of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from sept_offline.agent.networks import MLP
from sept_offline.control.d3rlpy.adam import FlatAdam, flatten
from sept_offline.control.d3rlpy.algorithms import create, descend, minibatch
from sept_offline.control.d3rlpy.networks import from_numpy, layers_of, to_numpy
from sept_offline.control.replay import Batch
from sept_offline.settings import ControlConfig


class Critic:
    """Stands where d3rlpy keeps its forwarder of an ensemble, when there is one critic.

    The same values, targets and Huber error; only the stacking and the one-hot masks, which an
    ensemble needs and a single critic pays for, are left out.
    """

    def __init__(self, layers: nn.Sequential) -> None:
        self.layers = layers
        self.limits: tuple[float, float] | None = None
        """Lowest and highest value that a target may have, if anything limits it."""

    def values(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, num_actions]` of `x[n, input_dim]`."""
        values: torch.Tensor = self.layers(x)
        return values

    def compute_expected_q(self, x: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """The same, by d3rlpy's name."""
        return self.values(x)

    def compute_target(
        self, x: torch.Tensor, action: torch.Tensor, reduction: str = "min"
    ) -> torch.Tensor:
        """The values `[n, 1]` of the actions `[n]`."""
        chosen = self.values(x).gather(1, action.view(-1, 1))
        return chosen if self.limits is None else chosen.clamp(*self.limits)

    def compute_error(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        target: torch.Tensor,
        terminals: torch.Tensor,
        gamma: float,
    ) -> torch.Tensor:
        """The mean Huber error of the values of `actions[n, 1]`; all others are `[n, 1]` too."""
        value = self.values(observations).gather(1, actions)
        return nn.functional.smooth_l1_loss(value, rewards + gamma * target * (1 - terminals))


class QNetworks:
    """The value networks of a finite set of actions, with their target and optimiser."""

    def __init__(
        self,
        config: ControlConfig,
        input_dim: int,
        width: int,
        seed: int,
        critic: Callable[[nn.Sequential], Critic] = Critic,
    ) -> None:
        self.impl = impl = create(config, input_dim, width, seed)
        self._optimiser = impl.modules.optim
        self._adam: FlatAdam = self._optimiser.optim
        self.deployed = self._adam.online
        """The weights whose average is deployed: all that the optimiser changes."""
        self._target = flatten(list(impl.modules.targ_q_funcs.parameters()))
        # the value networks come first in the flat tensor; BCQ's imitator follows, without a target
        self._online = self._adam.online[: self._target.numel()]
        self._rate = 1.0 if config.algorithm == "nfq" else config.target_rate
        if config.num_critics == 1:
            impl._q_func_forwarder = critic(layers_of(impl.modules.q_funcs[0]))
            impl._targ_q_func_forwarder = critic(layers_of(impl.modules.targ_q_funcs[0]))

    @property
    def critics(self) -> tuple[Any, Any]:
        """The critic and the target's."""
        return self.impl._q_func_forwarder, self.impl._targ_q_func_forwarder

    def update(self, batch: Batch) -> float:
        """One update; its loss."""
        columns = minibatch(batch)
        # the target's value of the action that the networks choose in the next state
        after = self.impl.compute_target(columns)
        # Huber error of Q(s, a) against r + γ · (1 − terminal) · after; CQL and BCQ add their terms
        loss = self.impl.compute_loss(columns, after).loss
        number = descend(self._optimiser, loss)
        self._target.lerp_(self._online, self._rate)
        return number

    def limit_targets(self, low: float, high: float) -> None:
        """Keep the targets of a single critic within these values."""
        behind = self.critics[1]
        most = torch.finfo(torch.float32).max
        if isinstance(behind, Critic) and max(abs(low), abs(high)) < most:
            behind.limits = (low, high)

    def value(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current value `[n]` of the best action at `inputs[n, input_dim]`."""
        return self.q_values(inputs).max(dim=1).values

    def q_values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current values `[n, num_actions]` of `inputs[n, input_dim]`."""
        with torch.no_grad():
            values: torch.Tensor = self.critics[0].compute_expected_q(inputs)
            return values

    outputs = q_values
    """What the networks prefer: the highest value."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that an update changes."""
        return {**self._adam.tensors(), "target": self._target}

    def export(self, weights: torch.Tensor) -> tuple[list[MLP], MLP | None]:
        """One network a critic, and the imitator where the algorithm has one."""
        modules = self.impl.modules
        imitator = getattr(modules, "imitator", None)
        critics = [to_numpy(layers_of(critic), weights) for critic in modules.q_funcs]
        return critics, None if imitator is None else to_numpy(layers_of(imitator), weights)

    def start_from(self, network: MLP) -> None:
        """Give a single critic and its target these weights."""
        from_numpy(layers_of(self.impl.modules.q_funcs[0]), network)
        self._target.copy_(self._online)

"""A value learner: d3rlpy's update on our tensors, a running average of the weights, its export."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from d3rlpy.torch_utility import TorchMiniBatch
from torch import nn

from sept_offline.agent.networks import MLP, Constrained, Ensemble
from sept_offline.control.algorithms import build, limit_targets, optimiser, target_tensor
from sept_offline.control.replay import Batch
from sept_offline.errors import TrainingError
from sept_offline.seeding import integer
from sept_offline.settings import ControlConfig
from sept_offline.stage import StageState


class Member:
    """One network with its target, its optimiser and the average of its weights."""

    def __init__(self, config: ControlConfig, input_dim: int, num_actions: int, seed: int) -> None:
        self.config = config
        self.impl = build(config, input_dim, num_actions, seed)
        self.impl.modules.set_train()
        self._optimiser = optimiser(self.impl)
        self._online = self._optimiser.online
        self._target = target_tensor(self.impl)
        self._average = self._online.clone()
        self.updates = 0
        self.averages = 0

    def update(self, batch: Batch) -> float:
        """One update by d3rlpy's own implementation; its loss."""
        size = len(batch.actions)
        actions, rewards = batch.actions.view(size, 1), batch.rewards.view(size, 1)
        columns = TorchMiniBatch(
            observations=batch.inputs,
            actions=actions,
            rewards=rewards,
            next_observations=batch.next_inputs,
            next_actions=actions,
            returns_to_go=rewards,
            terminals=batch.terminals.view(size, 1),
            # one step each: d3rlpy only raises gamma to this power, which a number does as well
            intervals=1,
            device="cpu:0",
        )
        loss: float = self.impl.inner_update(columns, self.updates)["loss"]
        self.updates += 1
        last = self.updates == self.config.updates
        if last or self.updates % self.config.average_every == 0:
            self._add_to_average()
        return loss

    def _add_to_average(self) -> None:
        # while few weights have been seen the average forgets faster: it starts from random ones
        warm = (1 + self.averages) / (10 + self.averages)
        decay = min(self.config.average_decay**self.config.average_every, warm)
        self._average.lerp_(self._online, 1 - decay)
        self.averages += 1

    def q_values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current values `[n, num_actions]` of `inputs[n, input_dim]`."""
        with torch.no_grad():
            values: torch.Tensor = self.impl._q_func_forwarder.compute_expected_q(inputs)
            return values

    def export(self, averaged: bool) -> tuple[list[MLP], MLP | None]:
        """One network a critic, and the imitator where the algorithm has one, as NumPy."""
        source = self._average if averaged else self._online
        critics = [
            _to_numpy(critic._encoder, critic._fc, source) for critic in self.impl.modules.q_funcs
        ]
        imitator = getattr(self.impl.modules, "imitator", None)
        if imitator is None:
            return critics, None
        return critics, _to_numpy(imitator._encoder, imitator._fc, source)

    def state(self, prefix: str) -> StageState:
        """All tensors and counters, copied."""
        return StageState(
            {f"{prefix}.{name}": value.clone() for name, value in self._tensors().items()},
            {f"{prefix}.updates": self.updates, f"{prefix}.averages": self.averages},
        )

    def restore(self, state: StageState, prefix: str) -> None:
        """Continue from `state(prefix)`."""
        try:
            for name, value in self._tensors().items():
                value.copy_(state.tensors[f"{prefix}.{name}"])
            self.updates = int(state.values[f"{prefix}.updates"])
            self.averages = int(state.values[f"{prefix}.averages"])
        except (KeyError, RuntimeError) as error:
            raise TrainingError(
                f"The checkpoint does not fit this control learner ({error}); "
                "it was written with another config; restart the run."
            ) from error

    def _tensors(self) -> dict[str, torch.Tensor]:
        return {
            "online": self._online,
            "target": self._target,
            "average": self._average,
            "first": self._optimiser.first,
            "second": self._optimiser.second,
            "steps": self._optimiser.steps,
        }


class Learner:
    """`config.members` value networks that learn together and act by the mean of their values."""

    def __init__(self, config: ControlConfig, input_dim: int, num_actions: int, seed: int) -> None:
        self.config, self.input_dim, self.num_actions = config, input_dim, num_actions
        self.members = [
            self._member(integer(seed, "control", "weights", index))
            for index in range(config.members)
        ]

    def _member(self, seed: int) -> Member:
        """A new member; another kind of learner has another kind."""
        return Member(self.config, self.input_dim, self.num_actions, seed)

    def limit_targets(self, low: float, high: float) -> None:
        """Keep targets within these values."""
        for member in self.members:
            limit_targets(member.impl, low, high)

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return self.members[0].updates

    def update(self, batch: Batch) -> float:
        """One update of every member, each on its own equal share of the batch's rows; the loss."""
        if len(self.members) == 1:
            return self.members[0].update(batch)
        shares = batch.split(len(self.members))
        losses = [member.update(share) for member, share in zip(self.members, shares, strict=True)]
        return sum(losses) / len(losses)

    def q_values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current values `[n, num_actions]` of `inputs[n, input_dim]`, the members' mean."""
        values = self.members[0].q_values(inputs)
        for member in self.members[1:]:
            values = values + member.q_values(inputs)
        return values / len(self.members)

    def averaged(self) -> MLP | Ensemble | Constrained:
        """The network to deploy: the average of the weights, as NumPy."""
        return self._export(averaged=True)

    def current(self) -> MLP | Ensemble | Constrained:
        """The network as it is now, as NumPy."""
        return self._export(averaged=False)

    def _export(self, averaged: bool) -> MLP | Ensemble | Constrained:
        exported = [member.export(averaged) for member in self.members]
        values = _merge([critic for critics, _ in exported for critic in critics])
        imitators = [imitator for _, imitator in exported if imitator is not None]
        if not imitators:
            return values
        return Constrained(values, _merge(imitators), self.config.bcq_flexibility)

    def state(self) -> StageState:
        """A snapshot: weights, targets, averages, optimisers, counters."""
        whole = StageState()
        for index, member in enumerate(self.members):
            part = member.state(f"member{index}")
            whole.tensors |= part.tensors
            whole.values |= part.values
        return whole

    def restore(self, state: StageState) -> None:
        """Continue from a snapshot, bit for bit."""
        for index, member in enumerate(self.members):
            member.restore(state, f"member{index}")


def _merge(networks: list[MLP]) -> MLP | Ensemble:
    return networks[0] if len(networks) == 1 else Ensemble(networks)


def _to_numpy(encoder: Any, last: nn.Linear, source: torch.Tensor) -> MLP:
    """d3rlpy's encoder and head with weights from `source`, laid out as the flat tensor is."""

    def read(parameter: torch.Tensor) -> np.ndarray[Any, Any]:
        offset = parameter.data.storage_offset()
        part = source[offset : offset + parameter.numel()].view_as(parameter)
        return part.numpy().copy()

    layers: list[tuple[Any, Any]] = []
    norms: list[tuple[Any, Any] | None] = []
    for module in encoder._layers:
        if isinstance(module, nn.Linear):
            layers.append((read(module.weight), read(module.bias)))
            norms.append(None)
        elif isinstance(module, nn.LayerNorm):
            norms[-1] = (read(module.weight), read(module.bias))
    layers.append((read(last.weight), read(last.bias)))
    return MLP(layers, norms, norm_first=False)

"""A learner: updates of d3rlpy's networks, a running average of the weights, its export."""

from __future__ import annotations

from typing import Literal

import torch

from sept_offline.agent.networks import MLP, Constrained, Ensemble
from sept_offline.control.d3rlpy import ActorCritic, QNetworks
from sept_offline.control.discrete_iql import DiscreteIQL
from sept_offline.control.replay import Batch
from sept_offline.errors import TrainingError
from sept_offline.seeding import integer
from sept_offline.settings import BOX_ALGORITHMS, ControlConfig
from sept_offline.stage import StageState

Networks = QNetworks | ActorCritic | DiscreteIQL
EARLY = 0.4
"""Share of the updates after which the average is kept, to compare with fits as short."""
Weights = Literal["averaged", "early", "current"]


def early_updates(config: ControlConfig) -> int:
    """The updates of a fit that ends where the early average is kept."""
    return max(1, round(EARLY * config.updates))


def make_networks(config: ControlConfig, input_dim: int, width: int, seed: int) -> Networks:
    """The networks of the config's algorithm; width: of an encoded action."""
    if config.algorithm in BOX_ALGORITHMS:
        return ActorCritic(config, input_dim, width, seed)
    kind = DiscreteIQL if config.algorithm == "discrete_iql" else QNetworks
    return kind(config, input_dim, width, seed)


class Member:
    """Networks that learn, and the average of their weights."""

    def __init__(self, config: ControlConfig, networks: Networks) -> None:
        self.config, self.networks = config, networks
        self._average = networks.deployed.clone()
        self._early = self._average.clone()
        self.updates = 0
        self.averages = 0

    def update(self, batch: Batch) -> float:
        """One update; its loss."""
        loss = self.networks.update(batch)
        self.updates += 1
        early = self.updates == early_updates(self.config)
        last = self.updates == self.config.updates
        if last or self.updates % self.config.average_every == 0:
            self._add_to_average()
        if early:
            self._early.copy_(self._average)
        return loss

    def _add_to_average(self) -> None:
        # while few weights have been seen the average forgets faster: it starts from random ones
        warm = (1 + self.averages) / (10 + self.averages)
        decay = min(self.config.average_decay**self.config.average_every, warm)
        self._average.lerp_(self.networks.deployed, 1 - decay)
        self.averages += 1

    def export(self, weights: Weights) -> tuple[list[MLP], MLP | None]:
        """The networks as NumPy, with these of their weights."""
        if weights == "current":
            return self.networks.export(self.networks.deployed)
        return self.networks.export(self._average if weights == "averaged" else self._early)

    def start_from(self, network: MLP) -> None:
        """Take these weights: to learn from, to aim at and to act with."""
        if not isinstance(self.networks, QNetworks):
            raise TrainingError("Only value networks can start from the weights of an agent.")
        self.networks.start_from(network)
        self._average.copy_(self.networks.deployed)

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
        return {**self.networks.tensors(), "average": self._average, "early": self._early}


class Learner:
    """`config.members` networks that learn together and act by the mean of their outputs.

    width: of an encoded action, which is the number of actions of a finite set.
    """

    def __init__(self, config: ControlConfig, input_dim: int, width: int, seed: int) -> None:
        self.config, self.input_dim, self.width = config, input_dim, width
        self.members = [
            self._member(integer(seed, "control", "weights", index))
            for index in range(config.members)
        ]

    def _member(self, seed: int) -> Member:
        """A new member; another kind of learner has another kind."""
        networks = make_networks(self.config, self.input_dim, self.width, seed)
        return Member(self.config, networks)

    def limit_targets(self, low: float, high: float) -> None:
        """Keep targets within these values."""
        for member in self.members:
            member.networks.limit_targets(low, high)

    def update(self, batch: Batch) -> float:
        """One update of every member, each on its own equal share of the batch's rows; the loss."""
        if len(self.members) == 1:
            return self.members[0].update(batch)
        shares = batch.split(len(self.members))
        losses = [member.update(share) for member, share in zip(self.members, shares, strict=True)]
        return sum(losses) / len(losses)

    def value(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current value `[n]` of the chosen action at `inputs[n, input_dim]`."""
        if isinstance(self.members[0].networks, QNetworks):
            return self.q_values(inputs).max(dim=1).values
        return torch.stack([member.networks.value(inputs) for member in self.members]).mean(dim=0)

    def q_values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current values `[n, width]` of a finite set's actions, the members' mean."""
        networks = [member.networks for member in self.members]
        parts = [each.q_values(inputs) for each in networks if isinstance(each, QNetworks)]
        values = parts[0]
        for part in parts[1:]:
            values = values + part
        return values / len(parts)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """`[n, width]` as `ActionSpace.explore` takes them, the members' mean."""
        return torch.stack([member.networks.outputs(inputs) for member in self.members]).mean(dim=0)

    def averaged(self) -> MLP | Ensemble | Constrained:
        """The network to deploy: the average of the weights, as NumPy."""
        return self._export("averaged")

    def early(self) -> MLP | Ensemble | Constrained:
        """What `averaged` was after `early_updates(config)` updates, if so many were made."""
        return self._export("early")

    def current(self) -> MLP | Ensemble | Constrained:
        """The current network in NumPy."""
        return self._export("current")

    def _export(self, weights: Weights) -> MLP | Ensemble | Constrained:
        exported = [member.export(weights) for member in self.members]
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

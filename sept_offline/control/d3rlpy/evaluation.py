"""Fitted Q evaluation of a policy whose actions are given."""

from __future__ import annotations

import torch
from d3rlpy.ope import FQE, DiscreteFQE, FQEConfig
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory

from sept_offline.actions import ActionSpace
from sept_offline.control.d3rlpy.algorithms import minibatch, seeded
from sept_offline.control.d3rlpy.networks import encoder_factory
from sept_offline.control.replay import Batch
from sept_offline.settings import OpeConfig

EVALUATIONS = {"finite": DiscreteFQE, "box": FQE}
"""d3rlpy's fitted Q evaluation by the kind of the action space."""


class _Noted:
    """A placeholder for the policy that d3rlpy would ask for its next actions."""

    def __init__(self) -> None:
        self.impl = self


class Evaluation:
    """The networks of d3rlpy's fitted Q evaluation; the evaluated policy's actions are given."""

    def __init__(
        self, config: OpeConfig, input_dim: int, space: ActionSpace, updates: int, seed: int
    ) -> None:
        schedule = CosineAnnealingLRFactory(T_max=updates)
        settings = FQEConfig(
            learning_rate=config.learning_rate,
            optim_factory=AdamFactory(lr_scheduler_factory=schedule),
            encoder_factory=encoder_factory(config.hidden),
            gamma=1.0,
        )
        with seeded(seed):
            algorithm = EVALUATIONS[space.kind](_Noted(), settings)
            algorithm.create_impl((input_dim,), space.width)
        self._impl = algorithm.impl
        self._impl.modules.set_train()

    def after(self, inputs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The target's values `[n, 1]` of the actions `[n, …]`."""
        with torch.no_grad():
            forwarder = self._impl._targ_q_func_forwarder
            values: torch.Tensor = forwarder.compute_target(inputs, actions)
            return values

    def update(self, batch: Batch, after: torch.Tensor) -> float:
        """One step towards the rewards and what comes after them, `after[n, 1]`; the loss."""
        loss = self._impl.compute_loss(minibatch(batch), after)
        optimiser = self._impl.modules.optim
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    def copy_to_target(self) -> None:
        """Let the target be the network."""
        self._impl.update_target()

    def value(self, inputs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """The values `[n, 1]` of the actions `[n, …]`."""
        with torch.no_grad():
            forwarder = self._impl._q_func_forwarder
            values: torch.Tensor = forwarder.compute_target(inputs, actions)
            return values

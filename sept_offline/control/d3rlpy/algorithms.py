"""d3rlpy's algorithms: made from settings, given a batch, stepped, and drawing from a seed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from d3rlpy.algos import (
    AWACConfig,
    CQLConfig,
    DiscreteBCQConfig,
    DiscreteCQLConfig,
    DoubleDQNConfig,
    IQLConfig,
    NFQConfig,
    ReBRACConfig,
    TD3PlusBCConfig,
)
from d3rlpy.optimizers import OptimizerFactory
from d3rlpy.torch_utility import TorchMiniBatch
from torch import nn

from sept_offline.control.d3rlpy.adam import FlatAdam
from sept_offline.control.d3rlpy.networks import encoder_factory
from sept_offline.control.replay import Batch
from sept_offline.settings import ControlConfig

ALGORITHMS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "double_dqn": (DoubleDQNConfig, {}),
    "discrete_cql": (DiscreteCQLConfig, {"alpha": "cql_alpha"}),
    "discrete_bcq": (
        DiscreteBCQConfig,
        {"action_flexibility": "bcq_flexibility", "beta": "bcq_beta"},
    ),
    "nfq": (NFQConfig, {}),
    "rebrac": (
        ReBRACConfig,
        {"actor_beta": "rebrac_actor_beta", "critic_beta": "rebrac_critic_beta"},
    ),
    "td3_plus_bc": (TD3PlusBCConfig, {"alpha": "td3_alpha"}),
    "iql": (IQLConfig, {"expectile": "iql_expectile", "weight_temp": "iql_temperature"}),
    "cql": (CQLConfig, {"conservative_weight": "cql_alpha"}),
    "awac": (AWACConfig, {"lam": "awac_lambda"}),
}
"""d3rlpy's configuration of each algorithm, and where its own settings stand in ours."""


@dataclasses.dataclass
class FlatAdamFactory(OptimizerFactory):  # type: ignore[misc]  # d3rlpy has no types
    """Gives d3rlpy's algorithms the optimiser above."""

    def create_optimizer(
        self, named_modules: Iterable[tuple[str, nn.Module]], lr: float
    ) -> FlatAdam:
        """Flatten the modules' parameters and optimise them."""
        unique = {id(p): p for _, module in named_modules for p in module.parameters()}
        return FlatAdam(list(unique.values()), lr)

    @staticmethod
    def get_type() -> str:
        """The name d3rlpy would serialise it by."""
        return "sept_flat_adam"


def create(config: ControlConfig, input_dim: int, width: int, seed: int) -> Any:
    """d3rlpy's implementation of the config's algorithm, its weights drawn from `seed`."""
    kind, own = ALGORITHMS[config.algorithm]
    settings: dict[str, Any] = {"gamma": config.gamma, "n_critics": config.num_critics}
    settings |= {theirs: getattr(config, ours) for theirs, ours in own.items()}
    if config.algorithm == "cql":
        # the weight as set, instead of one that follows a threshold
        settings["alpha_learning_rate"] = 0.0
    for field in dataclasses.fields(kind):
        if field.name.endswith("optim_factory"):
            settings[field.name] = FlatAdamFactory(clip_grad_norm=config.grad_clip)
        elif field.name.endswith("encoder_factory"):
            # with layer normalisation the critics of boxes do not diverge outside the logs
            norm = config.layer_norm or field.name == "critic_encoder_factory"
            settings[field.name] = encoder_factory(config.hidden, norm)
        elif field.name in ("learning_rate", "actor_learning_rate", "critic_learning_rate"):
            settings[field.name] = config.learning_rate
    with seeded(seed):
        algorithm = kind(**settings).create(device=False)
        algorithm.create_impl((input_dim,), width)
    algorithm.impl.modules.set_train()
    return algorithm.impl


def minibatch(batch: Batch) -> TorchMiniBatch:
    """What d3rlpy's losses read."""
    size = len(batch.actions)
    actions, rewards = batch.actions.view(size, -1), batch.rewards.view(size, 1)
    return TorchMiniBatch(
        observations=batch.inputs,
        actions=actions,
        rewards=rewards,
        next_observations=batch.next_inputs,
        next_actions=actions if batch.next_actions is None else batch.next_actions,
        returns_to_go=rewards,
        terminals=batch.terminals.view(size, 1),
        # one step each: d3rlpy only raises gamma to this power, which a number does as well
        intervals=1,
        device="cpu:0",
    )


def descend(optimiser: Any, loss: torch.Tensor) -> float:
    """One step of d3rlpy's optimiser, which clips gradients; the loss."""
    optimiser.zero_grad()
    # other networks that the loss went through get no gradients: nobody would use them
    loss.backward(inputs=optimiser.optim.parameters)  # type: ignore[no-untyped-call]
    optimiser.step()
    return float(loss.detach())


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """d3rlpy draws initial weights from torch's global generator: fork it, and give it a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def drawing_from(state: torch.Tensor) -> Iterator[None]:
    """Let torch's global generator, which d3rlpy draws from, continue from `state` and save it."""
    outside = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        state.copy_(torch.get_rng_state())
        torch.set_rng_state(outside)

"""d3rlpy's algorithms with a Polyak target, and all their weights in one contiguous tensor.

d3rlpy keeps its networks and its losses. What changes is where parameters live: every parameter is
a view into one flat tensor, so that Adam, the target's interpolation and the average of the weights
are one fused pass each instead of a loop in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from d3rlpy.algos import (
    NFQ,
    DiscreteBCQ,
    DiscreteBCQConfig,
    DiscreteCQL,
    DiscreteCQLConfig,
    DoubleDQN,
    DoubleDQNConfig,
    NFQConfig,
)
from d3rlpy.algos.qlearning.torch.bcq_impl import DiscreteBCQImpl
from d3rlpy.algos.qlearning.torch.cql_impl import DiscreteCQLImpl
from d3rlpy.algos.qlearning.torch.dqn_impl import DoubleDQNImpl, DQNImpl
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.optimizers import OptimizerFactory
from torch import nn

from sept_offline.settings import ControlConfig

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


def views(flat: torch.Tensor, parameters: Sequence[nn.Parameter]) -> list[torch.Tensor]:
    """The parts of `flat` that lie where the `parameters` lie in theirs."""
    parts = []
    for parameter in parameters:
        offset = parameter.data.storage_offset()
        parts.append(flat[offset : offset + parameter.numel()].view_as(parameter))
    return parts


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
        self._first = views(self.first, self.parameters)
        self._second = views(self.second, self.parameters)
        self._counts = [self.steps] * len(self.parameters)
        self._learning_rate = learning_rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, so that the backward pass assigns new ones instead of adding."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """One step along the gradients."""
        self.steps += 1
        torch._fused_adam_(
            self._weights,
            [parameter.grad for parameter in self.parameters if parameter.grad is not None],
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


@dataclass
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


class SingleCritic:
    """Stands where d3rlpy keeps its forwarder of an ensemble, when there is one critic.

    The same values, targets and Huber error; only the stacking and the one-hot masks, which an
    ensemble needs and a single critic pays for, are left out.
    """

    def __init__(self, critic: Any) -> None:
        self._values: Callable[[torch.Tensor], torch.Tensor] = nn.Sequential(
            *critic._encoder._layers, critic._fc
        )
        self.limits: tuple[float, float] | None = None
        """Lowest and highest value that a target may have, if anything limits it."""

    def compute_expected_q(self, x: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        """The values `[n, num_actions]` of `x[n, input_dim]`."""
        values: torch.Tensor = self._values(x)
        return values

    def compute_target(
        self, x: torch.Tensor, action: torch.Tensor, reduction: str = "min"
    ) -> torch.Tensor:
        """The values `[n, 1]` of the actions `[n]`."""
        values: torch.Tensor = self._values(x)
        chosen = values.gather(1, action.view(-1, 1))
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
        value = self._values(observations).gather(1, actions)
        return nn.functional.smooth_l1_loss(value, rewards + gamma * target * (1 - terminals))


class PolyakTarget:
    """An implementation whose target follows its networks by interpolation."""

    online: torch.Tensor
    target: torch.Tensor
    rate: float

    def update_target(self) -> None:
        """One fused step towards the networks."""
        self.target.lerp_(self.online, self.rate)


class PolyakDoubleDQNImpl(PolyakTarget, DoubleDQNImpl):  # type: ignore[misc]  # d3rlpy has no types
    """Double DQN with a Polyak target."""


class PolyakCQLImpl(PolyakTarget, DiscreteCQLImpl):  # type: ignore[misc]  # d3rlpy has no types
    """Discrete CQL with a Polyak target."""


class PolyakBCQImpl(PolyakTarget, DiscreteBCQImpl):  # type: ignore[misc]  # d3rlpy has no types
    """Discrete BCQ with a Polyak target."""


def _swap(algorithm: Any, implementation: type[Any], rate: float, **own: float) -> None:
    """Put `implementation` in the place of the one d3rlpy has just built, on the same modules."""
    built = algorithm.impl
    target = flatten(list(built.modules.targ_q_funcs.parameters()))
    online, behind = built._q_func_forwarder, built._targ_q_func_forwarder
    if algorithm.config.n_critics == 1:
        online = SingleCritic(built.modules.q_funcs[0])
        behind = SingleCritic(built.modules.targ_q_funcs[0])
    swapped = implementation(
        observation_shape=built.observation_shape,
        action_size=built.action_size,
        modules=built.modules,
        q_func_forwarder=online,
        targ_q_func_forwarder=behind,
        target_update_interval=1,
        gamma=algorithm.config.gamma,
        compiled=False,
        device=built.device,
        **own,
    )
    # the value networks come first in the flat tensor; BCQ's imitator follows, and has no target
    swapped.online = online_tensor(built)[: target.numel()]
    swapped.target = target
    swapped.rate = rate
    algorithm._impl = swapped


class PolyakDoubleDQN(DoubleDQN):  # type: ignore[misc]  # d3rlpy has no types
    """d3rlpy's DoubleDQN with a Polyak target."""

    rate = 0.005

    def inner_create_impl(self, observation_shape: Any, action_size: int) -> None:
        """Build d3rlpy's implementation, then swap in ours."""
        super().inner_create_impl(observation_shape, action_size)
        _swap(self, PolyakDoubleDQNImpl, self.rate)


class PolyakCQL(DiscreteCQL):  # type: ignore[misc]  # d3rlpy has no types
    """d3rlpy's DiscreteCQL with a Polyak target."""

    rate = 0.005

    def inner_create_impl(self, observation_shape: Any, action_size: int) -> None:
        """Build d3rlpy's implementation, then swap in ours."""
        super().inner_create_impl(observation_shape, action_size)
        _swap(self, PolyakCQLImpl, self.rate, alpha=self.config.alpha)


class PolyakBCQ(DiscreteBCQ):  # type: ignore[misc]  # d3rlpy has no types
    """d3rlpy's DiscreteBCQ with a Polyak target."""

    rate = 0.005

    def inner_create_impl(self, observation_shape: Any, action_size: int) -> None:
        """Build d3rlpy's implementation, then swap in ours."""
        super().inner_create_impl(observation_shape, action_size)
        settings = self.config
        _swap(
            self,
            PolyakBCQImpl,
            self.rate,
            action_flexibility=settings.action_flexibility,
            beta=settings.beta,
        )


def limit_targets(implementation: DQNImpl, low: float, high: float) -> None:
    """Keep the targets of a single critic within what rewards allow."""
    behind = implementation._targ_q_func_forwarder
    most = torch.finfo(torch.float32).max
    if isinstance(behind, SingleCritic) and max(abs(low), abs(high)) < most:
        behind.limits = (low, high)


def optimiser(implementation: DQNImpl) -> FlatAdam:
    """The optimiser of an implementation that `build` made."""
    found: FlatAdam = implementation.modules.optim.optim
    return found


def online_tensor(implementation: DQNImpl) -> torch.Tensor:
    """The flat tensor of all that the optimiser changes."""
    return optimiser(implementation).online


def target_tensor(implementation: DQNImpl) -> torch.Tensor:
    """The flat tensor of the target networks."""
    if not isinstance(implementation, PolyakTarget):
        return flatten(list(implementation.modules.targ_q_funcs.parameters()))
    return implementation.target


def encoder_factory(config: ControlConfig) -> VectorEncoderFactory:
    """d3rlpy's own encoder: Linear, ReLU, LayerNorm, layer after layer."""
    return VectorEncoderFactory(hidden_units=list(config.hidden), use_layer_norm=config.layer_norm)


def build(config: ControlConfig, input_dim: int, num_actions: int, seed: int) -> Any:
    """d3rlpy's implementation of the config's algorithm, its weights drawn from `seed`."""
    common: dict[str, Any] = {
        "batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "optim_factory": FlatAdamFactory(clip_grad_norm=config.grad_clip),
        "encoder_factory": encoder_factory(config),
        "gamma": config.gamma,
        "n_critics": config.critics,
    }
    # d3rlpy initialises from torch's global generator: fork it, so that nothing outside is read
    # or disturbed
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        algorithm: Any
        if config.algorithm == "nfq":
            algorithm = NFQ(NFQConfig(**common), device=False, enable_ddp=False)
        elif config.algorithm == "discrete_cql":
            settings = DiscreteCQLConfig(**common, target_update_interval=1, alpha=config.cql_alpha)
            algorithm = PolyakCQL(settings, device=False, enable_ddp=False)
        elif config.algorithm == "discrete_bcq":
            bcq = DiscreteBCQConfig(
                **common,
                target_update_interval=1,
                action_flexibility=config.bcq_flexibility,
                beta=config.bcq_beta,
            )
            algorithm = PolyakBCQ(bcq, device=False, enable_ddp=False)
        else:
            dqn = DoubleDQNConfig(**common, target_update_interval=1)
            algorithm = PolyakDoubleDQN(dqn, device=False, enable_ddp=False)
        algorithm.rate = config.target_rate
        algorithm.create_impl((input_dim,), num_actions)
    return algorithm.impl

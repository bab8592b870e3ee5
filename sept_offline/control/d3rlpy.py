"""The adapter of d3rlpy's algorithms: created from settings, updated, exported.

d3rlpy has the networks, the losses and the targets of every algorithm. `QNetworks.update` is one
update of value networks, `ActorCritic.update` one of an actor and its critics. Every parameter is a
view into one flat tensor, so that Adam, the target's interpolation and the average of the weights
are one fused pass each instead of a loop in Python. tests/control/test_d3rlpy.py says for which
versions this holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

# d3rlpy imports legacy gym, which prints an irrelevant notice
with contextlib.redirect_stderr(io.StringIO()):
    import d3rlpy as _first  # noqa: F401

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
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.ope import FQE, DiscreteFQE, FQEConfig
from d3rlpy.optimizers import OptimizerFactory
from d3rlpy.torch_utility import TorchMiniBatch

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent.networks import MLP
from sept_offline.control.replay import Batch
from sept_offline.settings import ControlConfig, OpeConfig
from sept_offline.training.adam import FlatAdam, flatten, part_of
from sept_offline.training.updates import annealed

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
    """Gives d3rlpy's algorithms our optimiser."""

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
    kind, renamed = ALGORITHMS[config.algorithm]
    settings: dict[str, Any] = {"gamma": config.gamma, "n_critics": config.num_critics}
    settings |= {theirs: getattr(config, ours) for theirs, ours in renamed.items()}
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


def descend(optimiser: Any, loss: Tensor) -> float:
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
def drawing_from(state: Tensor) -> Iterator[None]:
    """Run torch's global generator, which d3rlpy draws from, from `state` on, and save it."""
    outside = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        state.copy_(torch.get_rng_state())
        torch.set_rng_state(outside)


def encoder_factory(hidden: Sequence[int], layer_norm: bool = False) -> VectorEncoderFactory:
    """d3rlpy's own encoder: Linear, ReLU, LayerNorm, layer after layer."""
    return VectorEncoderFactory(hidden_units=list(hidden), use_layer_norm=layer_norm)


def layers_of(network: Any) -> nn.Sequential:
    """The layers of one of d3rlpy's networks: its encoder's and its head, the mean of a normal."""
    head = network._mu if hasattr(network, "_mu") else network._fc
    return nn.Sequential(*network._encoder._layers, head)


def to_numpy(network: nn.Sequential, weights: Tensor, squashed: bool = False) -> MLP:
    """A network with `weights`, laid out as its flat tensor is; squashed: tanh follows."""

    def read(module: nn.Module) -> tuple[Any, Any]:
        weight, bias = (part_of(weights, parameter) for parameter in module.parameters())
        return weight.numpy().copy(), bias.numpy().copy()

    layers: list[tuple[Any, Any]] = []
    norms: list[tuple[Any, Any] | None] = []
    for module in network:
        if isinstance(module, nn.Linear):
            layers.append(read(module))
            norms.append(None)
        elif isinstance(module, nn.LayerNorm):
            norms[-1] = read(module)
    return MLP(layers, norms[:-1], norm_first=False, squashed=squashed)


def from_numpy(network: nn.Sequential, values: MLP) -> None:
    """Give a network the weights of `values`, which has no norms."""
    linear = [module for module in network if isinstance(module, nn.Linear)]
    with torch.no_grad():
        for module, (weight, bias) in zip(linear, values.layers, strict=True):
            module.weight.copy_(torch.from_numpy(weight.copy()))
            module.bias.copy_(torch.from_numpy(bias.copy()))


class Critic:
    """Replaces d3rlpy's forwarder of an ensemble if there is one critic.

    The same values, targets and Huber error; only the stacking and the one-hot masks, which an
    ensemble needs and a single critic pays for, are left out.
    """

    def __init__(self, layers: nn.Sequential) -> None:
        self.layers = layers
        self.limits: tuple[float, float] | None = None
        """Lowest and highest value that a target may have, if anything limits it."""

    def values(self, x: Tensor) -> Tensor:
        """`[n, num_actions]` of `x[n, input_dim]`."""
        values: Tensor = self.layers(x)
        return values

    def compute_expected_q(self, x: Tensor, reduction: str = "mean") -> Tensor:
        """The same, by d3rlpy's name."""
        return self.values(x)

    def compute_target(self, x: Tensor, action: Tensor, reduction: str = "min") -> Tensor:
        """The values `[n, 1]` of the actions `[n]`."""
        chosen = self.values(x).gather(1, action.view(-1, 1))
        return chosen if self.limits is None else chosen.clamp(*self.limits)

    def compute_error(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        target: Tensor,
        terminals: Tensor,
        gamma: float,
    ) -> Tensor:
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
        """One update of Double DQN, or of a relative with other terms; its loss.

        after = Q̄(s′, argmax_a Q(s′, a))                 the target's value of the next action
        loss  = Huber(Q(s, a) − (r + γ (1 − terminal) after))     CQL and BCQ add their terms
        Q̄     ← Q̄ + rate · (Q − Q̄)                       after one step of Adam
        """
        columns = minibatch(batch)
        after = self.impl.compute_target(columns)
        loss = descend(self._optimiser, self.impl.compute_loss(columns, after).loss)
        self._target.lerp_(self._online, self._rate)
        return loss

    def limit_targets(self, low: float, high: float) -> None:
        """Keep the targets of a single critic within these values."""
        behind = self.critics[1]
        most = torch.finfo(torch.float32).max
        if isinstance(behind, Critic) and max(abs(low), abs(high)) < most:
            behind.limits = (low, high)

    def value(self, inputs: Tensor) -> Tensor:
        """The current value `[n]` of the best action at `inputs[n, input_dim]`."""
        return self.q_values(inputs).max(dim=1).values

    def q_values(self, inputs: Tensor) -> Tensor:
        """The current values `[n, num_actions]` of `inputs[n, input_dim]`."""
        with torch.no_grad():
            values: Tensor = self.critics[0].compute_expected_q(inputs)
            return values

    outputs = q_values
    """Actions with the highest value."""

    def tensors(self) -> dict[str, Tensor]:
        """All that an update changes."""
        return {**self._adam.tensors(), "target": self._target}

    def export(self, weights: Tensor) -> tuple[list[MLP], MLP | None]:
        """One network per critic, and the imitator if the algorithm has one."""
        modules = self.impl.modules
        imitator = getattr(modules, "imitator", None)
        critics = [to_numpy(layers_of(critic), weights) for critic in modules.q_funcs]
        return critics, None if imitator is None else to_numpy(layers_of(imitator), weights)

    def start_from(self, network: MLP) -> None:
        """Give a single critic and its target these weights."""
        from_numpy(layers_of(self.impl.modules.q_funcs[0]), network)
        self._target.copy_(self._online)


class Critics:
    """Replaces d3rlpy's forwarder of critics that read an action.

    The same values, targets and errors, with targets within limits.
    """

    def __init__(self, networks: Sequence[nn.Sequential]) -> None:
        self._networks = networks
        self.limits: tuple[float, float] | None = None
        """Lowest and highest value that a target may have, if anything limits it."""

    def compute_expected_q(self, x: Tensor, action: Tensor, reduction: str = "mean") -> Tensor:
        """The values `[n, 1]` of the actions `[n, k]`; `[critics, n, 1]` if not reduced."""
        inputs = torch.cat([x, action], dim=1)
        values = torch.stack([network(inputs) for network in self._networks])
        if reduction == "min":
            return values.min(dim=0).values
        return values.mean(dim=0) if reduction == "mean" else values

    def compute_target(self, x: Tensor, action: Tensor, reduction: str = "min") -> Tensor:
        """The same of a target."""
        values = self.compute_expected_q(x, action, reduction)
        return values if self.limits is None else values.clamp(*self.limits)

    def compute_error(
        self,
        observations: Tensor,
        actions: Tensor,
        rewards: Tensor,
        target: Tensor,
        terminals: Tensor,
        gamma: float,
    ) -> Tensor:
        """The sum of the critics' mean squared errors."""
        values = self.compute_expected_q(observations, actions, "none")
        wanted = rewards + gamma * target * (1 - terminals)
        return (values - wanted).square().mean(dim=(1, 2)).sum()


class ActorCritic:
    """An actor of continuous actions and its critics, with their targets and optimisers.

    Actions are in [−1, 1], as the action space encodes them; the actor's are tanh of its network.
    """

    def __init__(self, config: ControlConfig, input_dim: int, width: int, seed: int) -> None:
        self.impl = impl = create(config, input_dim, width, seed)
        modules = impl.modules
        self._rate = config.target_rate
        self._imitation = config.rebrac_actor_beta
        self._warm = round(config.rebrac_warmup * config.updates)
        self._actor_every: int = getattr(impl, "_update_actor_interval", 1)
        self._updates = torch.zeros((), dtype=torch.int64)
        self._noise = torch.Generator().manual_seed(seed).get_state()
        """The state of the generator that d3rlpy's losses draw from."""
        self._adams: dict[str, FlatAdam] = {
            field.name.removesuffix("_optim"): optimiser.optim
            for field in dataclasses.fields(modules)
            if field.name.endswith("_optim")
            and (optimiser := getattr(modules, field.name)) is not None
        }
        self.deployed = self._adams["actor"].online
        """The weights whose average is deployed: the actor's."""
        self._targets = {"critic": flatten(list(modules.targ_q_funcs.parameters()))}
        if hasattr(modules, "targ_policy"):
            self._targets["actor"] = flatten(list(modules.targ_policy.parameters()))
        impl._q_func_forwarder = Critics([layers_of(each) for each in modules.q_funcs])
        impl._targ_q_func_forwarder = Critics([layers_of(each) for each in modules.targ_q_funcs])

    def update(self, batch: Batch) -> float:
        """One update of the critics, and of the actor if it is its turn; the critics' loss."""
        impl, modules = self.impl, self.impl.modules
        columns = minibatch(self._complete(batch))
        with drawing_from(self._noise):
            # the target's value of the actor's next action; IQL's is the value function's
            after = impl.compute_target(columns)
            # squared error of Q(s, a) against r + γ · (1 − terminal) · after
            loss = impl.compute_critic_loss(columns, after).critic_loss
            number = descend(modules.critic_optim, loss)
            turn = int(self._updates) % self._actor_every == 0
            self._updates += 1
            if not turn:
                return number
            if hasattr(impl, "_actor_beta"):
                share = min(1.0, int(self._updates) / (self._warm + 1))
                impl._actor_beta = self._imitation**share
            # most: −Q(s, actor(s)) and the distance to the logged action
            action = modules.policy(columns.observations)
            loss = impl.compute_actor_loss(columns, action).actor_loss
            of_actor = descend(modules.actor_optim, loss)
        for name, target in self._targets.items():
            # IQL's value function follows the critics in the flat tensor, without a target
            target.lerp_(self._adams[name].online[: target.numel()], self._rate)
        return number if math.isfinite(of_actor) else of_actor

    def _complete(self, batch: Batch) -> Batch:
        """Use the actor's own next action at the end of an episode, where none was logged."""
        following = batch.next_actions
        if following is None or not hasattr(self.impl.modules, "targ_policy"):
            return dataclasses.replace(batch, next_actions=None)
        unknown = following.isnan().any(dim=1).nonzero()[:, 0]
        if len(unknown):
            with torch.no_grad():
                chosen = self.impl.modules.targ_policy(batch.next_inputs[unknown]).squashed_mu
            following = following.index_copy(0, unknown, chosen)
        return dataclasses.replace(batch, next_actions=following)

    def limit_targets(self, low: float, high: float) -> None:
        """Keep the targets within these values."""
        if max(abs(low), abs(high)) < torch.finfo(torch.float32).max:
            self.impl._targ_q_func_forwarder.limits = (low, high)

    def value(self, inputs: Tensor) -> Tensor:
        """The current value `[n]` of the actor's action at `inputs[n, input_dim]`."""
        with torch.no_grad():
            action = self.impl.modules.policy(inputs).squashed_mu
            values: Tensor = self.impl._q_func_forwarder.compute_expected_q(inputs, action, "min")
            return values[:, 0]

    def outputs(self, inputs: Tensor) -> Tensor:
        """The actor's current outputs `[n, width]`, whose tanh is the action."""
        with torch.no_grad():
            outputs: Tensor = self.impl.modules.policy(inputs).mu
            return outputs

    def tensors(self) -> dict[str, Tensor]:
        """All that an update changes."""
        tensors = {"noise": self._noise, "updates": self._updates}
        for name, adam in self._adams.items():
            tensors |= {f"{name}.{part}": value for part, value in adam.tensors().items()}
        return tensors | {f"{name}.target": value for name, value in self._targets.items()}

    def export(self, weights: Tensor) -> tuple[list[MLP], None]:
        """The actor's network, with tanh."""
        return [to_numpy(layers_of(self.impl.modules.policy), weights, squashed=True)], None


class Evaluation:
    """The networks of d3rlpy's fitted Q evaluation; the evaluated policy's actions are given."""

    def __init__(
        self, config: OpeConfig, input_dim: int, space: ActionSpace, updates: int, seed: int
    ) -> None:
        settings = FQEConfig(
            learning_rate=config.learning_rate,
            optim_factory=FlatAdamFactory(),
            encoder_factory=encoder_factory(config.hidden),
            gamma=1.0,
        )
        with seeded(seed):
            kind = FQE if isinstance(space, Box) else DiscreteFQE
            # d3rlpy would ask the policy for its next actions; here they are given
            policy = SimpleNamespace(impl=SimpleNamespace())
            algorithm = kind(policy, settings)
            algorithm.create_impl((input_dim,), space.width)
        self._impl = algorithm.impl
        self._impl.modules.set_train()
        self._rate, self._done, self._total = config.learning_rate, 0, updates

    def after(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """The target's values `[n, 1]` of the actions `[n, …]`."""
        return self._values(self._impl._targ_q_func_forwarder, inputs, actions)

    def value(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """The values `[n, 1]` of the actions `[n, …]`."""
        return self._values(self._impl._q_func_forwarder, inputs, actions)

    @staticmethod
    @torch.no_grad()
    def _values(forwarder: Any, inputs: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = forwarder.compute_target(inputs, actions)
        return values

    def update(self, batch: Batch, after: Tensor) -> float:
        """One step towards the rewards and what comes after them, `after[n, 1]`; the loss."""
        optimiser = self._impl.modules.optim
        optimiser.optim.rate = annealed(self._rate, 0.0, self._done, self._total)
        self._done += 1
        return descend(optimiser, self._impl.compute_loss(minibatch(batch), after))

    def copy_to_target(self) -> None:
        """Copy the network's weights to the target."""
        self._impl.update_target()

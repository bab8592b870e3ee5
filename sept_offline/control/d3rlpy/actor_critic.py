"""An actor of continuous actions, and its critics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import nn

from sept_offline.agent.networks import MLP
from sept_offline.control.d3rlpy.adam import FlatAdam, flatten
from sept_offline.control.d3rlpy.algorithms import create, descend, drawing_from, minibatch
from sept_offline.control.d3rlpy.networks import layers_of, to_numpy
from sept_offline.control.replay import Batch
from sept_offline.settings import ControlConfig


class Critics:
    """Stands where d3rlpy keeps its forwarder of critics that read an action.

    The same values, targets and errors, with targets within limits.
    """

    def __init__(self, networks: Sequence[nn.Sequential]) -> None:
        self._networks = networks
        self.limits: tuple[float, float] | None = None
        """Lowest and highest value that a target may have, if anything limits it."""

    def compute_expected_q(
        self, x: torch.Tensor, action: torch.Tensor, reduction: str = "mean"
    ) -> torch.Tensor:
        """The values `[n, 1]` of the actions `[n, k]`; `[critics, n, 1]` if not reduced."""
        inputs = torch.cat([x, action], dim=1)
        values = torch.stack([network(inputs) for network in self._networks])
        if reduction == "min":
            return values.min(dim=0).values
        return values.mean(dim=0) if reduction == "mean" else values

    def compute_target(
        self, x: torch.Tensor, action: torch.Tensor, reduction: str = "min"
    ) -> torch.Tensor:
        """The same of a target."""
        values = self.compute_expected_q(x, action, reduction)
        return values if self.limits is None else values.clamp(*self.limits)

    def compute_error(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        target: torch.Tensor,
        terminals: torch.Tensor,
        gamma: float,
    ) -> torch.Tensor:
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
            # most: −Q(s, actor(s)) and the distance to the logged action
            action = modules.policy(columns.observations)
            loss = impl.compute_actor_loss(columns, action).actor_loss
            of_actor = descend(modules.actor_optim, loss)
        for name, target in self._targets.items():
            # IQL's value function follows the critics in the flat tensor, without a target
            target.lerp_(self._adams[name].online[: target.numel()], self._rate)
        return number if math.isfinite(of_actor) else of_actor

    def _complete(self, batch: Batch) -> Batch:
        """With the actor's own next action where none was logged: an episode ended there."""
        following = batch.next_actions
        if following is None or not hasattr(self.impl.modules, "targ_policy"):
            return dataclasses.replace(batch, next_actions=None)
        unknown = following.isnan().any(dim=1).nonzero()[:, 0]
        if len(unknown):
            with torch.no_grad():
                own = self.impl.modules.targ_policy(batch.next_inputs[unknown]).squashed_mu
            following = following.index_copy(0, unknown, own)
        return dataclasses.replace(batch, next_actions=following)

    def limit_targets(self, low: float, high: float) -> None:
        """Keep the targets within these values."""
        if max(abs(low), abs(high)) < torch.finfo(torch.float32).max:
            self.impl._targ_q_func_forwarder.limits = (low, high)

    def value(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current value `[n]` of the actor's action at `inputs[n, input_dim]`."""
        with torch.no_grad():
            action = self.impl.modules.policy(inputs).squashed_mu
            values: torch.Tensor = self.impl._q_func_forwarder.compute_expected_q(
                inputs, action, "min"
            )
            return values[:, 0]

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """The actor's current outputs `[n, width]`, whose tanh is the action."""
        with torch.no_grad():
            outputs: torch.Tensor = self.impl.modules.policy(inputs).mu
            return outputs

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that an update changes."""
        own = {"noise": self._noise, "updates": self._updates}
        for name, adam in self._adams.items():
            own |= {f"{name}.{part}": value for part, value in adam.tensors().items()}
        return own | {f"{name}.target": value for name, value in self._targets.items()}

    def export(self, weights: torch.Tensor) -> tuple[list[MLP], None]:
        """The actor's network, with tanh."""
        return [to_numpy(layers_of(self.impl.modules.policy), weights, squashed=True)], None

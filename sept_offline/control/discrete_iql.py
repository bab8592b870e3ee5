"""Implicit Q-learning for a finite set of actions, which d3rlpy has for continuous ones only.

    V(s) ← expectile τ of Q̄(s, a) over the logged a          mean |τ − 1[Q̄ < V]| (Q̄ − V)²
    Q(s, a) ← r + γ (1 − terminal) V(s′)                      mean Huber error
    π(a | s) ← logged a, weighted by exp(β (Q̄(s, a) − V(s)))  mean −weight · log π(a | s)

No action outside the logs is ever evaluated in training. The agent takes the likeliest action.
"""

from __future__ import annotations

import torch
from torch import nn

from sept_offline.agent.networks import MLP
from sept_offline.control.d3rlpy import seeded, to_numpy
from sept_offline.control.replay import Batch
from sept_offline.settings import ControlConfig
from sept_offline.training.adam import FlatAdam, flatten

LARGEST_WEIGHT = 100.0


class DiscreteIQL:
    """Value, action values and policy, three networks with one optimiser, and a target of Q."""

    def __init__(self, config: ControlConfig, input_dim: int, width: int, seed: int) -> None:
        self._config = config
        with seeded(seed):
            self._q, self._target_q, self._v, self.policy = (
                network(config, input_dim, outputs) for outputs in (width, width, 1, width)
            )
        self._target_q.load_state_dict(self._q.state_dict())
        learned = nn.ModuleList([self._q, self._v, self.policy])
        self._adam = FlatAdam(list(learned.parameters()), config.learning_rate)
        self.deployed = self._adam.online
        """The weights whose average is deployed."""
        self._target = flatten(list(self._target_q.parameters()))
        self._limits: tuple[float, float] | None = None

    def update(self, batch: Batch) -> float:
        """One update; its loss."""
        config, actions = self._config, batch.actions.view(-1, 1)
        with torch.no_grad():
            after = self._v(batch.next_inputs)[:, 0]
            if self._limits is not None:
                after = after.clamp(*self._limits)
            wanted = batch.rewards + config.gamma * (1 - batch.terminals) * after
            reached = self._target_q(batch.inputs).gather(1, actions)[:, 0]
        advantage = reached - self._v(batch.inputs)[:, 0]
        side = (config.iql_expectile - (advantage.detach() < 0).float()).abs()
        of_v = (side * advantage.square()).mean()
        chosen = self._q(batch.inputs).gather(1, actions)[:, 0]
        of_q = nn.functional.smooth_l1_loss(chosen, wanted)
        weight = (config.iql_temperature * advantage.detach()).exp().clamp(max=LARGEST_WEIGHT)
        chances = self.policy(batch.inputs).log_softmax(dim=1).gather(1, actions)[:, 0]
        loss = of_v + of_q - (weight * chances).mean()
        self._adam.zero_grad()
        loss.backward()
        if config.grad_clip is not None:
            nn.utils.clip_grad_norm_(self._adam.parameters, config.grad_clip)
        self._adam.step()
        # Q comes first in the flat tensor; V and the policy have no target
        self._target.lerp_(self.deployed[: self._target.numel()], config.target_rate)
        return float(loss.detach())

    def limit_targets(self, low: float, high: float) -> None:
        """Keep the targets within these values."""
        self._limits = (low, high)

    def value(self, inputs: torch.Tensor) -> torch.Tensor:
        """The current value `[n]` of the likeliest action at `inputs[n, input_dim]`."""
        with torch.no_grad():
            likeliest = self.policy(inputs).argmax(dim=1, keepdim=True)
            values: torch.Tensor = self._q(inputs).gather(1, likeliest)[:, 0]
            return values

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """What the policy prefers, `[n, width]`: the likeliest action has the highest."""
        with torch.no_grad():
            preferences: torch.Tensor = self.policy(inputs)
            return preferences

    def tensors(self) -> dict[str, torch.Tensor]:
        """All that an update changes."""
        return {**self._adam.tensors(), "target": self._target}

    def export(self, weights: torch.Tensor) -> tuple[list[MLP], None]:
        """The policy's network: log-probabilities of the actions, up to a constant."""
        return [to_numpy(self.policy, weights)], None


def network(config: ControlConfig, inputs: int, outputs: int) -> nn.Sequential:
    """Layers as d3rlpy's encoders have them."""
    layers: list[nn.Module] = []
    for units in config.hidden:
        layers += [nn.Linear(inputs, units), nn.ReLU()]
        if config.layer_norm:
            layers.append(nn.LayerNorm(units))
        inputs = units
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))

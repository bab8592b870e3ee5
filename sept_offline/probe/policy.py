"""The probe policy π(a|s): a small softmax network in torch, and its NumPy form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.latent.export import perceptron_to_numpy
from sept_offline.training.inputs import Doubles, Floats, Scaling
from sept_offline.training.layers import initialise, layers_of, perceptron


class PolicyNetwork(nn.Module):
    """Three hidden layers and a softmax over actions; uniform until it learns."""

    def __init__(
        self, num_actions: int, hidden: int, scaling: Scaling, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.scaling = scaling
        self.network = perceptron(len(scaling.mean), (hidden,) * 3, num_actions)
        initialise(self, rng)
        with torch.no_grad():
            for last in layers_of(self.network)[-1]:
                last.zero_()

    def inputs(self, observations: Floats) -> Tensor:
        """Standardised observations, [..., d]."""
        return torch.from_numpy(self.scaling(observations))

    def log_probabilities(self, inputs: Tensor) -> Tensor:
        """log π(·|s), [..., A]."""
        return torch.log_softmax(self.network(inputs), dim=-1)

    def export(self) -> ProbePolicy:
        """The policy as it is now, in NumPy."""
        return ProbePolicy(
            Standardiser(self.scaling.mean, self.scaling.scale), perceptron_to_numpy(self.network)
        )


@dataclass(frozen=True)
class ProbePolicy:
    """π(a|s) = softmax(network(standardiser(s))), for the agent."""

    standardiser: Standardiser
    network: MLP

    def probabilities(self, observations: Floats) -> Doubles:
        """[n, d] to [n, A]."""
        scores = self.network(self.standardiser(observations)).astype(np.float64)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        result: Doubles = scores / scores.sum(axis=-1, keepdims=True)
        return result


def segment_log_probability(log_probabilities: Tensor, actions: Tensor) -> Tensor:
    """Σ_t log π(a_t|s_t), [N], from log π [N, n, A] and actions [N, n]."""
    return log_probabilities.gather(-1, actions.unsqueeze(-1)).squeeze(-1).sum(-1)

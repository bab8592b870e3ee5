"""The probe policy π(a|s) in torch: a softmax over a finite set, truncated normals in a box."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent.networks import Standardiser
from sept_offline.agent.probes import LOG_DEVIATION, NetworkProbe, NormalProbe
from sept_offline.data.records import Segments
from sept_offline.training.inputs import Doubles, Floats, standardised
from sept_offline.training.layers import initialise, layers_of, perceptron, to_numpy


class PolicyNetwork(nn.Module, ABC):
    """Three hidden layers, and the parameters of a distribution; uniform until it learns."""

    def __init__(
        self, outputs: int, hidden: tuple[int, ...], scaling: Standardiser, rng: torch.Generator
    ) -> None:
        super().__init__()
        self.scaling = scaling
        self.network = perceptron(len(scaling.mean), hidden, outputs)
        initialise(self, rng)
        with torch.no_grad():
            for last in layers_of(self.network)[-1]:
                last.zero_()

    def inputs(self, observations: Floats) -> Tensor:
        """Standardised observations, [..., d]."""
        return standardised(self.scaling, observations)

    @abstractmethod
    def read(self, actions: NDArray[Any]) -> Tensor:
        """Logged actions as `log_probability` takes them."""

    @abstractmethod
    def log_probability(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s) of the actions taken, [...]; in a box a density, in the actions' own units."""

    @abstractmethod
    def distance(self, inputs: Tensor, actions: Tensor, propensities: Tensor) -> Tensor:
        """Cross-entropy from μ to π, least at π = μ."""

    @abstractmethod
    def unsupported(self, inputs: Tensor, propensities: Tensor, likely: float) -> Tensor:
        """[...]: whether π has a probability above `likely` for an action that μ never takes."""

    @abstractmethod
    def export(self) -> NetworkProbe:
        """The current policy, for the agent."""

    def along(self, segments: Segments) -> Doubles:
        """Σ_t log π(a_t|s_t) of segments, [N]."""
        seen = segments.observations[:, : segments.actions.shape[1]]
        with torch.no_grad():
            each = self.log_probability(self.inputs(seen), self.read(segments.actions))
        return np.asarray(each.double().sum(-1).numpy())


class SoftmaxNetwork(PolicyNetwork):
    """π over a finite set."""

    def read(self, actions: NDArray[Any]) -> Tensor:
        """See PolicyNetwork."""
        return torch.from_numpy(actions.astype(np.int64))

    def log_probabilities(self, inputs: Tensor) -> Tensor:
        """log π(·|s), [..., A]."""
        return torch.log_softmax(self.network(inputs), dim=-1)

    def log_probability(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """See PolicyNetwork."""
        return self.log_probabilities(inputs).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def distance(self, inputs: Tensor, actions: Tensor, propensities: Tensor) -> Tensor:
        """See PolicyNetwork; over all actions, by their probabilities `[..., A]`."""
        return -(propensities * self.log_probabilities(inputs)).sum(-1).mean()

    def unsupported(self, inputs: Tensor, propensities: Tensor, likely: float) -> Tensor:
        """See PolicyNetwork."""
        chances = self.log_probabilities(inputs).exp()
        return ((chances > likely) & (propensities <= 0)).any(dim=-1)

    def export(self) -> NetworkProbe:
        """See PolicyNetwork."""
        return NetworkProbe(self.scaling, to_numpy(self.network))


class NormalNetwork(PolicyNetwork):
    """π over a box: normal components, cut off at the bounds; the formula of `agent.probes`."""

    def __init__(
        self, space: Box, hidden: tuple[int, ...], scaling: Standardiser, rng: torch.Generator
    ) -> None:
        super().__init__(2 * space.width, hidden, scaling, rng)
        self.space = space
        self._log_half = float(np.log(space.half).sum())
        with torch.no_grad():
            # as wide as it gets: nearly uniform
            layers_of(self.network)[-1][1][space.width :] = LOG_DEVIATION[1]

    def read(self, actions: NDArray[Any]) -> Tensor:
        """See PolicyNetwork; scaled to [−1, 1]."""
        return torch.from_numpy(self.space.encode(actions)).double()

    def parameters_at(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-deviation of each component, scaled to [−1, 1]; [..., k] each."""
        mean, raw = self.network(inputs).double().chunk(2, dim=-1)
        # the value is clipped and the gradient is not: at the limit it could never come back
        return torch.tanh(mean), raw + (raw.clamp(*LOG_DEVIATION) - raw).detach()

    def log_probability(self, inputs: Tensor, actions: Tensor) -> Tensor:
        """See PolicyNetwork."""
        return log_truncated(actions, *self.parameters_at(inputs)).sum(-1) - self._log_half

    def distance(self, inputs: Tensor, actions: Tensor, propensities: Tensor) -> Tensor:
        """See PolicyNetwork; from the logged actions, which are draws from μ."""
        return -self.log_probability(inputs, actions).mean()

    def unsupported(self, inputs: Tensor, propensities: Tensor, likely: float) -> Tensor:
        """See PolicyNetwork; a log-density says nothing about actions that were not taken."""
        return torch.zeros(propensities.shape, dtype=torch.bool)

    def export(self) -> NormalProbe:
        """See PolicyNetwork."""
        return NormalProbe(self.scaling, to_numpy(self.network))


def log_truncated(values: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Log-density of normal components that are cut off at ±1, not summed; `values` in [−1, 1]."""
    deviation = torch.exp(log_deviation)
    away = (values - mean) / deviation
    upper = torch.special.log_ndtr((1 - mean) / deviation)
    lower = torch.special.log_ndtr((-1 - mean) / deviation)
    mass: Tensor = upper + torch.log1p(-torch.exp(lower - upper))
    return -0.5 * (away**2 + math.log(2 * math.pi)) - log_deviation - mass


def policy_network(
    space: ActionSpace, hidden: tuple[int, ...], scaling: Standardiser, rng: torch.Generator
) -> PolicyNetwork:
    """The policy network of an action space."""
    if isinstance(space, Box):
        return NormalNetwork(space, hidden, scaling, rng)
    return SoftmaxNetwork(space.width, hidden, scaling, rng)

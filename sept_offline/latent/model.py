"""A fitted latent: posteriors and ELBOs of segments, and its export to the agent's runtime."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.encoders import AnyEncoder
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.data.records import Segments
from sept_offline.latent.networks import LatentNetwork, TransitionNetwork
from sept_offline.seeding import torch_generator
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Doubles, Floats
from sept_offline.training.layers import kl_standard, log_normal

BATCH = 1024
DRAWS = 8
LEAST_SPREAD = 0.05
"""An axis along which the instances spread less than this share of the widest is not in use."""


@dataclass(frozen=True)
class LatentModel:
    """The result of the latent stage.

    network: torch, with the scalings inside; space: of the actions; instance_mean[I, k] and
    instance_log_variance[I, k]: the posterior of each training instance (zeros without data).
    """

    network: LatentNetwork
    space: ActionSpace
    instance_mean: Floats
    instance_log_variance: Floats

    @property
    def dim(self) -> int:
        """k."""
        return self.network.dim

    @property
    def used_dimensions(self) -> int:
        """Principal axes along which the training instances differ, beyond doubt.

        Their spread there exceeds that of their posteriors, and is not tiny next to the widest.
        """
        if len(self.instance_mean) < 2:
            return 0
        centred = self.instance_mean.astype(np.float64) - self.instance_mean.mean(axis=0)
        spread = np.linalg.svd(centred, compute_uv=False) / np.sqrt(len(centred) - 1)
        doubt = float(np.exp(0.5 * self.instance_log_variance).mean())
        return int((spread > max(doubt, LEAST_SPREAD * spread[0])).sum())

    def reading(self, steps: int) -> LatentModel:
        """The same for segments of another length, where single transitions are read."""
        if not isinstance(self.network, TransitionNetwork):
            return self
        network = copy.copy(self.network)
        network.steps = steps
        return replace(self, network=network)

    @property
    def encoder(self) -> AnyEncoder:
        """q(z|segment) in NumPy, for the agent."""
        return self.network.to_encoder()

    @property
    def decoder(self) -> TransitionDecoder | None:
        """p(s′−s|s, a, z) in NumPy, for novelty, if the network has such a form."""
        return self.network.to_decoder()

    def encode(self, segments: Segments) -> tuple[Floats, Floats]:
        """Mean and log-variance of q(z|segment), [N, k] each."""
        return self.encode_arrays(segments.observations, segments.actions)

    def encode_arrays(self, observations: Floats, actions: NDArray[Any]) -> tuple[Floats, Floats]:
        """The same of `observations[N, T+1, d]` and `actions[N, T]`, or `[N, T, k]` of a box."""
        parts = self._batches(
            observations, actions, lambda o, a: torch.stack(self.network.encode(o, a)), dim=1
        )
        return parts[0].numpy(), parts[1].numpy()

    def elbo(self, segments: Segments, draws: int = DRAWS) -> Doubles:
        """E_q log p(segment|z) − KL(q ‖ N(0, I)) of each segment, [N].

        The expectation is over the same few antithetic draws for every row, so that a row's value
        does not depend on the others'.
        """
        half = torch.randn((draws + 1) // 2, self.dim, generator=torch_generator(0, "elbo"))
        noise = torch.cat((half, -half))

        def value(observations: Tensor, actions: Tensor) -> Tensor:
            q = self.network.encode(observations, actions)
            spread = torch.exp(0.5 * q[1])
            total = torch.zeros(len(actions), dtype=torch.float64)
            for draw in noise:
                z = q[0] + spread * draw
                total += self.network.log_prob(observations, actions, z).double()
            return total / len(noise) - kl_standard(q).double()

        return self._batches(segments.observations, segments.actions, value, dim=0).numpy()

    def information(self, segments: Segments) -> Doubles:
        """log q(m_i|segment), m_i the mean of the segment's own instance, [N]."""
        mean, log_variance = (torch.from_numpy(part) for part in self.encode(segments))
        centres = torch.from_numpy(self.instance_mean[segments.instance])
        return log_normal(centres, mean, log_variance).double().numpy()

    def _batches(
        self,
        observations: Floats,
        actions: NDArray[Any],
        function: Callable[[Tensor, Tensor], Tensor],
        dim: int,
    ) -> Tensor:
        seen = torch.from_numpy(np.ascontiguousarray(observations))
        taken = torch.from_numpy(self.space.encode(actions))
        with one_thread(), torch.no_grad():
            parts = [
                function(seen[i : i + BATCH], taken[i : i + BATCH])
                for i in range(0, max(len(actions), 1), BATCH)
            ]
        return torch.cat(parts, dim=dim)

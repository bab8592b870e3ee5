"""Fits the Bayesian network and each training instance's w to the logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace
from sept_offline.dynamics.columns import Columns, Reader
from sept_offline.dynamics.energy import alpha_energy, log_ratio
from sept_offline.dynamics.network import Dynamics, draw
from sept_offline.seeding import torch_generator
from sept_offline.settings import DynamicsConfig
from sept_offline.threads import one_thread
from sept_offline.training.draws import Balanced
from sept_offline.training.gaussians import Gaussian, Posteriors
from sept_offline.training.inputs import StepsLike
from sept_offline.training.updates import UpdateStage, annealed, check_finite, descend

WATCHED = 2048
"""Transitions on which the share of what is unexplained is watched."""


class DynamicsStage(UpdateStage):
    """Minimises the α energy of q(W) Π_i q_i(w), both Gaussian, over logged transitions.

    W has the prior N(0, prior_variance), each w the prior N(0, I). The noise is a plain parameter.
    """

    def __init__(
        self,
        steps: StepsLike,
        columns: Columns,
        config: DynamicsConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
    ) -> None:
        super().__init__("dynamics", config.updates)
        self.config = config
        rng = torch_generator(seed, "dynamics", "initialise")
        reader = Reader(columns)
        self.dynamics = Dynamics(
            reader, space.width, config.dim, config.hidden, config.initial_spread, rng
        )
        self.posteriors = Posteriors(num_instances, config.dim, config.latent_spread, rng)
        self.rng = torch_generator(seed, "dynamics", "train")
        groups: list[dict[str, Any]] = [
            {"params": list(self.dynamics.parameters())},
            {"params": list(self.posteriors.parameters()), "factor": config.latent_factor},
        ]
        self.optimiser = torch.optim.Adam(groups, lr=config.learning_rate, fused=True)
        before = torch.from_numpy(steps.observations[steps.row])
        after = torch.from_numpy(steps.observations[steps.row + 1])
        self._known = self.dynamics.known(before, torch.from_numpy(space.encode(steps.actions)))
        self._change = reader.change(before, after)
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._rows = Balanced(steps.instance)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._shared = torch.from_numpy(np.maximum(counts, 1).astype(np.float32))
        self._watched = torch.arange(0, len(self._known), max(1, len(self._known) // WATCHED))
        variance = torch.full((), config.prior_variance)
        self._prior: Gaussian = (torch.zeros(()), torch.log(variance))

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the energy is a mean over these updates."""
        (energy,) = self._repeat(updates, 1, torch.float64)
        with one_thread():
            metrics = {"energy": energy, "unexplained": self._unexplained()}
        check_finite(metrics, self.name, self.done)
        return metrics

    def _update(self) -> Tensor:
        config, rng, network = self.config, self.rng, self.dynamics.network
        rows = self._rows.draw(config.batch_size, rng)
        instance, known, change = self._instance[rows], self._known[rows], self._change[rows]
        q = (self.posteriors.mean[instance], self.posteriors.log_variance[instance])
        weights, w = network.draw(config.samples, rng), draw(q, config.samples, rng)
        of_weights = log_ratio(weights, (network.mean, network.log_variance), self._prior)
        of_latent = log_ratio(w, q, (torch.zeros(()), torch.zeros(())))
        site = of_weights.unsqueeze(1) / len(self._known) + of_latent / self._shared[instance]
        likelihood = self.dynamics.log_likelihood(change, known, w, weights)
        energy = alpha_energy(likelihood, site, config.alpha)
        rate = annealed(config.learning_rate, config.learning_rate_end, self.done, self.total)
        descend(self.optimiser, energy, rate)
        return energy.detach()

    def _unexplained(self) -> float:
        """The share of the changes' variance that the mean network does not explain."""
        rows, varies = self._watched, self.dynamics.reader.varies
        with torch.no_grad():
            w = self.posteriors.mean[self._instance[rows]].unsqueeze(0)
            mean = self.dynamics.network.mean.unsqueeze(0)
            error = self._change[rows] - self.dynamics.predict(self._known[rows], w, mean)[0]
            return float((error**2 * varies).mean(0).sum() / varies.sum().clamp_min(1))

    def _modules(self) -> dict[str, nn.Module]:
        return {"dynamics": self.dynamics, "posteriors": self.posteriors}

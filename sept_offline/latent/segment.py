"""The segment objective, the paper's: a VAE of initial segments with LSTM encoder and decoder."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Segments
from sept_offline.errors import ConfigError
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import SegmentNetwork
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.training.inputs import Balanced, Doubles, changes, check_segments
from sept_offline.training.layers import kl_standard, sample
from sept_offline.training.updates import UpdateStage


class SegmentLatentStage(UpdateStage):
    """Trains the paper's VAE on logged segments, drawn by segment_weights[N] within an instance."""

    watched = ("log_likelihood", "kl", "entropy")

    def __init__(
        self,
        segments: Segments,
        config: LatentConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
        segment_weights: Doubles | None = None,
    ) -> None:
        check_segments(segments, space, num_instances)
        length = segments.actions.shape[1]
        if length < 2 and not config.changes:
            raise ConfigError(
                f"latent.objective 'segment' needs probe_steps of at least 2, found {length}: "
                "without the final state one step has no transition; use latent.changes=true."
            )
        super().__init__("latent", config.updates, (config.learning_rate, config.learning_rate_end))
        self.minibatches = config.minibatches
        self.config, self.space, self.num_instances = config, space, num_instances
        self.segments, self._weights = segments, segment_weights
        self.draws = Balanced(segments.instance, segment_weights)
        seen, width = segments.observations, segments.observations.shape[-1]
        change = None
        if config.changes:
            before, after = (rows.reshape(-1, width) for rows in (seen[:, :-1], seen[:, 1:]))
            change = Standardiser.fit(changes(before, after))
        self.network = SegmentNetwork(
            length,
            space.width,
            config,
            Standardiser.fit(seen[:, :length].reshape(-1, width)),
            torch_generator(seed, "latent", "initialise"),
            change,
        )
        self.optimise({"network": self.network}, torch_generator(seed, "latent", "train"))
        with torch.no_grad():
            self.steps = self.network.read(
                torch.from_numpy(np.ascontiguousarray(seen)),
                torch.from_numpy(space.encode(segments.actions)),
            )

    def _update(self) -> Tensor:
        return self.learn_from(self.draws.draw(self.config.segments, self.rng))

    def learn_from(self, rows: Tensor) -> Tensor:
        """One step on these segments; log-likelihood, KL and entropy, [3]."""
        steps = self.steps[rows]
        q = self.network.posterior(steps)
        likelihood = self.network.likelihood(steps, sample(q, self.rng)).mean()
        prior = kl_standard(q).mean()
        entropy = 0.5 * (1 + np.log(2 * np.pi) + q[1]).sum(-1).mean()
        self._descend(-likelihood + self.config.beta * prior + self.config.entropy * entropy)
        return torch.stack((likelihood, prior, entropy)).detach()

    def result(self) -> LatentModel:
        """The fitted latent."""
        return self.summarise(self._weights)

    def summarise(self, weights: Doubles | None) -> LatentModel:
        """A latent model whose instances have the moments of their segments' posteriors."""
        nothing = np.zeros((2, self.num_instances, self.network.dim), np.float32)
        model = LatentModel(self.network, self.space, *nothing)
        mean, log_variance = model.encode(self.segments)
        share = np.ones(len(mean)) if weights is None else np.asarray(weights, dtype=np.float64)
        for instance in np.unique(self.segments.instance):
            rows = self.segments.instance == instance
            part = share[rows] / share[rows].sum()
            centre = part @ mean[rows]
            second = part @ (np.exp(log_variance[rows]) + (mean[rows] - centre) ** 2)
            model.instance_mean[instance] = centre
            model.instance_log_variance[instance] = np.log(np.maximum(second, 1e-12))
        return model

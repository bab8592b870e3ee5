"""The segment objective, the paper's: a VAE of initial segments with LSTM encoder and decoder."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser
from sept_offline.errors import ConfigError
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import SegmentNetwork
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.draws import Balanced
from sept_offline.training.gaussians import kl_standard, sample
from sept_offline.training.inputs import Doubles, SegmentsLike, check_segments
from sept_offline.training.snapshots import load_training, save_training
from sept_offline.training.updates import annealed, check_finite, descend

METRICS = ("log_likelihood", "kl", "entropy")


class SegmentLearner:
    """Network, optimiser and one step of the paper's VAE; who draws the segments is left open."""

    def __init__(
        self, segments: SegmentsLike, config: LatentConfig, seed: int, space: ActionSpace
    ) -> None:
        length = segments.actions.shape[1]
        if length < 2 and not config.changes:
            raise ConfigError(
                f"latent.objective 'segment' needs probe_steps of at least 2, found {length}: "
                "without the final state one step has no transition; use latent.changes=true."
            )
        self.config, self.space = config, space
        seen, width = segments.observations, segments.observations.shape[-1]
        scaling = Standardiser.fit(seen[:, :length].reshape(-1, width))
        change = None
        if config.changes:
            change = Standardiser.fit((seen[:, 1:] - seen[:, :-1]).reshape(-1, width))
        self.network = SegmentNetwork(
            length,
            space.width,
            config.dim,
            config.encoder_units,
            config.decoder_units,
            scaling,
            torch_generator(seed, "latent", "initialise"),
            change,
        )
        self.rng = torch_generator(seed, "latent", "train")
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=config.learning_rate, fused=True
        )
        with torch.no_grad():
            self.steps = self.network.read(
                torch.from_numpy(np.ascontiguousarray(segments.observations)),
                torch.from_numpy(space.encode(segments.actions)),
            )

    def update(self, rows: Tensor, rate: float) -> Tensor:
        """One step on these segments; returns log-likelihood, KL and entropy, [3]."""
        steps = self.steps[rows]
        q = self.network.posterior(steps)
        likelihood = self.network.likelihood(steps, sample(q, self.rng)).mean()
        prior = kl_standard(q).mean()
        entropy = 0.5 * (1 + np.log(2 * np.pi) + q[1]).sum(-1).mean()
        loss = -likelihood + self.config.beta * prior + self.config.entropy * entropy
        descend(self.optimiser, loss, rate)
        return torch.stack((likelihood, prior, entropy)).detach()

    def summarise(
        self, segments: SegmentsLike, num_instances: int, weights: Doubles | None = None
    ) -> LatentModel:
        """A latent model whose instances have the moments of their segments' posteriors."""
        nothing = np.zeros((2, num_instances, self.network.dim), np.float32)
        model = LatentModel(self.network, self.space, *nothing)
        mean, log_variance = model.encode(segments)
        share = np.ones(len(mean)) if weights is None else np.asarray(weights, dtype=np.float64)
        for instance in np.unique(segments.instance):
            own = segments.instance == instance
            part = share[own] / share[own].sum()
            centre = part @ mean[own]
            second = part @ (np.exp(log_variance[own]) + (mean[own] - centre) ** 2)
            model.instance_mean[instance] = centre
            model.instance_log_variance[instance] = np.log(np.maximum(second, 1e-12))
        return model

    def save(self, state: StageState) -> None:
        """Add everything that changes to a snapshot."""
        save_training(state, {"network": self.network}, self.optimiser, self.rng)

    def load(self, state: StageState) -> None:
        """Take everything that changes from a snapshot."""
        load_training(state, {"network": self.network}, self.optimiser, self.rng)


class SegmentLatentStage:
    """Trains the paper's VAE on logged segments, drawn by segment_weights[N] within an instance."""

    def __init__(
        self,
        segments: SegmentsLike,
        config: LatentConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
        segment_weights: Doubles | None = None,
    ) -> None:
        check_segments(segments, space, num_instances)
        self.name = "latent"
        self.total, self.done = config.updates, 0
        self.config, self.num_instances = config, num_instances
        self.segments, self.weights = segments, segment_weights
        self.learner = SegmentLearner(segments, config, seed, space)
        self._draws = Balanced(segments.instance, segment_weights)

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are means over these updates."""
        config, learner = self.config, self.learner
        count = min(updates, self.total - self.done)
        sums = torch.zeros(3)
        with one_thread():
            for _ in range(count):
                rate = annealed(
                    config.learning_rate, config.learning_rate_end, self.done, self.total
                )
                for _ in range(config.minibatches):
                    rows = self._draws.draw(config.segments, learner.rng)
                    sums += learner.update(rows, rate)
                self.done += 1
        values = (sums / max(count * config.minibatches, 1)).tolist()
        metrics = dict(zip(METRICS, values, strict=True))
        check_finite(metrics, self.name, self.done)
        return metrics

    def state(self) -> StageState:
        """See Stage."""
        state = StageState(values={"done": self.done})
        self.learner.save(state)
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        self.learner.load(state)
        self.done = int(state.values["done"])

    def result(self) -> LatentModel:
        """The fitted latent."""
        return self.learner.summarise(self.segments, self.num_instances, self.weights)

"""The instance objective: a latent for each training instance, and an encoder that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.errors import DataError
from sept_offline.latent.arrays import (
    Doubles,
    Integers,
    Scaling,
    SegmentsLike,
    StepsLike,
    check_segments,
    fit_scaling,
    varying,
)
from sept_offline.latent.config import LatentConfig
from sept_offline.latent.identification import neighbour_share
from sept_offline.latent.loop import Loop
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import (
    InstanceNetwork,
    kl_between,
    kl_standard,
    log_normal,
    sample,
)
from sept_offline.latent.training import annealed, check_finite, set_rate
from sept_offline.seeding import torch_generator
from sept_offline.threads import one_thread

WATCHED = 512
"""Held-out segments, at most, whose identification is shown while the stage learns."""


class Posteriors(nn.Module):
    """q_i(z) of every training instance: free means and log-variances, [I, k] each."""

    def __init__(self, instances: int, dim: int, spread: float, rng: torch.Generator) -> None:
        super().__init__()
        # Small, or one instance's data may settle around two far-apart codes.
        self.mean = nn.Parameter(spread * torch.randn(instances, dim, generator=rng))
        self.log_variance = nn.Parameter(torch.full((instances, dim), 2 * float(np.log(spread))))


class Balanced:
    """Draws rows so that every instance counts alike, however many rows it has.

    With weights[N], the rows of an instance are drawn in proportion to theirs.
    """

    def __init__(self, instance: Integers, weights: Doubles | None = None) -> None:
        self.order = torch.from_numpy(np.argsort(instance, kind="stable"))
        present, counts = np.unique(instance, return_counts=True)
        self.present = torch.from_numpy(present)
        self.counts = torch.from_numpy(counts)
        self.offsets = torch.from_numpy(np.cumsum(counts) - counts)
        self.place = torch.zeros(int(present.max()) + 1, dtype=torch.int64)
        self.place[self.present] = torch.arange(len(present))
        self.cumulative: Tensor | None = None
        if weights is not None:
            ordered = np.asarray(weights, dtype=np.float64)[self.order.numpy()]
            shares = np.empty_like(ordered)
            for index, (start, count) in enumerate(zip(self.offsets, counts, strict=True)):
                part = ordered[int(start) : int(start) + count]
                # Share i lies in (i, i + 1], so that one search serves all instances.
                shares[int(start) : int(start) + count] = index + np.cumsum(part) / part.sum()
            self.cumulative = torch.from_numpy(shares)

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """`count` rows, [count]."""
        chosen = torch.randint(len(self.present), (count,), generator=rng)
        return self._within(chosen, rng)

    def draw_like(self, instance: Tensor, rng: torch.Generator) -> Tensor:
        """One row of each of the given instances, [n]."""
        return self._within(self.place[instance], rng)

    def _within(self, chosen: Tensor, rng: torch.Generator) -> Tensor:
        position = torch.rand(len(chosen), generator=rng, dtype=torch.float64)
        first, counts = self.offsets[chosen], self.counts[chosen]
        if self.cumulative is None:
            rank = first + (position * counts).long()
        else:
            rank = torch.searchsorted(self.cumulative, chosen + position)
        return self.order[torch.minimum(rank, first + counts - 1)]


class InstanceLatentStage(Loop):
    """Learns q_i, decoder and encoder in one loop with one optimiser.

    steps: all transitions of the training instances; segments: the first T steps of their episodes
    (with propensities or without, they are not read); segment_weights[N]: how often the encoder
    should see each segment within its instance, alike by default; held_out: segments of episodes
    that are not among the steps, whose identification is shown while the stage learns.
    """

    def __init__(
        self,
        steps: StepsLike,
        segments: SegmentsLike,
        config: LatentConfig,
        seed: int,
        *,
        num_actions: int,
        num_instances: int,
        segment_weights: Doubles | None = None,
        held_out: SegmentsLike | None = None,
    ) -> None:
        check_segments(segments, num_actions, num_instances)
        missing = np.setdiff1d(np.unique(segments.instance), np.unique(steps.instance))
        if len(missing):
            raise DataError(f"Instance number {missing[0]} has segments but no steps.")
        super().__init__("latent", config.updates)
        self.config, self.num_actions, self.num_instances = config, num_actions, num_instances
        before = steps.observations[steps.row]
        change = steps.observations[steps.row + 1] - before
        scalings = {
            "state": fit_scaling(before),
            "change": fit_scaling(change),
            **segment_scalings(segments),
        }
        rng = torch_generator(seed, "latent", "initialise")
        length = segments.actions.shape[1]
        self.network = InstanceNetwork(
            length, num_actions, config.dim, config.hidden, scalings, varying(change), rng
        )
        self.posteriors = Posteriors(num_instances, config.dim, config.initial_spread, rng)
        self.rng = torch_generator(seed, "latent", "train")
        groups: list[dict[str, Any]] = [
            {"params": list(self.network.parameters())},
            {"params": list(self.posteriors.parameters()), "factor": config.posterior_factor},
        ]
        self.optimiser = torch.optim.Adam(groups, lr=config.learning_rate, fused=True)
        self._states = torch.from_numpy(scalings["state"](before))
        self._changes = torch.from_numpy(scalings["change"](change))
        self._chosen = self.network.one_hot(torch.from_numpy(steps.actions.astype(np.int64)))
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._steps = Balanced(steps.instance)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._kl_weight = torch.from_numpy((config.beta / np.maximum(counts, 1)).astype(np.float32))
        with torch.no_grad():
            self._features = self._segment_features(segments)
            self._watched: Tensor | None = None
            if held_out is not None and len(held_out.instance):
                every = max(1, -(-len(held_out.instance) // WATCHED))
                self._watched = self._segment_features(held_out)[::every]
                self._watched_instance = held_out.instance[::every]
        self._segment_instance = torch.from_numpy(segments.instance.astype(np.int64))
        self._segments = Balanced(segments.instance, segment_weights)

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are means over these updates."""
        values = self._repeat(updates, 3)
        metrics = dict(zip(("log_likelihood", "kl", "encoder_kl"), values, strict=True))
        check_finite(metrics, self.name, self.done)
        # Of a transition: what the instance's latent costs is shared by all it explains.
        metrics["elbo"] = metrics["log_likelihood"] - metrics["kl"] * float(self._kl_weight.mean())
        if self._watched is not None:
            metrics["identification"] = self._identify(self._watched)
        return metrics

    def _segment_features(self, segments: SegmentsLike) -> Tensor:
        return self.network.segment_features(
            torch.from_numpy(np.ascontiguousarray(segments.observations)),
            torch.from_numpy(segments.actions.astype(np.int64)),
        )

    def _identify(self, watched: Tensor) -> float:
        """The identification of some of the held-out segments."""
        with one_thread(), torch.no_grad():
            known, _ = self.network.posterior(self._features)
            asked, _ = self.network.posterior(watched)
        return neighbour_share(
            known.numpy(), self._segment_instance.numpy(), asked.numpy(), self._watched_instance
        )

    def _update(self) -> Tensor:
        config, rng = self.config, self.rng
        rows = self._steps.draw(config.transitions, rng)
        instance = self._instance[rows]
        q = (self.posteriors.mean[instance], self.posteriors.log_variance[instance])
        likelihood = self._likelihood(rows, sample(q, rng))
        prior = kl_standard(q)
        picked = self._segments.draw(config.segments, rng)
        named = self._segment_instance[picked]
        guess = self.network.posterior(self._features[picked])
        target = (
            self.posteriors.mean[named].detach(),
            self.posteriors.log_variance[named].detach(),
        )
        encoder = kl_between(target, guess).mean()
        loss = -likelihood.mean() + (self._kl_weight[instance] * prior).mean() + encoder
        if config.through:
            # Without it the encoder learns which instance it sees, not what the decoder needs of
            # it, and unseen instances and few segments suffer. The mean alone: through a sample
            # the decoder would talk the encoder out of its doubts.
            rows = self._steps.draw_like(named, rng)
            loss = loss - config.through * self._likelihood(rows, guess[0]).mean()
        set_rate(
            self.optimiser,
            annealed(config.learning_rate, config.learning_rate_end, self.done, self.total),
        )
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        return torch.stack((likelihood.mean(), prior.mean(), encoder)).detach()

    def _likelihood(self, rows: Tensor, z: Tensor) -> Tensor:
        mean, log_variance = self.network.predict(self._states[rows], self._chosen[rows], z)
        return log_normal(self._changes[rows], mean, log_variance)

    def _modules(self) -> dict[str, nn.Module]:
        return {"network": self.network, "posteriors": self.posteriors}

    def result(self) -> LatentModel:
        """The fitted latent."""
        return LatentModel(
            network=self.network,
            instance_mean=self.posteriors.mean.detach().numpy().copy(),
            instance_log_variance=self.posteriors.log_variance.detach().numpy().copy(),
        )


def segment_scalings(segments: SegmentsLike) -> dict[str, Scaling]:
    """Scalings of the first steps' states and changes, [d] each."""
    length, width = segments.actions.shape[1], segments.observations.shape[-1]
    before = segments.observations[:, :length]
    change = segments.observations[:, 1 : length + 1] - before
    return {
        "segment_state": fit_scaling(before.reshape(-1, width)),
        "segment_change": fit_scaling(change.reshape(-1, width)),
    }

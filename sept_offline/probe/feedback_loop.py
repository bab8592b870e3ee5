"""The paper's feedback loop, offline: the VAE learns from what the probe would have logged."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.data.records import Segments
from sept_offline.latent.model import LatentModel
from sept_offline.latent.segment import SegmentLatentStage
from sept_offline.probe.behaviour import logged_or_estimated
from sept_offline.probe.stage import ProbeLearner, total_variation
from sept_offline.probe.weights import Diagnostics, balance, normalised
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig, ProbeConfig, Reward
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.layers import kl_standard, sample
from sept_offline.training.updates import check_finite, load_module, save_module

REWARDS: tuple[Reward, ...] = ("elbo", "negative-elbo", "total-variation")
"""Rewards of the loop; others need posteriors of instances, which its VAE does not have, and are
replaced by the ELBO."""


class PaperLoopStage(SegmentLatentStage):
    """VAE steps weighted by the probe alternate with probe steps on the ELBO of a tracking copy.

    history: the diagnostics of each update, whose `reward` is the mean over the last probe
    minibatch.
    """

    def __init__(
        self,
        segments: Segments,
        latent: LatentConfig,
        probe: ProbeConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
    ) -> None:
        super().__init__(segments, latent, seed, space=space, num_instances=num_instances)
        self.minibatches = 1
        self.probe = probe
        self.behaviour = logged_or_estimated(segments, space, seed)
        self.tracking = copy.deepcopy(self.network).requires_grad_(False)
        everything = np.arange(len(segments.actions))
        self.learner = ProbeLearner(segments, self.behaviour, probe, seed, everything)
        self._probe_rng = torch_generator(seed, "probe", "train")
        self.reward: Reward = probe.reward if probe.reward in REWARDS else "elbo"
        self._variation = torch.from_numpy(total_variation(segments, final_state=latent.changes))
        self.history: list[Diagnostics] = []

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the VAE's metrics are means, the probe's those of the last update."""
        metrics = self._repeat(updates)
        if self.history:
            metrics |= self.history[-1].metrics()
        check_finite(metrics, self.name, self.done)
        return metrics

    def weights(self) -> Tensor:
        """Self-normalised importance weights of all segments, [N]."""
        with torch.no_grad():
            return normalised(self.learner.log_ratio(self.learner.rows), self.learner.shares)

    def _update(self) -> Tensor:
        latent, probe = self.config, self.probe
        weights = self.weights()
        sums = torch.zeros(len(self.watched))
        for _ in range(latent.minibatches):
            sums += self.learn_from(
                torch.multinomial(weights, latent.segments, True, generator=self.rng)
            )
        with torch.no_grad():
            for slow, fast in zip(
                self.tracking.parameters(), self.network.parameters(), strict=True
            ):
                slow.lerp_(fast, probe.tracking_rate)
        for _ in range(probe.minibatches):
            rows = self.draws.draw(probe.batch, self._probe_rng)
            rewards = self._rewards(rows)
            mean = float(rewards.mean())
            if self.done < probe.warmup:
                break
            scaled = (rewards - mean) / rewards.std().clamp(min=1e-6)
            equal = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
            self.learner.ascend(rows, equal, scaled)
        unweighted = torch.zeros(len(weights), dtype=torch.float64)
        reached = self.learner.diagnostics(self.learner.rows, unweighted)
        self.history.append(dataclasses.replace(reached, reward=mean))
        return sums / latent.minibatches

    def _rewards(self, rows: Tensor) -> Tensor:
        if self.reward == "total-variation":
            return self._variation[rows]
        steps = self.steps[rows]
        with torch.no_grad():
            q = self.tracking.posterior(steps)
            likelihood = self.tracking.likelihood(steps, sample(q, self._probe_rng))
            elbo = (likelihood - self.config.beta * kl_standard(q)).double()
        return -elbo if self.reward == "negative-elbo" else elbo

    def state(self) -> StageState:
        """See Stage."""
        state = super().state()
        state.values["history"] = [dataclasses.asdict(entry) for entry in self.history]
        self.learner.save(state)
        save_module(state, "tracking", self.tracking)
        state.tensors["probe_rng"] = self._probe_rng.get_state()
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        super().restore(state)
        self.learner.load(state)
        load_module(state, "tracking", self.tracking)
        self._probe_rng.set_state(state.tensors["probe_rng"])
        self.history = [Diagnostics(**entry) for entry in state.values["history"]]

    def result(self) -> LatentModel:
        """The latent at the end of training."""
        with one_thread():
            weights = self.weights().numpy()
        # Undo the balance: instances' moments weigh a segment within its own instance only.
        return self.summarise(weights / balance(self.segments.instance))

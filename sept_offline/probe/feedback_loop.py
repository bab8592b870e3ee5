"""The paper's feedback loop, offline: the VAE learns from what the probe would have logged."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.latent.model import LatentModel
from sept_offline.latent.segment import METRICS, SegmentLearner
from sept_offline.probe.behaviour import Behaviour, logged_or_estimated
from sept_offline.probe.learner import ProbeLearner
from sept_offline.probe.policy import PolicyNetwork
from sept_offline.probe.rewards import total_variation
from sept_offline.probe.weights import Diagnostics, balance, normalised
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig, ProbeConfig, Reward
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.draws import Balanced
from sept_offline.training.gaussians import kl_standard, sample
from sept_offline.training.inputs import SegmentsLike, check_segments
from sept_offline.training.snapshots import load_module, save_module
from sept_offline.training.updates import annealed, check_finite


@dataclass(frozen=True)
class PaperLoopResult:
    """The latent and the probe that made each other.

    weights[N]: self-normalised importance weights of all segments under the probe; history: one
    record an update; `reward` there is the mean over the last probe minibatch.
    """

    latent: LatentModel
    policy: PolicyNetwork
    weights: np.typing.NDArray[np.float64]
    history: tuple[Diagnostics, ...]
    estimated: bool


class PaperLoopStage:
    """VAE steps weighted by the probe alternate with probe steps on the ELBO of a tracking copy.

    `probe.reward` may replace the ELBO by its negative or by total variation. `information` needs
    posteriors of instances, which this VAE does not have: the ELBO stands in for it.
    """

    def __init__(
        self,
        segments: SegmentsLike,
        latent: LatentConfig,
        probe: ProbeConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
        behaviour: Behaviour | None = None,
    ) -> None:
        check_segments(segments, space, num_instances)
        self.name = "latent"
        self.total, self.done = latent.updates, 0
        self.latent, self.probe = latent, probe
        self.segments, self.num_instances = segments, num_instances
        self.behaviour = behaviour or logged_or_estimated(segments, space, seed)
        self.vae = SegmentLearner(segments, latent, seed, space)
        self.tracking = copy.deepcopy(self.vae.network).requires_grad_(False)
        everything = np.arange(len(segments.actions))
        self.learner = ProbeLearner(segments, self.behaviour, probe, seed, everything)
        self.rng = torch_generator(seed, "probe", "train")
        self.reward: Reward = "elbo" if probe.reward == "information" else probe.reward
        self._variation = torch.from_numpy(total_variation(segments, final_state=latent.changes))
        self._draws = Balanced(segments.instance)
        self.history: list[Diagnostics] = []

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the VAE's metrics are means, the probe's those of the last update."""
        count = min(updates, self.total - self.done)
        sums = torch.zeros(len(METRICS))
        with one_thread():
            for _ in range(count):
                sums += self._update()
                self.done += 1
        values = (sums / max(count, 1)).tolist()
        metrics = dict(zip(METRICS, values, strict=True))
        if self.history:
            last = self.history[-1]
            metrics |= {"reward": last.reward, "ess": last.ess, "ess_share": last.ess_share}
            metrics |= {"largest_weight": last.largest, "violations": float(last.violations)}
        check_finite(metrics, self.name, self.done)
        return metrics

    def weights(self) -> Tensor:
        """Self-normalised importance weights of all segments, [N]."""
        with torch.no_grad():
            return normalised(self.learner.log_ratio(self.learner.rows), self.learner.shares)

    def _update(self) -> Tensor:
        config = self.latent
        rate = annealed(config.learning_rate, config.learning_rate_end, self.done, self.total)
        weights = self.weights()
        sums = torch.zeros(len(METRICS))
        for _ in range(config.minibatches):
            rows = torch.multinomial(weights, config.segments, True, generator=self.vae.rng)
            sums += self.vae.update(rows, rate)
        with torch.no_grad():
            for slow, fast in zip(
                self.tracking.parameters(), self.vae.network.parameters(), strict=True
            ):
                slow.lerp_(fast, self.probe.tracking_rate)
        for _ in range(self.probe.minibatches):
            rows = self._draws.draw(self.probe.batch, self.rng)
            rewards = self._rewards(rows)
            mean = float(rewards.mean())
            if self.done < self.probe.warmup:
                break
            scaled = (rewards - mean) / rewards.std().clamp(min=1e-6)
            equal = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
            self.learner.ascend(rows, equal, scaled)
        unweighted = torch.zeros(len(weights), dtype=torch.float64)
        reached = self.learner.diagnostics(self.learner.rows, unweighted)
        self.history.append(dataclasses.replace(reached, reward=mean))
        return sums / config.minibatches

    def _rewards(self, rows: Tensor) -> Tensor:
        if self.reward == "total-variation":
            return self._variation[rows]
        elbo = self._elbo(rows)
        return -elbo if self.reward == "negative-elbo" else elbo

    def _elbo(self, rows: Tensor) -> Tensor:
        steps = self.vae.steps[rows]
        with torch.no_grad():
            q = self.tracking.posterior(steps)
            likelihood = self.tracking.likelihood(steps, sample(q, self.rng))
            return (likelihood - self.latent.beta * kl_standard(q)).double()

    def state(self) -> StageState:
        """See Stage."""
        history = [dataclasses.asdict(entry) for entry in self.history]
        state = StageState(values={"done": self.done, "history": history})
        self.vae.save(state)
        self.learner.save(state)
        save_module(state, "tracking", self.tracking)
        state.tensors["probe_rng"] = self.rng.get_state()
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        self.vae.load(state)
        self.learner.load(state)
        load_module(state, "tracking", self.tracking)
        self.rng.set_state(state.tensors["probe_rng"])
        self.done = int(state.values["done"])
        self.history = [Diagnostics(**entry) for entry in state.values["history"]]

    def result(self) -> PaperLoopResult:
        """Latent and probe as they are at the end."""
        with one_thread():
            weights = self.weights().numpy()
        # Undo the balance: instances' moments weigh a segment within its own instance only.
        within = weights / balance(self.segments.instance)
        return PaperLoopResult(
            latent=self.vae.summarise(self.segments, self.num_instances, within),
            policy=self.learner.policy,
            weights=weights,
            history=tuple(self.history),
            estimated=self.behaviour.estimated,
        )

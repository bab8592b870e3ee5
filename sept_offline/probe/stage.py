"""The probe stage: importance-weighted REINFORCE on logged segments, checked on held-out ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser
from sept_offline.agent.probes import NetworkProbe
from sept_offline.data.records import Segments
from sept_offline.errors import DataError
from sept_offline.latent.model import LatentModel
from sept_offline.probe.behaviour import Behaviour, logged_or_estimated
from sept_offline.probe.policy import policy_network
from sept_offline.probe.weights import (
    Diagnostics,
    balance,
    check_possible,
    diagnose,
    effective,
    normalised,
)
from sept_offline.seeding import generator, torch_generator
from sept_offline.settings import ProbeConfig, Reward
from sept_offline.stage import StageState
from sept_offline.threads import one_thread
from sept_offline.training.adam import Adam
from sept_offline.training.inputs import Doubles, Integers
from sept_offline.training.updates import (
    check_finite,
    descend,
    load_module,
    load_optimiser,
    save_module,
    save_optimiser,
)

LIKELY = 0.01
"""A policy 'may take' an action it gives more than this probability."""
IMITATION = 100
"""Steps towards a behaviour that is not uniform, before any towards the reward."""
CLIP = 5.0
"""Rewards are clipped at this many standard deviations, to limit the effect of outliers."""


def segment_rewards(kind: Reward, model: LatentModel, segments: Segments) -> Doubles:
    """The reward of each segment, [N]."""
    return REWARDS[kind](model, segments)


def total_variation(segments: Segments, final_state: bool = True) -> Doubles:
    """1/T_p Σ_t Σ_i |s_{t+1,i} − s_{t,i}|, [N]: the paper's, in the observations' own units.

    The paper's trajectory ends before the state that the last action leads to; with `final_state`
    that change counts as well.
    """
    length = segments.actions.shape[1]
    seen = segments.observations[:, : length + final_state].astype(np.float64)
    return np.asarray(np.abs(np.diff(seen, axis=1)).sum(axis=(1, 2)) / length)


REWARDS: dict[Reward, Callable[[LatentModel, Segments], Doubles]] = {
    # log q(m_i|segment): how certain the segment makes its instance
    "information": lambda model, segments: model.information(segments),
    # how well the VAE predicts the segment: the paper's
    "elbo": lambda model, segments: model.elbo(segments),
    # how badly: maximum entropy, the paper's MaxEnt
    "negative-elbo": lambda model, segments: -model.elbo(segments),
    # how far the state moves: the paper's TotalVar
    "total-variation": lambda model, segments: total_variation(segments),
}
"""The rewards by their names in `probe.reward`."""


class ProbeLearner:
    """Policy, optimisers and the segments it learns from; `rows` are those it may look at."""

    def __init__(
        self,
        segments: Segments,
        behaviour: Behaviour,
        config: ProbeConfig,
        seed: int,
        rows: Integers,
    ) -> None:
        length, width = segments.actions.shape[1], segments.observations.shape[-1]
        seen = segments.observations[:, :length]
        self.policy = policy_network(
            behaviour.space,
            (config.hidden,) * 3,
            Standardiser.fit(seen.reshape(-1, width)),
            torch_generator(seed, "probe", "initialise"),
        )
        self.optimiser = Adam(self.policy.parameters(), config.learning_rate)
        self.retreat = Adam(self.policy.parameters(), config.learning_rate)
        self.floor = config.floor(behaviour.estimated)
        self.inputs = self.policy.inputs(seen)
        self.actions = self.policy.read(segments.actions)
        self.propensities = torch.from_numpy(behaviour.propensities.astype(np.float32))
        logged = behaviour.along(segments)
        check_possible(logged)
        self.log_mu = torch.from_numpy(logged.sum(axis=1))
        self.rows = torch.from_numpy(np.asarray(rows, dtype=np.int64))
        self.instance = segments.instance
        self.shares = torch.from_numpy(balance(segments.instance[rows]))

    def log_ratio(self, rows: Tensor) -> Tensor:
        """log Π π/μ of these segments, [n]."""
        each = self.policy.log_probability(self.inputs[rows], self.actions[rows])
        return each.sum(-1).double() - self.log_mu[rows]

    def ess(self) -> float:
        """The effective share of the rows it learns from."""
        with torch.no_grad():
            return float(effective(self.log_ratio(self.rows), self.shares))

    def ascend(self, rows: Tensor, shares: Tensor, rewards: Tensor) -> None:
        """A REINFORCE step on rewards[n]; where it would cross the floor, one towards μ instead.

        Weight times advantage is the exact gradient of the self-normalised estimate, whose own
        value is the baseline.
        """
        ratio = self.log_ratio(rows)
        with torch.no_grad():
            weights = normalised(ratio, shares)
            advantage = weights * (rewards - (weights * rewards).sum())
        before, share = self._weights(), self.ess()
        descend(self.optimiser, -(advantage * ratio).sum())
        if self.ess() >= self.floor:
            return
        self._put_back(before)
        self.imitate()
        reached = self.ess()
        if reached < self.floor and reached <= share:
            self._put_back(before)

    def imitate(self) -> None:
        """A step towards μ, down the cross-entropy from μ to π."""
        seen = (values[self.rows] for values in (self.inputs, self.actions, self.propensities))
        descend(self.retreat, self.policy.distance(*seen))

    def diagnostics(self, rows: Tensor, rewards: Tensor) -> Diagnostics:
        """Metrics of the policy on these segments with rewards[n]."""
        with torch.no_grad():
            unsupported = self.policy.unsupported(
                self.inputs[rows], self.propensities[rows], LIKELY
            )
            return diagnose(
                self.log_ratio(rows),
                torch.from_numpy(balance(self.instance[rows.numpy()])),
                rewards,
                int(unsupported.any(dim=1).sum()),
            )

    def save(self, state: StageState) -> None:
        """Add everything that changes to a snapshot."""
        save_module(state, "policy", self.policy)
        save_optimiser(state, "ascent", self.optimiser)
        save_optimiser(state, "retreat", self.retreat)

    def load(self, state: StageState) -> None:
        """Take everything that changes from a snapshot."""
        load_module(state, "policy", self.policy)
        load_optimiser(state, "ascent", self.optimiser)
        load_optimiser(state, "retreat", self.retreat)

    def _weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.policy.parameters()]

    def _put_back(self, weights: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, saved in zip(self.policy.parameters(), weights, strict=True):
                parameter.copy_(saved)


@dataclass(frozen=True)
class ProbeResult:
    """A probe, and why it should or should not be trusted.

    weights[N]: self-normalised importance weights of all segments under `policy`; history: one
    record per update, on the segments it learned from.
    """

    policy: NetworkProbe
    accepted: bool
    """Whether this is the learned probe; else it is the behaviour's own start."""
    reason: str
    """The same in a sentence, with figures."""
    improvement: float
    """Held-out reward of the learned probe over the behaviour's, in standard deviations."""
    error: float
    """Standard error of the improvement."""
    history: tuple[Diagnostics, ...]
    estimated: bool
    """Whether μ had to be estimated."""
    weights: Doubles


class ProbeStage:
    """Learns π(a|s) from segments and a reward for each, reward_per_segment[N]."""

    def __init__(
        self,
        segments: Segments,
        reward_per_segment: Doubles,
        config: ProbeConfig,
        seed: int,
        *,
        space: ActionSpace,
    ) -> None:
        count, finite = len(segments.actions), np.isfinite(reward_per_segment)
        if len(finite) != count or not finite.all():
            raise DataError(
                f"The probe's reward must be {count} finite numbers, one per segment; found "
                f"{len(finite)}, {int((~finite).sum())} of them not finite."
            )
        self.name = "probe"
        self.config, self.done = config, 0
        self.behaviour = logged_or_estimated(segments, space, seed)
        self.kept, checked = split(segments.instance, config.holdout, seed)
        self.checked = torch.from_numpy(checked)
        self.learner = ProbeLearner(segments, self.behaviour, config, seed, self.kept)
        self.rewards = torch.from_numpy(standardised(reward_per_segment, segments.instance))
        self.imitation = 0 if self.behaviour.uniform else IMITATION
        self.total = self.imitation + config.steps
        self.history: list[Diagnostics] = []
        self._start = self.learner.policy.export()

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are those of the last update."""
        learner = self.learner
        rewards = self.rewards[learner.rows]
        with one_thread():
            for _ in range(min(updates, self.total - self.done)):
                if self.done < self.imitation:
                    learner.imitate()
                else:
                    learner.ascend(learner.rows, learner.shares, rewards)
                self.done += 1
                if self.done == self.imitation:
                    self._start = learner.policy.export()
                self.history.append(learner.diagnostics(learner.rows, rewards))
        if not self.history:
            return {}
        metrics = self.history[-1].metrics()
        check_finite(metrics, self.name, self.done)
        return metrics

    def state(self) -> StageState:
        """See Stage."""
        history = [dataclasses.asdict(entry) for entry in self.history]
        state = StageState(values={"done": self.done, "history": history})
        self.learner.save(state)
        for name, array in self._start.network.to_arrays("start").items():
            state.tensors[name] = torch.from_numpy(np.array(array))
        return state

    def restore(self, state: StageState) -> None:
        """See Stage."""
        self.learner.load(state)
        self.done = int(state.values["done"])
        self.history = [Diagnostics(**entry) for entry in state.values["history"]]
        arrays = {k: v.numpy() for k, v in state.tensors.items() if k.startswith("start")}
        network = type(self._start.network).from_arrays(arrays, "start")
        self._start = type(self._start)(self._start.scaler, network)

    def result(self) -> ProbeResult:
        """The probe if it does better on held-out segments, or else the behaviour's own start."""
        with one_thread():
            everything = torch.arange(len(self.rewards))
            gain, error = self.improvement() if len(self.checked) else (math.nan, math.nan)
            accepted = gain > self.config.margin * error
            with torch.no_grad():
                ratio = self.learner.log_ratio(everything)
            shares = torch.from_numpy(balance(self.learner.instance))
            if not accepted:
                ratio = torch.zeros_like(ratio)
            weights = normalised(ratio, shares).numpy()
        doing = "kept" if accepted else "dropped, the agent starts as the behaviour does"
        evidence = "no held-out episode can check it"
        if len(self.checked):
            evidence = (
                f"held-out reward {gain:+.3f} ± {error:.3f} standard deviations relative to the "
                f"behaviour's{'' if accepted else ' is not a clear improvement'}"
            )
        return ProbeResult(
            policy=self.learner.policy.export() if accepted else self._start,
            accepted=accepted,
            reason=f"{doing}: {evidence}",
            improvement=gain,
            error=error,
            history=tuple(self.history),
            estimated=self.behaviour.estimated,
            weights=weights,
        )

    def improvement(self) -> tuple[float, float]:
        """Held-out E_π[R] − E_μ[R], and the standard error of this difference."""
        rewards = self.rewards[self.checked]
        shares = torch.from_numpy(balance(self.learner.instance[self.checked.numpy()]))
        with torch.no_grad():
            weights = normalised(self.learner.log_ratio(self.checked), shares)
        learned, logged = (weights * rewards).sum(), (shares * rewards).sum()
        influence = weights * (rewards - learned) - shares * (rewards - logged)
        return float(learned - logged), float(torch.sqrt((influence**2).sum()))


def split(instance: Integers, share: float, seed: int) -> tuple[Integers, Integers]:
    """Training rows and check rows, split within each instance; with share 0, all are both.

    An instance with two rows or more has at least one of each; one with a single row has none to
    check.
    """
    everything = np.arange(len(instance))
    if share == 0:
        return everything, everything
    rng = generator(seed, "probe", "holdout")
    checked = []
    for code in np.unique(instance):
        rows = rng.permutation(np.flatnonzero(instance == code))
        checked.append(rows[: min(max(1, round(share * len(rows))), len(rows) - 1)])
    check = np.sort(np.concatenate(checked)).astype(np.int64)
    return np.setdiff1d(everything, check), check


def standardised(values: Doubles, instance: Integers) -> Doubles:
    """Values centred within instances, in standard deviations, clipped; [N].

    An instance's own mean is the same for every probe, so taking it out changes no gradient in
    expectation and removes differences between instances that do not depend on the probe.
    """
    _, inverse, counts = np.unique(instance, return_inverse=True, return_counts=True)
    values = np.asarray(values, dtype=np.float64)
    # Ranks would lose the scale; quantiles bound what a single outlier can do to it.
    low, high = np.quantile(values, [0.005, 0.995])
    values = np.clip(values, low, high)
    centred = values - (np.bincount(inverse, values) / counts)[inverse]
    spread = centred.std()
    scaled: Doubles = np.clip(centred / (spread if spread > 1e-12 else 1.0), -CLIP, CLIP)
    return scaled

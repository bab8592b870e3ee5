"""One gradient step of a probe on logged segments, never below the floor of effective samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sept_offline.agent.networks import Standardiser
from sept_offline.probe.behaviour import Behaviour
from sept_offline.probe.policy import policy_network
from sept_offline.probe.weights import (
    Diagnostics,
    balance,
    check_possible,
    diagnose,
    effective,
    normalised,
)
from sept_offline.seeding import torch_generator
from sept_offline.settings import ProbeConfig
from sept_offline.stage import StageState
from sept_offline.training.inputs import Integers, SegmentsLike
from sept_offline.training.snapshots import load_module, load_optimiser, save_module, save_optimiser
from sept_offline.training.updates import descend

LIKELY = 0.01
"""A policy 'may take' an action it gives more than this probability."""


class ProbeLearner:
    """Policy, optimisers and the segments it learns from; `rows` are those it may look at."""

    def __init__(
        self,
        segments: SegmentsLike,
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
        self.optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=config.learning_rate, fused=True
        )
        self.retreat = torch.optim.Adam(
            self.policy.parameters(), lr=config.learning_rate, fused=True
        )
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

    def ascend(self, rows: Tensor, shares: Tensor, rewards: Tensor) -> bool:
        """A REINFORCE step on rewards[n]; where it would cross the floor, one towards μ instead.

        Weight times advantage is the exact gradient of the self-normalised estimate, whose own
        value is the baseline. Returns whether the step was taken.
        """
        ratio = self.log_ratio(rows)
        with torch.no_grad():
            weights = normalised(ratio, shares)
            advantage = weights * (rewards - (weights * rewards).sum())
        before, share = self._weights(), self.ess()
        descend(self.optimiser, -(advantage * ratio).sum())
        if self.ess() >= self.floor:
            return True
        self._put_back(before)
        descend(self.retreat, self.distance(self.rows))
        reached = self.ess()
        if reached < self.floor and reached <= share:
            self._put_back(before)
        return False

    def imitate(self) -> None:
        """A step towards μ."""
        descend(self.retreat, self.distance(self.rows))

    def distance(self, rows: Tensor) -> Tensor:
        """Cross-entropy from μ to π, least at π = μ."""
        return self.policy.distance(self.inputs[rows], self.actions[rows], self.propensities[rows])

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

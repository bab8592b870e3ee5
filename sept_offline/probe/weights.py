"""Importance weights of whole segments, and their effective sample size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import SMALLEST
from sept_offline.errors import DataError
from sept_offline.training.inputs import Doubles, Integers


@dataclass(frozen=True)
class Diagnostics:
    """The distance of a probe from the behaviour, on N segments."""

    ess: float
    """Effective sample size, N at π = μ."""
    ess_share: float
    """The same as a share of N."""
    largest: float
    """The largest self-normalised weight, 1/N at π = μ with balanced instances."""
    violations: int
    """Segments with an action that π may take and μ says it never does."""
    reward: float
    """Self-normalised estimate of E_π[R]."""

    def metrics(self) -> dict[str, float]:
        """The metrics that a stage reports."""
        return {
            "reward": self.reward,
            "ess": self.ess,
            "ess_share": self.ess_share,
            "largest_weight": self.largest,
            "violations": float(self.violations),
        }


def balance(instance: Integers) -> Doubles:
    """Shares that give every instance equal weight, [N], summing to 1."""
    _, inverse, counts = np.unique(instance, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / (len(counts) * counts[inverse]), dtype=np.float64)


def possible(log_mu: Doubles) -> NDArray[np.bool_]:
    """Which segments the behaviour itself could have logged, [N]; log_mu[N, n]: log μ(a_t|s_t)."""
    return np.asarray((log_mu > math.log(SMALLEST)).all(axis=1))


def check_possible(log_mu: Doubles) -> None:
    """Refuse segments that the behaviour itself could not have logged; log_mu[N, n]."""
    impossible = np.flatnonzero(~possible(log_mu))
    if len(impossible):
        raise DataError(
            f"Segment {impossible[0]} contains an action to which the behaviour assigns "
            "probability 0; check the propensities, or drop them to have them estimated."
        )


def normalised(log_ratio: Tensor, shares: Tensor) -> Tensor:
    """Self-normalised weights of log Π π/μ [N], balanced over instances by `shares` [N]; sum 1."""
    return torch.softmax(log_ratio + torch.log(shares), dim=0)


def effective(log_ratio: Tensor, shares: Tensor) -> Tensor:
    """Effective sample size as a share of N: (Σ b·w)² / Σ b·w², 1 at π = μ for any balance."""
    shares = shares / shares.sum()
    scaled = torch.exp(log_ratio - log_ratio.max())
    return (shares * scaled).sum() ** 2 / (shares * scaled**2).sum()


def diagnose(log_ratio: Tensor, shares: Tensor, rewards: Tensor, violations: int) -> Diagnostics:
    """The diagnostics of log-ratios [N]."""
    weights = normalised(log_ratio, shares)
    share = float(effective(log_ratio, shares))
    return Diagnostics(
        ess=share * len(log_ratio),
        ess_share=share,
        largest=float(weights.max()),
        violations=violations,
        reward=float((weights * rewards).sum()),
    )

"""Who counts how much, and how that could have come out otherwise: shares and their bootstrap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sept_offline.methods.hold_out import FEW_INSTANCES
from sept_offline.ope.table import Doubles


def equal_shares(instance: NDArray[np.int64]) -> Doubles:
    """`[E]`, summing to 1: instances count alike, and so do the episodes of one."""
    _, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    shares: Doubles = 1 / counts[code] / len(counts)
    return shares


def resampled_over(instance: NDArray[np.int64]) -> str:
    """ "instances", or "episodes" within instances where there are fewer than ten."""
    return "instances" if len(np.unique(instance)) >= FEW_INSTANCES else "episodes"


def bootstrap_shares(
    instance: NDArray[np.int64], replicates: int, rng: np.random.Generator
) -> Doubles:
    """`[replicates, E]`: the shares of episodes in data drawn again, with replacement."""
    names, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    if resampled_over(instance) == "instances":
        drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=replicates)
        return np.asarray(drawn[:, code] / counts[code] / len(names), dtype=np.float64)
    shares = np.zeros((replicates, len(instance)))
    for number, count in enumerate(counts):
        times = rng.multinomial(count, np.full(count, 1 / count), size=replicates)
        shares[:, code == number] = times / count / len(names)
    return shares


def halves(instance: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """`[E]`: which half each episode is in; each instance is split, unless most have one episode.

    Where instances are as good as single episodes, the instances themselves are dealt out.
    """
    names, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    if not split_within(instance):
        side = rng.permutation(len(names)) % 2 == 0
        return np.asarray(side[code])
    second = np.zeros(len(instance), dtype=bool)
    for number, count in enumerate(counts):
        # odd numbers are rounded by turns, so that the halves stay equal
        second[code == number] = rng.permutation(count) < (count + number % 2) // 2
    return second


def split_within(instance: NDArray[np.int64]) -> bool:
    """Whether every instance has episodes enough (four) to be in both halves."""
    return bool(np.unique(instance, return_counts=True)[1].min() >= 4)

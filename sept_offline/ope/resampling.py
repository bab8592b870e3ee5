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
    """`[E]`: which half each episode is in; each instance is split, those of one episode dealt out.

    Only of a single episode is one half empty.
    """
    _, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    second = np.zeros(len(instance), dtype=bool)
    for number, count in enumerate(counts):
        if count > 1:
            # odd numbers are rounded by turns, so that the halves stay equal
            second[code == number] = rng.permutation(count) < (count + number % 2) // 2
    lone = np.flatnonzero(counts[code] == 1)
    second[lone] = rng.permutation(len(lone)) % 2 == 0
    return second


def with_enough(instance: NDArray[np.int64]) -> NDArray[np.int64]:
    """The instances of `instance[E]` with episodes enough (four) to have a value of their own."""
    names, counts = np.unique(instance, return_counts=True)
    enough: NDArray[np.int64] = names[counts >= 4]
    return enough

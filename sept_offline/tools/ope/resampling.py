"""Weights of episodes and instances, and their bootstrap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sept_offline.methods.hold_out import FEW_INSTANCES
from sept_offline.tools.ope.table import Doubles

ENOUGH = 4
"""Minimum episodes of an instance for its own value and for a spread."""
MOST_KNOWN = 256
"""Maximum number of instances with their own value."""


def equal_shares(instance: NDArray[np.int64]) -> Doubles:
    """`[E]`, summing to 1: equal weight per instance, and per episode within an instance."""
    _, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    shares: Doubles = 1 / counts[code] / len(counts)
    return shares


def resampled_over(instance: NDArray[np.int64]) -> str:
    """ "instances", or "episodes" within instances where there are fewer than ten.

    If most instances have only a few episodes, too few to estimate their variance, instances are
    drawn all the same.
    """
    counts = np.unique(instance, return_counts=True)[1]
    return "episodes" if len(counts) < FEW_INSTANCES and not _scarce(counts) else "instances"


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

    Where most instances have but a few, which Q cannot know, those are dealt out whole: the halves
    then differ as other instances would. Only of a single episode is one half empty.
    """
    _, code, counts = np.unique(instance, return_inverse=True, return_counts=True)
    second = np.zeros(len(instance), dtype=bool)
    small = np.flatnonzero(counts < (ENOUGH if _scarce(counts) and len(counts) > 1 else 2))
    for number, count in enumerate(counts):
        if number not in small:
            # odd numbers are rounded by turns, so that the halves stay equal
            second[code == number] = rng.permutation(count) < (count + number % 2) // 2
    dealt = np.zeros(len(counts), dtype=bool)
    dealt[small] = rng.permutation(len(small)) % 2 == 0
    return second | dealt[code]


def _scarce(counts: NDArray[np.int64]) -> bool:
    return bool(np.median(counts) < ENOUGH)


def with_enough(instance: NDArray[np.int64]) -> NDArray[np.int64]:
    """The instances of `instance[E]` with enough episodes for their own value.

    Those with the most where they are many: each is a column that Q reads.
    """
    names, counts = np.unique(instance, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST_KNOWN]
    enough: NDArray[np.int64] = np.sort(names[most[counts[most] >= ENOUGH]])
    return enough

"""From clusters to groups: refit by group, reassign, merge groups that cannot be distinguished."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.settings import MOST_ROUNDS, DemarcateConfig
from sept_offline.tools.demarcate.groups import GroupDecoder
from sept_offline.tools.demarcate.transitions import Transitions
from sept_offline.training.inputs import Doubles, Integers

COMPARED = 100
"""Episodes of a group by which it is compared with each other group."""
ALIKE = 0.9
"""Share of episodes whose halves must name the same of two groups."""
LEAST_OVERLAP = 0.01
"""Below it two groups have nowhere been compared: that they differ is the networks' guess."""
MANY = 6
"""Groups of which one pair is joined at a time."""
SURE = 0.95
"""Probability of its group below which an episode is unsure."""


@dataclass(frozen=True)
class Pair:
    """Two groups, and the gain from separating them."""

    first: int
    second: int
    gain: float
    """Gain in nats per step on one half of an episode, with its group predicted from the other
    half, over both groups as one; steps are weighted by the overlap of the groups there"""
    error: float
    """Standard error of the gain over episodes"""
    overlap: float
    """Mean overlap: 0 if states and actions alone predict the group, at most 1"""
    agreement: float
    """Share of episodes whose two halves name the same of the two"""

    def apart(self, config: DemarcateConfig) -> bool:
        """Whether they are two."""
        clear = self.least_gain >= config.gain and self.agreement >= ALIKE
        return clear and self.overlap >= LEAST_OVERLAP

    @property
    def least_gain(self) -> float:
        """The lower bound of the gain, at two standard errors."""
        return self.gain - 2 * self.error


@dataclass(frozen=True)
class Grouping:
    """Groups that can be distinguished, and their decoder."""

    count: int
    """K"""
    decoder: GroupDecoder | None
    """None where there is one group."""
    pairs: tuple[Pair, ...]

    def assign(self, data: Transitions) -> tuple[Integers, NDArray[np.bool_]]:
        """The likeliest group of each episode, and which episodes are unsure, [E] both.

        Unsure: two groups explain it about equally well, or its group no better than all groups as
        one, as with an episode of dynamics that no group has.
        """
        if self.decoder is None:
            return np.zeros(data.episodes, np.int64), np.zeros(data.episodes, np.bool_)
        sets = torch.cat((torch.eye(self.count), torch.ones(1, self.count)))
        likelihood = self.decoder.halves(data, sets).sum(axis=2)
        single, together = likelihood[:-1], likelihood[-1]
        best = single.max(axis=0)
        sure = 1 / np.exp(single - best).sum(axis=0)
        return single.argmax(axis=0).astype(np.int64), (sure < SURE) | (best < together)


def refine(
    data: Transitions,
    clusters: Integers,
    config: DemarcateConfig,
    seed: int,
    name: str,
    tick: Callable[[int], None] = lambda _: None,
) -> Grouping:
    """Groups from clusters (−1: in none), by turns of a decoder's fit and a new assignment.

    Two groups are joined when one half of an episode's steps does not say which of them explains
    the other half. Only the weakest pair is joined at a time (of many groups a few): with each join
    the decoder learns more about the rest, and pairs that seemed equal may differ.
    """
    smallest = config.smallest_of(data.episodes)
    groups = _numbered(clusters)
    for turn in range(MOST_ROUNDS):
        count = int(groups.max()) + 1
        if count < 2:
            break
        decoder = GroupDecoder(data, groups, count, config, seed, name, turn)
        single = decoder.halves(data, torch.eye(count))
        found = _large_enough(single.sum(axis=2), smallest)
        tick(turn + 1)
        kept = len(np.unique(found))
        if kept < count:
            groups = _numbered(found)
            continue
        pairs = _compare(decoder, data, single, found)
        joined = _join(found, pairs, config)
        if len(np.unique(joined)) == count and turn + 1 >= config.rounds:
            return Grouping(count, decoder, pairs)
        groups = _numbered(joined)
    return Grouping(1, None, ())


def _numbered(groups: Integers) -> Integers:
    """The same groups as 0, 1, 2, …; −1 stays."""
    present = np.unique(groups[groups >= 0])
    if not len(present):
        return np.zeros_like(groups)
    return np.asarray(np.where(groups >= 0, np.searchsorted(present, groups), -1), dtype=np.int64)


def _large_enough(likelihood: Doubles, smallest: int) -> Integers:
    """The likeliest group of each episode, after groups of too few episodes are given up, [E]."""
    scores = likelihood.copy()
    while True:
        found = scores.argmax(axis=0)
        alive = np.isfinite(scores[:, 0])
        sizes = np.where(alive, np.bincount(found, minlength=len(scores)), np.inf)
        least = int(sizes.argmin())
        if sizes[least] >= smallest or alive.sum() == 1:
            return np.asarray(found, dtype=np.int64)
        scores[least] = -np.inf


def _compare(
    decoder: GroupDecoder, data: Transitions, single: Doubles, groups: Integers
) -> tuple[Pair, ...]:
    """The gain from separating each pair of groups, [K·(K−1)/2]."""
    lengths = data.length.numpy()
    fit = decoder.kept_out & (lengths > 1)
    found = []
    for first, second in itertools.combinations(range(decoder.count), 2):
        chosen = np.concatenate(
            [_some(np.flatnonzero((groups == own) & fit)) for own in (first, second)]
        )
        if not len(chosen):
            found.append(Pair(first, second, 0.0, 0.0, 0.0, 0.0))
            continue
        named = single[first][chosen] < single[second][chosen]
        gains, weights = decoder.compared(
            data.take(chosen), (first, second), torch.from_numpy(named[:, ::-1].copy())
        )
        whole = max(float(weights.sum()), 1e-9)
        gain = float(gains.sum()) / whole
        error = float(np.sqrt(((gains - gain * weights) ** 2).sum())) / whole
        found.append(
            Pair(
                first,
                second,
                gain=gain,
                error=error,
                overlap=whole / float(lengths[chosen].sum()),
                agreement=float((named[:, 0] == named[:, 1]).mean()),
            )
        )
    return tuple(found)


def _some(episodes: Integers) -> Integers:
    """At most COMPARED of them, evenly."""
    count = min(len(episodes), COMPARED)
    return episodes[np.arange(count) * len(episodes) // max(count, 1)]


def _join(groups: Integers, pairs: tuple[Pair, ...], config: DemarcateConfig) -> Integers:
    """The groups after the weakest pair, or of many groups the weakest few, became one, [E]."""
    joined, touched = groups.copy(), set[int]()
    most = 2 * max(1, len(np.unique(groups)) // MANY)
    for pair in sorted(pairs, key=lambda pair: pair.least_gain):
        if pair.apart(config) or touched & {pair.first, pair.second} or len(touched) == most:
            continue
        touched |= {pair.first, pair.second}
        joined[groups == pair.second] = pair.first
    return joined

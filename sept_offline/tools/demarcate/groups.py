"""From clusters to groups: refit by group, reassign, merge groups that cannot be distinguished."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.seeding import torch_generator
from sept_offline.settings import MOST_ROUNDS, DemarcateConfig
from sept_offline.tools.demarcate.latents import BLOCK, Decoder, Transitions
from sept_offline.training.adam import Adam
from sept_offline.training.inputs import Doubles, Integers
from sept_offline.training.layers import initialise, perceptron
from sept_offline.training.updates import annealed, check_finite, descend

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


class GroupDecoder:
    """p(Δs | s, a, S) for any set S of groups, learned from episodes whose groups are given.

    S enters as shares that add up to 1. In training an episode comes with its own group alone, or
    with one other, or with all: so one network also says how well two groups, taken for one,
    would be explained, with the same capacity and on the same data. Every third episode of a group
    is kept out (`kept_out`): a small group that is overfit would seem to be a group.

    A classifier learns the group from state and action alone, to say where both groups have been
    and can be compared: behaviours lead to places, which says nothing about dynamics.
    """

    def __init__(
        self,
        data: Transitions,
        groups: Integers,
        count: int,
        config: DemarcateConfig,
        seed: int,
        *names: str | int,
    ) -> None:
        self.count = count
        rng = torch_generator(seed, "demarcate", "groups", *names)
        width, action_width = data.states.shape[1], data.actions.shape[1]
        self._decoder = Decoder(width, action_width, count, config.hidden, config.resolution, rng)
        self._presence = perceptron(width + action_width, (config.hidden, config.hidden), count)
        initialise(self._presence, rng)
        parameters = [*self._decoder.parameters(), *self._presence.parameters()]
        optimiser = Adam(parameters, config.learning_rate)
        self.kept_out = _every_third(groups, count)
        learned = np.where(self.kept_out, -1, groups)
        members = [torch.from_numpy(np.flatnonzero(learned == group)) for group in range(count)]
        sizes = torch.tensor([len(episodes) for episodes in members])
        together = torch.cat(members)
        starts = torch.cumsum(sizes, 0) - sizes
        # Between what each group needs and what each episode needs.
        share = sizes.double().sqrt()
        updates = config.refining_updates
        for update in range(updates):
            group = torch.multinomial(share, config.episodes, replacement=True, generator=rng)
            place = torch.rand(config.episodes, generator=rng, dtype=torch.float64)
            chosen = together[starts[group] + (place * sizes[group]).long()]
            rows = data.draw(chosen, config.window, rng)
            sets = self._draw_sets(group, rng).unsqueeze(1).expand(-1, config.window, -1)
            named = torch.nn.functional.cross_entropy(
                self._present(data, rows).flatten(0, 1), group.repeat_interleave(config.window)
            )
            loss = named - self._decoder.likelihood(data, rows, sets).mean()
            rates = config.learning_rate, config.learning_rate_end
            descend(optimiser, loss, annealed(*rates, update, updates))
            if update % 100 == 99 or update + 1 == updates:
                check_finite({"loss": float(loss.detach())}, "demarcation", update + 1)

    def _draw_sets(self, group: Tensor, rng: torch.Generator) -> Tensor:
        """Sets that an update learns from, [n, K]: the own group, a pair with it, or all."""
        member = torch.nn.functional.one_hot(group, self.count).float()
        other = torch.randint(self.count, group.shape, generator=rng)
        pair = torch.maximum(member, torch.nn.functional.one_hot(other, self.count).float())
        kind = torch.rand(group.shape, generator=rng).unsqueeze(1)
        sets = torch.where(
            kind < 0.5, member, torch.where(kind < 0.75, pair, torch.ones_like(member))
        )
        return sets / sets.sum(1, keepdim=True)

    def _present(self, data: Transitions, rows: Tensor) -> Tensor:
        """Unscaled log-probabilities of the groups by where the steps were, [..., K]."""
        scores: Tensor = self._presence(torch.cat((data.states[rows], data.actions[rows]), dim=-1))
        return scores

    def halves(self, data: Transitions, sets: Tensor) -> Doubles:
        """log p of the even and of the odd steps of each episode, given each set, [M, E, 2].

        sets[M, K]: ones where a group is in the set.
        """
        shares = sets / sets.sum(1, keepdim=True)
        rows, half, _ = _halves(data)
        totals = torch.zeros(len(sets), 2 * data.episodes, dtype=torch.float64)
        with torch.no_grad():
            for part in range(0, len(rows), BLOCK):
                block, owner = rows[part : part + BLOCK], half[part : part + BLOCK]
                for total, share in zip(totals, shares, strict=True):
                    steps = self._decoder.likelihood(data, block, share.expand(len(block), -1))
                    total.index_add_(0, owner, steps.double())
        return totals.reshape(len(sets), data.episodes, 2).numpy()

    def compared(
        self, data: Transitions, pair: tuple[int, int], second: Tensor
    ) -> tuple[Doubles, Doubles]:
        """Gain in nats of one of two groups over the two merged, and weights, [E] each.

        second[E, 2]: whether the second group is named for the even, and for the odd, steps. Each
        step counts by how similarly the groups visit it: 4·p·(1 − p), p the share of the second
        among the two by state and action alone. An episode's weight is the sum of these.
        """
        rows, half, episode = _halves(data)
        member = torch.nn.functional.one_hot(torch.tensor(pair), self.count).float()
        both = member.mean(0, keepdim=True)
        gains, weights = torch.zeros(2, data.episodes, dtype=torch.float64)
        with torch.no_grad():
            for part in range(0, len(rows), BLOCK):
                block, owner = rows[part : part + BLOCK], episode[part : part + BLOCK]
                named = member[second.flatten()[half[part : part + BLOCK]].long()]
                gained = self._decoder.likelihood(data, block, named)
                gained -= self._decoder.likelihood(data, block, both.expand(len(block), -1))
                share = torch.softmax(self._present(data, block)[:, list(pair)], 1)
                weight = 4 * share.prod(1)
                gains.index_add_(0, owner, (weight * gained).double())
                weights.index_add_(0, owner, weight.double())
        return gains.numpy(), weights.numpy()


def _halves(data: Transitions) -> tuple[Tensor, Tensor, Tensor]:
    """Every row, its half (twice its episode's position, plus 1 at odd steps), its episode, [n]."""
    rows, episode = data.rows()
    return rows, 2 * episode + (rows - data.first[episode]) % 2, episode


def _every_third(groups: Integers, count: int) -> NDArray[np.bool_]:
    """Which episodes are not learned from, [E]: every third of each group of three or more."""
    kept = np.zeros(len(groups), dtype=np.bool_)
    for group in range(count):
        kept[np.flatnonzero(groups == group)[2::3]] = True
    return kept


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
    tick: Callable[[int], None],
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
        assigned = _large_enough(single.sum(axis=2), smallest)
        tick(turn + 1)
        if len(np.unique(assigned)) < count:
            groups = _numbered(assigned)
            continue
        pairs = _compare(decoder, data, single, assigned)
        joined = _join(assigned, pairs, config)
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
        likeliest = scores.argmax(axis=0)
        alive = np.isfinite(scores[:, 0])
        sizes = np.where(alive, np.bincount(likeliest, minlength=len(scores)), np.inf)
        least = int(sizes.argmin())
        if sizes[least] >= smallest or alive.sum() == 1:
            return np.asarray(likeliest, dtype=np.int64)
        scores[least] = -np.inf


def _compare(
    decoder: GroupDecoder, data: Transitions, single: Doubles, groups: Integers
) -> tuple[Pair, ...]:
    """The gain from separating each pair of groups, [K·(K−1)/2]."""
    lengths = data.length.numpy()
    fit = decoder.kept_out & (lengths > 1)
    pairs = []
    for first, second in itertools.combinations(range(decoder.count), 2):
        chosen = np.concatenate(
            [_some(np.flatnonzero((groups == group) & fit)) for group in (first, second)]
        )
        if not len(chosen):
            pairs.append(Pair(first, second, 0.0, 0.0, 0.0, 0.0))
            continue
        named = single[first][chosen] < single[second][chosen]
        gains, weights = decoder.compared(
            data.take(chosen), (first, second), torch.from_numpy(named[:, ::-1].copy())
        )
        whole = max(float(weights.sum()), 1e-9)
        gain = float(gains.sum()) / whole
        error = float(np.sqrt(((gains - gain * weights) ** 2).sum())) / whole
        pairs.append(
            Pair(
                first,
                second,
                gain=gain,
                error=error,
                overlap=whole / float(lengths[chosen].sum()),
                agreement=float((named[:, 0] == named[:, 1]).mean()),
            )
        )
    return tuple(pairs)


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

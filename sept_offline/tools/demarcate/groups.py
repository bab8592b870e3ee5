"""The groups' decoder: how well a group, or groups taken for one, explain a step; who was there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.seeding import torch_generator
from sept_offline.settings import DemarcateConfig
from sept_offline.tools.demarcate.latents import BLOCK, rows_of
from sept_offline.tools.demarcate.networks import Decoder, log_student
from sept_offline.tools.demarcate.transitions import Transitions
from sept_offline.training.inputs import Doubles, Integers
from sept_offline.training.layers import initialise, perceptron
from sept_offline.training.updates import annealed, check_finite, descend


class GroupDecoder:
    """p(Δs | s, a, S) for any set S of groups, learned from episodes whose groups are given.

    S is told as shares that add up to 1. In training an episode is told its own group alone, or
    with one other, or with all: so one network also says how well two groups, taken for one,
    would be explained, with the same capacity and on the same data. Every third episode of a group
    is kept out (`kept_out`): a small group learned by heart would seem to be one of its own.

    Beside it learns a classifier of the group by state and action alone, to say where two groups
    have been alike and so can be compared: behaviours lead to places, and are no dynamics.
    """

    def __init__(
        self,
        data: Transitions,
        groups: Integers,
        count: int,
        config: DemarcateConfig,
        seed: int,
        *names: str | int,
        tick: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.count = count
        rng = torch_generator(seed, "demarcate", "groups", *names)
        width, action_width = data.states.shape[1], data.actions.shape[1]
        self._decoder = Decoder(width, action_width, count, config.hidden, config.resolution, rng)
        self._presence = perceptron(width + action_width, (config.hidden, config.hidden), count)
        initialise(self._presence, rng)
        parameters = [*self._decoder.parameters(), *self._presence.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
        self.kept_out = _every_third(groups, count)
        learned = np.where(self.kept_out, -1, groups)
        members = [torch.from_numpy(np.flatnonzero(learned == group)) for group in range(count)]
        sizes = torch.tensor([len(own) for own in members])
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
            told = self._told(group, rng).unsqueeze(1).expand(-1, config.window, -1)
            named = torch.nn.functional.cross_entropy(
                self._present(data, rows).flatten(0, 1), group.repeat_interleave(config.window)
            )
            loss = named - self._likelihood(data, rows, told).mean()
            rates = config.learning_rate, config.learning_rate_end
            descend(optimiser, loss, annealed(*rates, update, updates))
            if update % 100 == 99 or update + 1 == updates:
                check_finite({"loss": float(loss.detach())}, "demarcation", update + 1)
                tick(update + 1)

    def _told(self, group: Tensor, rng: torch.Generator) -> Tensor:
        """The sets an update is told, [n, K]: own groups, pairs or all of them."""
        own = torch.nn.functional.one_hot(group, self.count).float()
        other = torch.randint(self.count, group.shape, generator=rng)
        pair = torch.maximum(own, torch.nn.functional.one_hot(other, self.count).float())
        kind = torch.rand(group.shape, generator=rng).unsqueeze(1)
        told = torch.where(kind < 0.5, own, torch.where(kind < 0.75, pair, torch.ones_like(own)))
        return told / told.sum(1, keepdim=True)

    def _likelihood(self, data: Transitions, rows: Tensor, told: Tensor) -> Tensor:
        mean, log_scale = self._decoder(data.states[rows], data.actions[rows], told)
        return (log_student(data.changes[rows], mean, log_scale) * data.varies).sum(-1)

    def _present(self, data: Transitions, rows: Tensor) -> Tensor:
        """Unscaled log-probabilities of the groups by where the steps were, [..., K]."""
        found: Tensor = self._presence(torch.cat((data.states[rows], data.actions[rows]), dim=-1))
        return found

    def halves(self, data: Transitions, sets: Tensor) -> Doubles:
        """log p of the even and of the odd steps of each episode, given each set, [M, E, 2].

        sets[M, K]: ones where a group is in the set.
        """
        told = sets / sets.sum(1, keepdim=True)
        rows, episode = rows_of(data)
        half = halves_of(data, rows, episode)
        totals = torch.zeros(len(sets), 2 * data.episodes, dtype=torch.float64)
        with torch.no_grad():
            for part in range(0, len(rows), BLOCK):
                block, owner = rows[part : part + BLOCK], half[part : part + BLOCK]
                for total, one in zip(totals, told, strict=True):
                    found = self._likelihood(data, block, one.expand(len(block), -1))
                    total.index_add_(0, owner, found.double())
        return totals.reshape(len(sets), data.episodes, 2).numpy()

    def compared(
        self, data: Transitions, pair: tuple[int, int], second: Tensor
    ) -> tuple[Doubles, Doubles]:
        """Nats that the told of two groups gains over both taken for one, and weights, [E] both.

        second[E, 2]: whether the second group is told to the even, and to the odd, steps. Each step
        counts by how alike the groups have been there: 4·p·(1 − p), p the share of the second among
        the two by state and action alone. The weights of an episode are the sums of these.
        """
        rows, episode = rows_of(data)
        half = halves_of(data, rows, episode)
        own = torch.nn.functional.one_hot(torch.tensor(pair), self.count).float()
        both = own.mean(0, keepdim=True)
        gains, weights = torch.zeros(2, data.episodes, dtype=torch.float64)
        with torch.no_grad():
            for part in range(0, len(rows), BLOCK):
                block, owner = rows[part : part + BLOCK], episode[part : part + BLOCK]
                told = own[second.flatten()[half[part : part + BLOCK]].long()]
                gained = self._likelihood(data, block, told) - self._likelihood(
                    data, block, both.expand(len(block), -1)
                )
                share = torch.softmax(self._present(data, block)[:, list(pair)], 1)
                weight = 4 * share.prod(1)
                gains.index_add_(0, owner, (weight * gained).double())
                weights.index_add_(0, owner, weight.double())
        return gains.numpy(), weights.numpy()


def halves_of(data: Transitions, rows: Tensor, episode: Tensor) -> Tensor:
    """Twice the episode's position, plus 1 at its odd steps, [n]."""
    return 2 * episode + (rows - data.first[episode]) % 2


def _every_third(groups: Integers, count: int) -> NDArray[np.bool_]:
    """Which episodes are not learned from, [E]: every third of each group of three or more."""
    kept = np.zeros(len(groups), dtype=np.bool_)
    for group in range(count):
        kept[np.flatnonzero(groups == group)[2::3]] = True
    return kept

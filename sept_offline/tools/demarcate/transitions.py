"""The transitions of episodes as tensors, and draws of windows from anywhere in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Steps
from sept_offline.training.inputs import Integers, standardised


@dataclass(frozen=True)
class Transitions:
    """All transitions of E episodes, episode by episode; N in all, d features."""

    states: Tensor
    """[N, d], standardised"""
    actions: Tensor
    """[N, A], encoded"""
    changes: Tensor
    """[N, d], standardised; 0 where a feature never changes"""
    varies: Tensor
    """[d], 1 where a feature changes at all, else 0"""
    first: Tensor
    """[E], the row of an episode's first step"""
    length: Tensor
    """[E], its steps"""

    @property
    def episodes(self) -> int:
        """E"""
        return len(self.length)

    def take(self, episodes: Integers) -> Transitions:
        """The same rows, of which only the given episodes are drawn."""
        chosen = torch.from_numpy(episodes)
        return Transitions(
            self.states,
            self.actions,
            self.changes,
            self.varies,
            self.first[chosen],
            self.length[chosen],
        )

    def draw(self, episodes: Tensor, count: int, rng: torch.Generator) -> Tensor:
        """`count` rows from anywhere in each of the given episodes, [n, count]."""
        place = torch.rand(len(episodes), count, generator=rng, dtype=torch.float64)
        length = self.length[episodes].unsqueeze(1)
        return self.first[episodes].unsqueeze(1) + torch.minimum(
            (place * length).long(), length - 1
        )


def transitions_of(steps: Steps, length: Integers, space: ActionSpace) -> Transitions:
    """The transitions of a dataset's steps; length[E] are the steps of its episodes in order."""
    before = steps.observations[steps.row]
    change = steps.observations[steps.row + 1] - before
    varies = varying(change)
    return Transitions(
        states=standardised(Standardiser.fit(before), before),
        actions=torch.from_numpy(space.encode(steps.actions)),
        changes=standardised(Standardiser.fit(change), change)
        * torch.from_numpy(varies.astype(np.float32)),
        varies=torch.from_numpy(varies.astype(np.float32)),
        first=torch.from_numpy(np.cumsum(length) - length),
        length=torch.from_numpy(length.astype(np.int64)),
    )

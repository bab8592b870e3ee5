"""EPOpt-adv: one policy π(a | s), in the end trained on the episodes that went worst."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.agent import Agent, NoContext
from sept_offline.control import Batch, Replay
from sept_offline.data import Dataset
from sept_offline.methods.method import Method
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.settings import EpoptConfig, FitConfig
from sept_offline.stage import Stage


class WorstReplay(Replay):
    """All transitions first; from update `turn` on, those of each iteration's worst episodes.

    Each such update is one iteration: it draws episodes, equally from every instance, keeps the
    lowest percentile of their returns and draws its minibatch from their transitions. Over updates
    that is what the paper's replay buffer holds, into which it stores each iteration's worst.

    A return is compared as its quantile among those of its own instance: in any unit that instances
    share, the one with the lowest or the most scattered returns would be all that is kept.

    episode `[N]`: of each step; steps of an episode are consecutive. There are no contexts: EPOpt's
    policy reads the state alone.
    """

    def __init__(
        self,
        *columns: Any,
        episode: NDArray[np.int64],
        raw_rewards: NDArray[np.float64],
        config: EpoptConfig,
        turn: int,
        **contexts: Any,
    ) -> None:
        super().__init__(*columns, **contexts)
        _, self._start, which, self._length = np.unique(
            episode, return_index=True, return_inverse=True, return_counts=True
        )
        instance = self._instance[self._start]
        returns = np.bincount(which, weights=raw_rewards)
        order = np.argsort(instance, kind="stable")
        self._by_instance = np.split(order, np.flatnonzero(np.diff(instance[order])) + 1)
        self.quantiles = np.empty((len(returns), 2))
        """[E, 2]: the shares of its instance's returns below an episode's, and not above it."""
        for own in self._by_instance:
            ranked = np.sort(returns[own])
            for column, side in enumerate(("left", "right")):
                below = np.searchsorted(ranked, returns[own], side=side)  # type: ignore[call-overload]
                self.quantiles[own, column] = below / len(own)
        self._episodes, self._turn = config.episodes, turn
        self._kept = max(1, round(config.percentile / 100 * config.episodes))

    def minibatches(
        self, first: int, count: int, batch_size: int, rng: np.random.Generator
    ) -> list[Batch]:
        """See Replay."""
        early = min(max(self._turn - first, 0), count)
        batches = super().minibatches(first, early, batch_size, rng) if early else []
        if early < count:
            index = self.draw_worst(count - early, batch_size, rng)
            chosen = torch.from_numpy(index.reshape(-1))
            batches += self.gather(chosen, None).split(count - early)
        return batches

    def draw_worst(
        self, iterations: int, batch_size: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Transitions `[iterations, batch_size]` of each iteration's worst episodes."""
        drawn = self._draw_episodes((iterations, self._episodes), rng)
        low, high = np.moveaxis(self.quantiles[drawn], 2, 0)
        # Anywhere within its step: ties fall by chance, and few episodes have quantiles as low as
        # many do.
        quantile = low + (high - low) * rng.random(drawn.shape)
        worst = np.argsort(quantile, axis=1, kind="stable")[:, : self._kept]
        kept = np.take_along_axis(drawn, worst, axis=1)
        ends = np.cumsum(self._length[kept], axis=1)
        place = rng.integers(0, ends[:, -1:], size=(iterations, batch_size))
        which = (place[:, :, None] >= ends[:, None, :]).sum(axis=2)
        begin = np.take_along_axis(ends - self._length[kept], which, axis=1)
        chosen = np.take_along_axis(kept, which, axis=1)
        transitions: NDArray[np.int64] = self._start[chosen] + place - begin
        return transitions

    def _draw_episodes(self, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
        counts = np.array([len(own) for own in self._by_instance])
        instance = rng.integers(0, len(counts), size=shape)
        place = (rng.random(shape) * counts[instance]).astype(np.int64)
        offsets = np.cumsum(counts) - counts
        drawn: NDArray[np.int64] = np.concatenate(self._by_instance)[offsets[instance] + place]
        return drawn


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    steps = data.steps()
    replay = partial(
        WorstReplay,
        episode=steps.episode,
        raw_rewards=steps.rewards,
        config=config.epopt,
        turn=round(config.epopt.everything * config.control.updates),
    )
    control = yield from control_stage(data, config.control, seed, replay=replay)
    return Agent("epopt", data.metadata.family or "", spaces_of(data), NoContext(), control)


EPOPT = Method(
    "epopt",
    _stages,
    "One policy, in the end trained on the worst episodes only.",
    title="EPOpt-adv",
)

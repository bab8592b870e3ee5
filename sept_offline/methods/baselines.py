"""Baselines that learn one policy: Avg, Oracle, History and EPOpt-adv.

They differ in what the policy reads besides the state, and in the transitions that it learns from.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.agent import HiddenContext, HistoryContext, NoContext
from sept_offline.agent.networks import Array, Standardiser
from sept_offline.control import Batch, Replay
from sept_offline.data import Dataset
from sept_offline.data.records import HiddenTable, Steps
from sept_offline.errors import DataError
from sept_offline.methods.method import Method, Stages, agent_of, control_stage
from sept_offline.seeding import generator
from sept_offline.settings import EpoptConfig, FitConfig

COPIES = 50
"""Noisy versions of each instance's parameters that Oracle learns with, where there is noise."""


def _avg(data: Dataset, config: FitConfig, seed: int) -> Stages:
    """One policy π(a | s) on the logs of all instances, as if they were one system."""
    control = yield from control_stage(data, config.control, seed)
    return agent_of("avg", data, NoContext(), control)


def _check_known(data: Dataset, hidden: HiddenTable, present: NDArray[np.int64]) -> None:
    """Every parameter of every instance is known, and a float32 number."""
    with np.errstate(over="ignore"):
        unusable = np.argwhere(~np.isfinite(hidden.values[present].astype(np.float32)))
    if len(unusable):
        row, column = unusable[0]
        value = hidden.values[present[row], column]
        problem = "unknown" if np.isnan(value) else f"{value}, too large for float32"
        raise DataError(
            f"The hidden parameter {hidden.names[column]!r} of the instance "
            f"{data.instances[present[row]]!r} in {data.path} is {problem}; the method 'oracle' "
            "needs all of them."
        )


def _oracle(data: Dataset, config: FitConfig, seed: int) -> Stages:
    """π(a | s, hidden), shown the true hidden parameters in training and in the test."""
    hidden = data.hidden
    if hidden is None:
        raise DataError(
            f"{data.path} does not contain the hidden parameters of its instances, which the "
            "method 'oracle' needs; fit 'sept' or 'avg'."
        )
    # instances that were held out keep their rows, and no say in the scale
    present = np.unique(data.episode_index.instance)
    _check_known(data, hidden, present)
    scaler = Standardiser.fit(hidden.values[present])
    copies = COPIES if config.oracle_noise else 1
    contexts = np.repeat(scaler(hidden.values), copies, axis=0)
    noise = generator(seed, "oracle", "noise").standard_normal(contexts.shape)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=contexts + config.oracle_noise * noise,
        context_instance=np.repeat(np.arange(len(hidden.values)), copies),
    )
    return agent_of("oracle", data, HiddenContext(hidden.names, scaler), control)


def histories(steps: Steps, context: HistoryContext, space: ActionSpace) -> Array:
    """The history features at each logged observation, `[N+E, context.dim]`."""
    rows = len(steps.observations)
    time = np.zeros(rows, dtype=np.int64)
    time[steps.row + 1] = steps.time + 1
    actions = np.zeros((rows, context.action_width), dtype=np.float32)
    actions[steps.row] = space.encode(steps.actions)
    lag = np.arange(1, context.steps + 1)
    seen = time[:, None] >= lag
    before = np.where(seen, np.arange(rows)[:, None] - lag, 0)
    return context.features(steps.observations[before], actions[before], seen)


def _history(data: Dataset, config: FitConfig, seed: int) -> Stages:
    """π(a | the last k observations and actions); not in the paper."""
    steps, space = data.steps(), data.action_space
    scaler = Standardiser.fit(steps.observations)
    context = HistoryContext(config.history_steps, space.width, scaler)
    beside = histories(steps, context, space)
    control = yield from control_stage(data, config.control, seed, beside=beside)
    return agent_of("history", data, context, control)


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
        for members in self._by_instance:
            ranked = np.sort(returns[members])
            for column, side in enumerate(("left", "right")):
                below = np.searchsorted(ranked, returns[members], side=side)  # type: ignore[call-overload]
                self.quantiles[members, column] = below / len(members)
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
        counts = np.array([len(members) for members in self._by_instance])
        instance = rng.integers(0, len(counts), size=shape)
        place = (rng.random(shape) * counts[instance]).astype(np.int64)
        offsets = np.cumsum(counts) - counts
        drawn: NDArray[np.int64] = np.concatenate(self._by_instance)[offsets[instance] + place]
        return drawn


def _epopt(data: Dataset, config: FitConfig, seed: int) -> Stages:
    """EPOpt-adv: one policy π(a | s), in the end trained on the episodes that went worst."""
    steps = data.steps()
    replay = partial(
        WorstReplay,
        episode=steps.episode,
        raw_rewards=steps.rewards,
        config=config.epopt,
        turn=round(config.epopt.everything * config.control.updates),
    )
    control = yield from control_stage(data, config.control, seed, replay=replay)
    return agent_of("epopt", data, NoContext(), control)


AVG = Method("avg", _avg, "One policy for all instances: the lower bound.", title="Avg")
ORACLE = Method(
    "oracle",
    _oracle,
    "One policy that is given the hidden parameters: the upper bound.",
    privileged=True,
    judged=False,
    title="Oracle",
)
HISTORY = Method(
    "history",
    _history,
    "One policy on the last observations and actions.",
    stacks=False,
    title="History",
)
EPOPT = Method(
    "epopt",
    _epopt,
    "One policy, in the end trained on the worst episodes only.",
    title="EPOpt-adv",
)

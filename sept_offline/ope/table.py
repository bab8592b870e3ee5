"""Logged episodes as rectangles, a row an episode and a column a step, up to the horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Steps

Doubles = NDArray[np.float64]
LARGEST_LOG = 600.0
"""Of a product of ratios: e^600 is the largest that can still be added up in doubles."""


@dataclass(frozen=True)
class Table:
    """E episodes over H steps, whatever is told of them.

    rewards `[E, H]`, 0 after an end; seen `[E, H]`: 1 where the step was logged or the episode had
    ended for good, 0 from where it was cut; ratio `[E, H]`: ρ_{0:t}, the product of π/μ up to and
    with step t, as it was at the end after an end; before `[E, H]`: the same without step t;
    instance `[E]`; place `[N]`: where each step that counts stands in the flattened rectangle;
    counted `[N']` bool over all logged steps: those before the horizon.
    """

    rewards: Doubles
    seen: Doubles
    ratio: Doubles
    before: Doubles
    instance: NDArray[np.int64]
    place: NDArray[np.int64]
    counted: NDArray[np.bool_]

    def spread(self, values: Doubles) -> Doubles:
        """`values[N']` of all logged steps as a rectangle `[E, H]`, 0 where there is no step."""
        rectangle = np.zeros(self.rewards.shape)
        rectangle.reshape(-1)[self.place] = values[self.counted]
        return rectangle

    @property
    def returns(self) -> Doubles:
        """`[E]`, as logged, up to the horizon."""
        total: Doubles = self.rewards.sum(axis=1)
        return total


def tabulate(steps: Steps, target: Doubles, behaviour: Doubles, horizon: int) -> Table:
    """From `target[N']` and `behaviour[N']`, the two policies' probabilities of what was done."""
    starts = np.flatnonzero(steps.time == 0)
    length = np.diff(np.append(starts, len(steps.time)))
    count = len(starts)
    episode = np.repeat(np.arange(count), length)
    counted = steps.time < horizon
    place = (episode * horizon + steps.time)[counted]
    kept = np.minimum(length, horizon)
    terminated = steps.terminations[starts + length - 1] & (length <= horizon)
    time = np.arange(horizon)
    rewards, log_ratio = np.zeros((2, count, horizon))
    rewards.reshape(-1)[place] = steps.rewards[counted]
    with np.errstate(divide="ignore", invalid="ignore"):
        single = np.where(target > 0, np.log(target) - np.log(behaviour), -np.inf)
    log_ratio.reshape(-1)[place] = single[counted]
    ratio = np.exp(np.minimum(np.cumsum(log_ratio, axis=1), LARGEST_LOG))
    before = np.concatenate([np.ones((count, 1)), ratio[:, :-1]], axis=1)
    seen = (time < kept[:, None]) | terminated[:, None]
    return Table(
        rewards,
        seen.astype(np.float64),
        ratio,
        before,
        steps.instance[starts],
        place,
        counted,
    )

"""Logged episodes as rectangles, a row an episode and a column a step, up to the horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Steps

Doubles = NDArray[np.float64]
LARGEST_LOG = 600.0
"""Maximum log of a product of ratios: larger ones could overflow when summed in doubles."""


@dataclass(frozen=True)
class Table:
    """E episodes over H steps.

    rewards `[E, H]`, 0 after an end; seen `[E, H]`: 0 from where an episode was cut, else 1 over
    the chance of not having been cut until then (1 where no episode is cut before the horizon);
    ratio `[E, H]`: ρ_{0:t}, the product of π/μ up to and
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
        """Logged returns up to the horizon, of episodes that were not truncated before it."""
        total: Doubles = self.rewards.sum(axis=1)
        whole = self.seen[:, -1] > 0
        return total[whole] if whole.any() else total

    @property
    def lowest(self) -> float:
        """The lowest logged return."""
        return float(self.returns.min())

    @property
    def highest(self) -> float:
        """The highest logged return."""
        return float(self.returns.max())


def common_horizon(steps: Steps) -> int:
    """The longest horizon that at least half of the episodes reach; ended ones reach any.

    Beyond it more is guessed of episodes that were cut than was seen of the others. The longest one
    in a hundred does not count: a fitted Q would need updates for it alone.
    """
    starts = np.flatnonzero(steps.time == 0)
    length = np.diff(np.append(starts, len(steps.time)))
    ended = steps.terminations[starts + length - 1]
    longest = int(np.percentile(length, 99, method="higher"))
    reached = np.sort(np.where(ended, longest, length))[::-1]
    return min(longest, int(reached[(len(reached) + 1) // 2 - 1]))


def tabulate(
    steps: Steps, target: Doubles, behaviour: Doubles, horizon: int, shares: Doubles | None = None
) -> Table:
    """From `target[N']` and `behaviour[N']`, the two policies' probabilities of what was done.

    `shares[E]` say how much each episode counts where the chance of being cut is reckoned.
    """
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
    there = (time < kept[:, None]) | terminated[:, None]
    lasting = _lasting(kept, terminated, horizon, np.ones(count) if shares is None else shares)
    at = np.minimum(time, kept[:, None] - 1)
    seen = np.where(there, 1 / lasting[at], 0.0)
    return Table(
        rewards,
        seen,
        ratio,
        before,
        steps.instance[starts],
        place,
        counted,
    )


def _lasting(
    length: NDArray[np.int64], terminated: NDArray[np.bool_], horizon: int, shares: Doubles
) -> Doubles:
    """`[H]`: the chance that an episode which goes on has not been cut before step t.

    As Kaplan and Meier reckon it, from those that could have been cut after each step. Without it
    episodes that ended early, which nothing can cut, would stand for too many.
    """
    last = np.minimum(length, horizon) - 1
    cut = ~terminated & (length < horizon)
    cut_at = np.bincount(last[cut], shares[cut], minlength=horizon)
    ended_at = np.bincount(last[terminated], shares[terminated], minlength=horizon)
    going = shares.sum() - np.concatenate([[0.0], np.cumsum(cut_at + ended_at)[:-1]]) - ended_at
    hazard = cut_at / np.maximum(np.maximum(going, cut_at), np.finfo(float).tiny)
    after: Doubles = np.cumprod(1 - hazard)
    # if all remaining episodes are truncated there is nothing to weight: any number but 0 works
    chance = np.concatenate([[1.0], after[:-1]])
    return np.where(chance > 1e-12, chance, 1.0)

"""Estimators of an agent's return, as functions of logged episodes laid out as rectangles.

A rectangle `[E, H]` has a row per episode and a column per step up to the horizon. An estimator is
a sum over steps of weighted means: it takes `shares[B, E]`, how much each episode counts, a row per
replicate, and returns `[B]`. With γ = 1 and a horizon of H steps they estimate what `evaluate`
reports: the plain sum of rewards of an episode of at most H steps, with equal weight per instance.
An episode that was cut before the horizon counts at the steps it has and in no mean after them;
those that were not cut stand for it, which is right where cuts do not depend on what happens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import Steps
from sept_offline.elementary import Doubles
from sept_offline.methods.hold_out import FEW_INSTANCES

LARGEST_LOG = 600.0
"""Maximum log of a product of ratios: larger ones could overflow when summed in doubles."""
ENOUGH = 4
"""Minimum episodes of an instance for its own value and for a spread."""
MOST_KNOWN = 256
"""Maximum number of instances with their own value."""


@dataclass(frozen=True)
class StepTable:
    """E episodes over H steps.

    rewards `[E, H]`, 0 after an end; seen `[E, H]`: 0 from where an episode was cut, else 1 over
    the chance of not having been cut until then (1 where no episode is cut before the horizon);
    ratio `[E, H]`: ρ_{0:t}, the product of π/μ up to and with step t, as it was at the end after an
    end; before `[E, H]`: the same without step t; instance `[E]`; place `[N]`: where each step that
    counts stands in the flattened rectangle; counted `[N']` bool over all logged steps: those
    before the horizon.
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
        return self.fill(values[self.counted])

    def fill(self, values: Doubles) -> Doubles:
        """The same for `values[N]` of the steps that count."""
        rectangle = np.zeros(self.rewards.shape)
        rectangle.reshape(-1)[self.place] = values
        return rectangle

    @property
    def returns(self) -> Doubles:
        """Logged returns up to the horizon, of episodes that were not truncated before it."""
        total: Doubles = self.rewards.sum(axis=1)
        whole = self.seen[:, -1] > 0
        return total[whole] if whole.any() else total

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest of them."""
        return float(self.returns.min()), float(self.returns.max())

    def unweighted(self) -> StepTable:
        """The same episodes with all ratios 1."""
        ones = np.ones_like(self.ratio)
        return replace(self, ratio=ones, before=ones)


def common_horizon(steps: Steps) -> int:
    """The longest horizon that at least half of the episodes reach; ended ones reach any.

    Beyond it more is guessed of episodes that were cut than was seen of the others. The longest one
    in a hundred does not count: a fitted Q would need updates for it alone.
    """
    starts, length = _episodes(steps)
    ended = steps.terminations[starts + length - 1]
    longest = int(np.percentile(length, 99, method="higher"))
    reached = np.sort(np.where(ended, longest, length))[::-1]
    return min(longest, int(reached[(len(reached) + 1) // 2 - 1]))


def _episodes(steps: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`[E]` each: the first step of every episode, and its length."""
    starts = np.flatnonzero(steps.time == 0)
    return starts, np.diff(np.append(starts, len(steps.time)))


def tabulate(
    steps: Steps, target: Doubles, behaviour: Doubles, horizon: int, shares: Doubles | None = None
) -> StepTable:
    """From `target[N']` and `behaviour[N']`, the two policies' probabilities of logged actions.

    `shares[E]` say how much each episode counts where the chance of being cut is reckoned.
    """
    starts, length = _episodes(steps)
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
    return StepTable(rewards, seen, ratio, before, steps.instance[starts], place, counted)


def _lasting(
    length: NDArray[np.int64], terminated: NDArray[np.bool_], horizon: int, shares: Doubles
) -> Doubles:
    """`[H]`: the chance that an episode which goes on has not been cut before step t.

    As Kaplan and Meier reckon it, from those that could have been cut after each step. Without it
    episodes that ended early, which nothing can cut, would stand for too many.
    """
    last = length - 1
    cut = ~terminated & (length < horizon)
    cut_at = np.bincount(last[cut], shares[cut], minlength=horizon)
    ended_at = np.bincount(last[terminated], shares[terminated], minlength=horizon)
    going = shares.sum() - np.concatenate([[0.0], np.cumsum(cut_at + ended_at)[:-1]]) - ended_at
    hazard = cut_at / np.maximum(np.maximum(going, cut_at), np.finfo(float).tiny)
    after: Doubles = np.cumprod(1 - hazard)
    # if all remaining episodes are truncated there is nothing to weight: any number but 0 works
    chance = np.concatenate([[1.0], after[:-1]])
    return np.where(chance > 1e-12, chance, 1.0)


def per_decision(table: StepTable, shares: Doubles) -> Doubles:
    """Σ_t E[ρ_{0:t} r_t]: without bias, and with as much variance as its weights have."""
    return _mean(table.ratio * table.rewards, table.seen, shares)


def self_normalised(table: StepTable, shares: Doubles) -> Doubles:
    """The same with the weights of each step divided by their sum: consistent, seldom wild."""
    return _mean(table.rewards, table.ratio * table.seen, shares)


def doubly_robust(table: StepTable, q: Doubles, v: Doubles, shares: Doubles) -> Doubles:
    """Σ_t E[ρ_{0:t−1} V(s_t) + ρ_{0:t}(r_t − Q(s_t, a_t))], for `q[E, H]` and `v[E, H]`.

    Without bias for any Q that these episodes had no part in, as good as Q where weights are gone.
    """
    return _mean(table.before * v + table.ratio * (table.rewards - q), table.seen, shares)


def weighted_doubly_robust(table: StepTable, q: Doubles, v: Doubles, shares: Doubles) -> Doubles:
    """The same with self-normalised weights."""
    expected = _mean(v, table.before * table.seen, shares)
    return expected + _mean(table.rewards - q, table.ratio * table.seen, shares)


def direct(v: Doubles, shares: Doubles) -> Doubles:
    """E[V(s_0)]: the values alone, `v[E, H]`."""
    result: Doubles = shares @ v[:, 0] / shares.sum(axis=1)
    return result


def effective_size(table: StepTable, shares: Doubles) -> Doubles:
    """`[H]`: (Σw)²/Σw² of the weights of each step under `shares[E]`; 0 where none is left."""
    weights = shares[:, None] * table.ratio * table.seen
    # by the largest first: ratios may be too large to square
    weights = weights / np.maximum(weights.max(axis=0), np.finfo(float).tiny)
    total = weights.sum(axis=0)
    squares = (weights**2).sum(axis=0)
    size: Doubles = np.where(squares > 0, total**2 / np.maximum(squares, 1e-300), 0.0)
    return size


def _mean(values: Doubles, weights: Doubles, shares: Doubles) -> Doubles:
    """Σ_t of the means of `values[E, H]` with `weights[E, H]`, for each row of `shares`.

    A step without any weight adds nothing.
    """
    above = shares @ (values * weights)
    below = shares @ weights
    result: Doubles = np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0).sum(axis=1)
    return result


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


Verdict = Literal["trust", "caution", "uncovered"]

RARE = 0.01
"""An action that the behaviour takes less often than this in a state counts as never taken."""
RARE_ESTIMATED = 0.02
"""The same where probabilities are estimates, which never fall below 0.01."""
SUPPORTED = 0.9
"""Below this share of supported choices the agent does what the logs do not show."""
FULLY_SUPPORTED = 0.99
LITTLE = 5.0
"""Below this effective number of episodes, weights say nothing."""
ENOUGH_ESS = 30.0
"""From this effective number of episodes on, weights may be relied upon."""
DOMINANT = 0.2
"""No single episode may have more of the weight than this."""
CUT = 0.01
"""Maximum share of truncated episodes; above it, estimates depend on the cause of truncation."""


@dataclass(frozen=True)
class Overlap:
    """How much of the agent's behaviour is covered by the logs."""

    agreement: float
    """The agent's mean probability of the logged action; instances have equal weight."""
    followed: float
    """Share of episodes that the agent could have made itself, from first to last step."""
    support: float
    """Share of the agent's choices along the logs that the behaviour also makes sometimes."""
    ess: float
    """Effective number of episodes under the agent's weights, at the step where it is least."""
    largest_weight: float
    """The largest share of the weight that one episode has at the horizon; 1 where none is left."""
    mean_weight: float
    """Mean of ρ at the horizon: 1 in expectation, far below where the agent's ways are not logged.
    """
    covered_steps: int
    """Steps up to which the weights are those of at least five episodes."""
    cut: float
    """Share of episodes cut before the horizon."""


def overlap(table: StepTable, target: Doubles, supported: Doubles, shares: Doubles) -> Overlap:
    """From the agent's probability `target[N']` of what was done, how far what it does is
    `supported[N']`, and `shares[E]`."""
    there = table.spread(np.ones(len(target)))
    weight = shares[:, None] * there
    sizes = effective_size(table, shares)
    final = shares * table.ratio[:, -1]
    total = final.sum()
    short = np.flatnonzero(sizes < LITTLE)
    return Overlap(
        agreement=float((weight * table.spread(target)).sum() / weight.sum()),
        followed=float(shares @ (table.ratio[:, -1] > 0)),
        support=float((weight * table.spread(supported)).sum() / weight.sum()),
        ess=float(sizes.min()),
        largest_weight=float(final.max() / total) if total > 0 else 1.0,
        mean_weight=float(min(total, 1e300)),
        covered_steps=int(short[0]) if len(short) else len(sizes),
        cut=float(shares @ (table.seen[:, -1] == 0)),
    )


@dataclass(frozen=True)
class Evidence:
    """Inputs of a verdict besides the overlap."""

    weighted: bool
    """Whether importance weights exist: in a box control is deterministic and has no density."""
    estimated: bool
    """Whether the behaviour's probabilities of what was done are estimates."""
    whole: bool
    """Whether every action's probability was logged, not the taken one's alone: support rests on
    all of them."""
    crossed: bool
    """Whether no Q corrects the very episodes that it was fitted to."""
    in_sample: bool
    """Whether the agent was trained on the evaluation episodes."""
    agree: bool
    """Whether the intervals of the doubly robust estimate (without weights: of the cross-fitted
    one) and of fitted Q evaluation meet."""
    travelled: bool
    """Whether the fitted Q had updates enough for values to travel the whole horizon."""
    within: bool
    """Whether the interval of fitted Q evaluation meets the range of logged returns."""
    narrow: bool
    """Whether that interval is at most as wide as the range of logged returns."""


def verdict(overlap: Overlap, evidence: Evidence) -> tuple[Verdict, list[str]]:
    """`trust`, `caution` or `uncovered`, and the reasons against a better one.

    uncovered: less than 90 % of the agent's choices are supported; or the effective sample size is
    below 5 and the fitted Q is not confirmed: its interval leaves the range of logged returns, is
    wider than it, or disagrees with the doubly robust estimate, or it had too few updates.
    trust: at least 99 % supported, an effective sample size of at least 30 with at most a fifth of
    the weight on one episode, logged probabilities of all actions, episodes that neither agent nor
    Q was fitted to, at most 1 % of them truncated, enough updates, and estimates that agree and
    stay within the logged returns. caution: everything else.
    """
    reasons, bad = [], False
    if overlap.support < FULLY_SUPPORTED:
        bad |= overlap.support < SUPPORTED
        reasons.append(
            f"{1 - overlap.support:.1%} of the agent's actions have hardly any support in the logs"
        )
    if overlap.ess < ENOUGH_ESS:
        reasons.append(
            f"the effective sample size is {overlap.ess:.1f} episodes"
            if evidence.weighted
            else "the agent's actions have no density, so importance sampling does not apply and "
            "the estimate rests on fitted Q evaluation alone"
        )
        sound = evidence.agree and evidence.within and evidence.travelled and evidence.narrow
        bad |= overlap.ess < LITTLE and not sound
        if overlap.ess < LITTLE and not evidence.narrow:
            reasons.append("the interval of fitted Q evaluation is wider than all logged returns")
    if overlap.largest_weight > DOMINANT and overlap.ess > 0:
        reasons.append(f"one episode has {overlap.largest_weight:.0%} of the weight")
    if not evidence.agree:
        other = "doubly robust" if evidence.weighted else "cross-fitted"
        reasons.append(f"the {other} estimate and fitted Q evaluation disagree")
    if not evidence.travelled:
        reasons.append("the fitted Q had too few updates for the horizon")
    if not evidence.within:
        reasons.append("fitted Q evaluation leaves the range of logged returns")
    if evidence.estimated:
        reasons.append("the behaviour's probabilities are estimates")
    elif not evidence.whole:
        reasons.append("probabilities of actions that were not taken are estimates")
    if not evidence.crossed:
        reasons.append("the fitted Q corrects the single episode that it was fitted to")
    if overlap.cut > CUT:
        reasons.append(f"{overlap.cut:.1%} of the episodes were truncated before the horizon")
    if evidence.in_sample:
        reasons.append("the agent was trained on the evaluation episodes")
    if bad:
        return "uncovered", reasons
    return ("caution", reasons) if reasons else ("trust", [])

"""Overlap of agent and behaviour, and the rule for the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sept_offline.elementary import Doubles
from sept_offline.tools.ope.estimators import StepTable, effective_size

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
ENOUGH = 30.0
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
    if overlap.ess < ENOUGH:
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

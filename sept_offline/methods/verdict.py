"""Is what was learned of use? `usable`, `doubtful` or `not usable`, by a written rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Word = Literal["usable", "doubtful", "not usable"]

BEYOND = 0.1
"""Values this share of the bound's size above the bound are doubtful."""
FAR_BEYOND = 1.0
"""Values this share of the bound's size above the bound have diverged."""
LEAST_GAIN = 0.05
"""Standard deviations of the logged returns that control must earn more than `avg`, and an agent
with its probe more than without."""
TRUSTED = 0.05
"""Learned dynamics are not trusted to tell methods apart by less than this share of what the agent
earns more than `avg`."""
UNSURE = 0.25
"""An interval wider than this does not show that a latent separates no better than chance."""
UNFAITHFUL = 0.3
"""Learned dynamics whose error in what logged actions earn is larger than this, in standard
deviations of the logged returns, decide nothing."""
UNINFORMED = 0.95
"""An agent as uncertain as this after the first steps knows hardly more than before them."""
MOSTLY_KNOWN = 0.3
"""Uncertainty after the first steps up to which they are not said to reveal little."""
MOST_OF_IT = 0.8
"""An agent that covers less of the way from `avg` to one that knows the instance says so."""
APART = 1.0
"""A fit that earns this many standard deviations of the logged returns less than a shorter one does
not agree with it."""


@dataclass(frozen=True)
class Interval:
    """A mean with its interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Values:
    """Control's values at logged states, in the form of the rewards that it learns from."""

    mean: float
    """Mean value of the best action."""
    bound: float
    """The most that the logged rewards allow."""
    size: float
    """The larger of the bound's size and the rewards'."""
    truncated: bool = False
    """Whether a limit cut logged episodes. Values reach beyond it, and so may exceed the bound."""

    @property
    def excess(self) -> float:
        """How far the mean exceeds the bound, relative to the size."""
        return (self.mean - self.bound) / max(self.size, 1e-12)


@dataclass(frozen=True)
class Evidence:
    """Inputs of a verdict; None if a question does not apply or was not answered."""

    separation: Interval | None = None
    """Share of comparisons in which a held-out segment lies nearer to its own instance than to
    another; 0.5 by chance."""
    separates: bool | None = None
    """Whether that is more than chance."""
    uncertainty: float | None = None
    """Mean uncertainty after the first steps of held-out episodes; 1 if nothing is known."""
    acts_as_avg: bool = False
    """Whether the agent was fitted without a probe because it is not."""
    replaced: str | None = None
    """The method that acts instead, because the agent earns less with its latent."""
    unseen: Interval | None = None
    """The same of instances kept from a second, shorter fit."""
    unseen_separates: bool | None = None
    """Whether that is more than chance."""
    unseen_radii: tuple[float, ...] | None = None
    """Radii of the regions of those instances: see `Separation`."""
    held_out: str | None = None
    """Instances held out from the second fit; None if there were too few for one."""
    explained: Interval | None = None
    """Log-likelihood of held-out steps with the own latent, less that with another instance's."""
    dynamics_off: float | None = None
    """Error of the learned dynamics in what logged actions earn, per episode, in the same units."""
    probe_gains: Interval | None = None
    """Return with the probe less that without, in the units of `above_avg`."""
    values: Values | None = None
    above_avg: Interval | None = None
    """Return of the second fit (of the agent early in its training, if there is none) less that of
    an `avg` trained as long, in learned dynamics, in standard deviations of the logged returns."""
    above_history: Interval | None = None
    """The same of `history`."""
    agent_above_avg: Interval | None = None
    """Return of the agent itself, which has seen those instances, less that of `avg` there."""
    agent_above_history: Interval | None = None
    """The same of `history`."""
    knowing_gains: Interval | None = None
    """Return of the agent if it knew the latent of the instance from the first step, less its own,
    there and in those units."""
    above_logs: Interval | None = None
    """Return of the agent less what was logged, there and in those units."""
    seeds_differ: float | None = None
    """Return of the shorter fit less that of the agent, there and in those units."""
    missing: str | None = None
    """Why the second fit was not made."""
    full: int | None = None
    """The dimensions of the latent, where all are in use and there are instances for more."""

    @property
    def better(self) -> str | None:
        """The method, `avg` or `history`, that is shown to earn most and more than the agent.

        A second fit that earns less says nothing against an agent that is shown to earn more; one
        that earns more says nothing for an agent that is shown to earn less.
        """
        if not self.faithful:
            return None
        gains = {
            "avg": (self.above_avg, self.agent_above_avg),
            "history": (self.above_history, self.agent_above_history),
        }
        gaps = {}
        for name, (gap, agent_gap) in gains.items():
            if agent_gap is not None and (agent_gap.high < 0 or agent_gap.low > 0):
                gap = agent_gap
            if gap is not None and gap.high < 0 and (name == "avg" or self.clear(gap.mean)):
                gaps[name] = gap.mean
        return min(gaps, key=gaps.__getitem__) if gaps else None

    @property
    def faithful(self) -> bool:
        """Whether the learned dynamics reproduce the logs well enough to compare agents in them."""
        return self.dynamics_off is None or self.dynamics_off <= UNFAITHFUL

    def clear(self, gap: float) -> bool:
        """Whether a difference from `history` is more than errors of learned dynamics explain."""
        gain = 0.0 if self.above_avg is None else self.above_avg.mean
        return abs(gap) >= max(LEAST_GAIN, TRUSTED * gain)


@dataclass(frozen=True)
class Verdict:
    """One word, and the sentences behind it, those against a better word first."""

    verdict: Word
    reasons: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """The form stored in the record of an agent."""
        return {"verdict": self.verdict, "reasons": list(self.reasons)}


def probe_pays(gains: Interval) -> bool:
    """Whether an agent is shown to earn clearly more with its probe."""
    return gains.low > 0 and gains.mean >= LEAST_GAIN


def reach(evidence: Evidence, conservative: str = "discrete_cql") -> Verdict:
    """The verdict that the evidence supports; `conservative`: the algorithm to advise.

    not usable: the latent distinguishes instances no better than chance, on held-out episodes or in
    the second fit; or control earns less than `avg` there, and the agent itself is not shown to
    earn more; or its values have diverged and it is not shown to earn more than `avg`.
    doubtful: control is not shown to earn more than `avg`, or earns less than `history` or the
    logs; the learned dynamics in which they are compared do not reproduce the logs; nothing is
    known after the first steps; the decoder explains no more with the latent; values are above what
    rewards allow; a shorter fit earns more; or no second fit could be made. usable: all else.
    """
    bad: list[str] = []
    doubts: list[str] = []
    good: list[str] = []
    _judge_latent(evidence, bad, doubts, good)
    _judge_values(evidence, conservative, bad, doubts)
    if evidence.faithful:
        _judge_against_methods(evidence, bad, doubts, good)
        _judge_probe(evidence, good)
        _judge_knowledge(evidence, good)
        _judge_against_logs(evidence, conservative, doubts, good)
    else:
        doubts.append(
            "The learned dynamics do not reproduce the logs, so it is unknown whether the agent "
            "earns more than avg: what logged actions earn is off by "
            f"{evidence.dynamics_off:.2g} standard deviations of logged returns per episode. "
            "Try --stack 4, log more, or evaluate in a simulator."
        )
    if evidence.missing is not None:
        doubts.append(evidence.missing)
    word: Word = "not usable" if bad else "doubtful" if doubts else "usable"
    return Verdict(word, (*bad, *doubts, *good))


def _judge_latent(evidence: Evidence, bad: list[str], doubts: list[str], good: list[str]) -> None:
    if evidence.separation is not None and not evidence.separates:
        instead = "; the agent acts as avg, without a probe" if evidence.acts_as_avg else ""
        bad.append(
            "The latent does not distinguish instances: "
            f"{_compared(evidence.separation)}{instead}. Log first steps that differ more "
            "between instances, or try a longer probe (--set probe_steps=…)."
        )
    elif evidence.unseen is not None and not evidence.unseen_separates:
        # A handful of instances may happen to be similar to each other.
        few = evidence.unseen.high - evidence.unseen.low > UNSURE
        (doubts if few else bad).append(
            f"The latent {'is not shown to' if few else 'does not'} distinguish unseen instances: "
            f"{_compared(evidence.unseen)}. Log more instances, or try a longer probe "
            "(--set probe_steps=…)."
        )
    else:
        separation = evidence.unseen or evidence.separation
        if separation is not None:
            where = "in unseen instances" if evidence.unseen else "in unseen episodes"
            good.append(f"The latent distinguishes instances {where}: {_compared(separation)}.")
        if evidence.uncertainty is not None and evidence.uncertainty >= UNINFORMED:
            doubts.append(
                "After the first steps of held-out episodes the agent knows hardly more about the "
                f"instance than before: its uncertainty is {evidence.uncertainty:.2f}, and 1 if "
                "nothing is known. Log more episodes of each instance."
            )
    if evidence.full is not None:
        good.append(
            f"All {evidence.full} dimensions of the latent are in use, so a hidden factor may lack "
            f"one. Compare with --set latent.dim={2 * evidence.full}."
        )
    explained = evidence.explained
    if explained is not None and not explained.low > 0:
        doubts.append(
            f"The decoder explains held-out steps no better with their own latent: {explained} "
            "nats per step. Try more latent updates (--set latent.updates=…)."
        )


def _compared(separation: Interval) -> str:
    return (
        f"a segment lies nearer to its own instance in {separation.mean:.0%} of comparisons "
        f"[{separation.low:.0%}, {separation.high:.0%}], chance 50 %"
    )


def _judge_values(evidence: Evidence, conservative: str, bad: list[str], doubts: list[str]) -> None:
    values, gain = evidence.values, evidence.above_avg
    if values is None or values.excess <= BEYOND:
        return
    # Values may be far too high but in the right order; the agent then still earns more.
    earns = gain is not None and gain.low > 0
    reason = (
        f"The mean value of control is {values.mean:.3g}, more than the {values.bound:.3g} that "
        f"the logged rewards allow. Try --control {conservative}, or fewer updates "
        "(--set control.updates=…)."
    )
    if not values.truncated:
        (bad if values.excess > FAR_BEYOND and not earns else doubts).append(reason)
    elif not earns:
        doubts.append(reason)


def _judge_against_methods(
    evidence: Evidence, bad: list[str], doubts: list[str], good: list[str]
) -> None:
    gain, agent_gain = evidence.above_avg, evidence.agent_above_avg
    if gain is None:
        return
    whose = "unseen instances" if evidence.held_out else "the logged instances"
    where = f"in learned dynamics of {whose}, in standard deviations of logged returns"
    instead = f" The agent acts as {evidence.replaced}." if evidence.replaced else ""
    if agent_gain is not None and agent_gain.high < 0:
        bad.append(
            "The agent earns less than avg even in instances that it was trained on: "
            f"{agent_gain} standard deviations of logged returns.{instead} Try fewer updates "
            "(--set control.updates=…), or log more."
        )
    elif gain.high < 0 and agent_gain is not None and agent_gain.low > 0:
        shorter, advice = "A shorter fit", "Try more updates (--set control.updates=…)."
        if evidence.held_out:
            shorter, advice = f"{shorter} that has not seen these instances", "Log more instances."
        doubts.append(
            f"{shorter} earns less than avg: {gain} {where}; the agent itself earns more: "
            f"{agent_gain}. {advice}"
        )
    elif gain.high < 0:
        bad.append(
            f"With its latent the agent earns less than avg: {gain} {where}.{instead} Log more, or "
            "more instances."
        )
    elif not (gain.low > 0 and gain.mean >= LEAST_GAIN):
        more = "log more instances" if evidence.held_out else "log more"
        doubts.append(
            f"The agent is not shown to earn clearly more than avg: {gain} {where}. Compare with "
            f"--method avg, or {more}."
        )
    else:
        good.append(f"The agent earns more than avg: {gain} {where}.")
    remembers, seen = evidence.above_history, evidence.agent_above_history
    if seen is not None and seen.high < 0:
        remembers = seen
    if remembers is None:
        return
    if remembers.high < 0 and evidence.clear(remembers.mean):
        doubts.append(
            "With its latent the agent earns less than a policy on the last steps (history): "
            f"{remembers} {where}.{instead} Log more, or more instances."
        )
    elif remembers.low > 0 or remembers.high < 0:
        above = remembers.low > 0 and evidence.clear(remembers.mean)
        more = "more than" if above else "about as much as"
        good.append(f"The agent earns {more} history: {remembers} there.")


def _judge_probe(evidence: Evidence, good: list[str]) -> None:
    gains = evidence.probe_gains
    if gains is not None:
        does = "probes first" if probe_pays(gains) else "acts without a probe"
        good.append(f"The agent {does}: probing changes its return by {gains}.")


def _judge_knowledge(evidence: Evidence, good: list[str]) -> None:
    """Say how much is lost until the instance is known: a limit, no reason for doubt."""
    gain, lost = evidence.above_avg, evidence.knowing_gains
    if gain is None or lost is None or not lost.low > 0 or not gain.mean > 0:
        return
    share = gain.mean / (gain.mean + lost.mean)
    unclear = evidence.uncertainty is not None and evidence.uncertainty > MOSTLY_KNOWN
    advice = " The first steps reveal little: more sensors may help." if unclear else ""
    if share < MOST_OF_IT:
        good.append(
            "Not knowing the instance costs much: the agent covers "
            f"{share:.0%} of the way from avg to one that knows the latent from the first step, "
            f"which earns {lost} more.{advice}"
        )


def _judge_against_logs(
    evidence: Evidence, conservative: str, doubts: list[str], good: list[str]
) -> None:
    logged = evidence.above_logs
    if logged is not None and logged.high < 0:
        doubts.append(
            f"The agent earns less than the logs: {logged} standard deviations of logged returns. "
            f"Try --control {conservative} or more updates (--set control.updates=…)."
        )
    elif logged is not None and logged.low > 0:
        good.append(f"The agent earns more than the logs: {logged} standard deviations.")
    if evidence.seeds_differ is not None and evidence.seeds_differ > APART:
        doubts.append(
            f"A shorter fit earns {evidence.seeds_differ:.2g} standard deviations of "
            "logged returns more: fits differ. Fit several seeds and compare them."
        )

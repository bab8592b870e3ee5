"""Off-policy evaluation of an agent, from logs alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.agent import Agent, load_agent
from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset, opened
from sept_offline.data.records import Segments, Steps
from sept_offline.elementary import Doubles
from sept_offline.errors import DataError
from sept_offline.methods.hold_out import episode_digests, in_ranges
from sept_offline.probe import Behaviour, logged_or_estimated
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import generator, integer, root_seed
from sept_offline.settings import OpeConfig
from sept_offline.tools.ope.estimators import (
    LITTLE,
    RARE,
    RARE_ESTIMATED,
    Evidence,
    Overlap,
    StepTable,
    Verdict,
    bootstrap_shares,
    common_horizon,
    direct,
    doubly_robust,
    effective_size,
    equal_shares,
    halves,
    overlap,
    per_decision,
    resampled_over,
    self_normalised,
    tabulate,
    verdict,
    weighted_doubly_robust,
    with_enough,
)
from sept_offline.tools.ope.following import Choices, check_spaces, follow

if TYPE_CHECKING:
    from sept_offline.tools.ope.fitted_q import Transitions

TITLES = {
    "fqe": "fitted Q evaluation",
    "dm": "direct method, cross-fitted",
    "pdis": "per-decision importance sampling",
    "wpdis": "the same, self-normalised",
    "dr": "doubly robust",
    "wdr": "doubly robust, self-normalised",
}
"""The estimators by their names."""
WIDENED = 2.0
"""Factor on the width of intervals if nothing corrects Q, for errors that all fits share. Chosen so
that they contained the truth for one training seed of the study in
the docs, and tried on the others."""
REPEATED = 0.01
"""If a larger share of the training episodes are duplicates, a digest does not identify one."""


@dataclass(frozen=True)
class Estimate:
    """One estimate of the mean return of an episode, with its interval and its basis."""

    mean: float
    low: float
    high: float
    ess: float
    """Effective number of episodes."""


@dataclass(frozen=True)
class Judgement:
    """The result of an off-policy evaluation."""

    method: str
    """The agent's method."""
    content_hash: str
    """Content hash of the evaluation logs."""
    horizon: int
    """Maximum number of steps per episode."""
    confidence: float
    """Confidence level of the intervals."""
    judged_on: str
    """"held out", "other logs" or "in sample"."""
    instances: int
    """Number of instances in the evaluation episodes."""
    episodes: int
    """Number of evaluation episodes."""
    steps: int
    """Number of steps in those episodes."""
    resampled: str
    """Unit of the bootstrap: "instances", or "episodes" within instances."""
    behaviour_estimated: bool
    """Whether the behaviour's probabilities had to be estimated."""
    logged_return: float
    """The behaviour's mean return up to the horizon, with equal weight per instance."""
    estimators: dict[str, Estimate]
    """By name: the mean return with its interval and effective sample size."""
    overlap: Overlap
    """How well the logs cover the agent's actions."""
    headline: str
    """The estimator to quote."""
    verdict: Verdict
    """`trust`, `caution` or `uncovered`, by a written rule."""
    reasons: tuple[str, ...]
    """Why, in sentences."""

    def summary(self) -> dict[str, Any]:
        """One JSON-ready object."""
        return asdict(self) | {"reasons": list(self.reasons)}


def judge(
    agent: Agent | str | Path,
    data: Dataset | str | Path,
    config: OpeConfig | None = None,
    *,
    seed: int = 0,
    in_sample: bool = False,
    progress: Progress | None = None,
) -> Judgement:
    """Estimate the mean return of `agent`, probe and control as one policy, from `data` alone.

    It is evaluated on the held-out episodes of `data`; on training episodes only if `in_sample`.
    """
    from sept_offline.tools.ope.fitted_q import transitions

    agent = agent if isinstance(agent, Agent) else load_agent(agent)
    config, progress, seed = config or OpeConfig(), progress or Silent(), root_seed(seed)
    with opened(data, check=True) as logs:
        check_spaces(agent, logs, agent.spaces.observation_dim)
        judged, judged_on = unseen(agent, logs, in_sample)
        judged = judged.stacked(agent.stack)
        steps = judged.steps()
        _check_finite(judged, steps)
        horizon = config.horizon or common_horizon(steps)
        if horizon > judged.episode_index.length.max():
            raise DataError(
                f"The horizon is {horizon} steps, but no evaluation episode of {logs.path} has "
                f"more than {judged.episode_index.length.max()}; lower it."
            )

        followed = follow(agent, judged, steps, integer(seed, "follow"), progress)
        choices = followed.choices
        behaviour = _behaviour(
            logs, steps, judged.action_space, choices, integer(seed, "behaviour")
        )
        target = choices.probability(steps.row, steps.actions)
        shares = equal_shares(steps.instance[steps.time == 0])
        table = tabulate(steps, target, behaviour.chance, horizon, shares)
        # Errors of at most 1: there d3rlpy's Huber loss is quadratic, and Q a mean, not a median.
        returns_to_go = np.cumsum(table.rewards[:, ::-1], axis=1)
        scale = float(np.abs(returns_to_go).max()) or 1.0
        moves = transitions(steps, followed, horizon, with_enough(table.instance), scale)
        values = fitted_values(moves, table, judged.action_space, horizon, config, seed, progress)
        states = Standardiser.fit(steps.observations)(steps.observations[steps.row])
        supported = choices.support(steps.row, states, steps.actions, behaviour.often)
        overlapping = overlap(table, target, supported, shares)
        estimators = estimate_all(table, values, overlapping, config, seed, choices.weighted)
        # the verdict does not depend on which intervals are asked for
        usual = replace(config, confidence=OpeConfig.confidence)
        proof = estimators
        if config.confidence != usual.confidence:
            proof = estimate_all(table, values, overlapping, usual, seed, choices.weighted)
        lowest, highest = table.bounds
        best, fitted = proof["dr" if choices.weighted else "dm"], proof["fqe"]
        evidence = Evidence(
            weighted=choices.weighted,
            estimated=behaviour.estimated,
            whole=behaviour.whole,
            crossed=values.crossed,
            in_sample=judged_on == "in sample",
            agree=best.low <= fitted.high and fitted.low <= best.high,
            travelled=config.travels(horizon),
            within=fitted.low <= highest and lowest <= fitted.high,
            narrow=fitted.high - fitted.low <= highest - lowest,
        )
        conclusion, reasons = verdict(overlapping, evidence)
        return Judgement(
            method=agent.method,
            content_hash=logs.content_hash,
            horizon=horizon,
            confidence=config.confidence,
            judged_on=judged_on,
            instances=len(np.unique(table.instance)),
            episodes=judged.num_episodes,
            steps=judged.num_steps,
            resampled=resampled_over(table.instance),
            behaviour_estimated=behaviour.estimated,
            logged_return=float(per_decision(table.unweighted(), shares[None])[0]),
            estimators=estimators,
            overlap=overlapping,
            headline="dr" if overlapping.ess >= LITTLE else "fqe",
            verdict=conclusion,
            reasons=tuple(reasons),
        )


def unseen(agent: Agent, data: Dataset, in_sample: bool) -> tuple[Dataset, str]:
    """The episodes of `data` that the agent did not learn from, and what they are.

    With `in_sample` all episodes are used; the result says whether they include training data.
    """
    source = agent.record.get("fitted_on")
    if source is None:
        if in_sample:
            return data, "in sample"
        raise DataError(
            "The agent does not record its training episodes; fit it again with --hold-out, "
            "or add --in-sample to evaluate it on all episodes."
        )
    if source["content_hash"] == data.content_hash:
        learned = in_ranges(data.episode_index.number, source["episodes"])
    else:
        learned = recognised(agent.learned_from, data)
        if not learned.any():
            return data, "other logs"
    if in_sample:
        return data, "in sample" if learned.any() else "held out"
    if learned.all():
        raise DataError(
            f"The agent was trained on all episodes of {data.path}, or on identical ones; fit it "
            "with --hold-out 0.2 and evaluate it on the held-out episodes, or add --in-sample to "
            "evaluate it on its training data."
        )
    return data.select(~learned), "held out"


def recognised(learned_from: NDArray[np.uint64] | None, data: Dataset) -> NDArray[np.bool_]:
    """`[E]`: which episodes of other logs the agent was fitted to, by their digests.

    If episodes repeat, as in a system with few states, a digest does not show whether
    an episode was fitted, and to leave out what is common would leave what is rare: there all of
    them count as fitted as soon as one does.
    """
    if learned_from is None:
        return np.zeros(data.num_episodes, dtype=bool)
    known, counts = np.unique(learned_from, return_counts=True)
    fitted = np.isin(episode_digests(data), known)
    if fitted.any() and counts[counts > 1].sum() > REPEATED * counts.sum():
        fitted[:] = True
    return fitted


@dataclass(frozen=True)
class Logger:
    """The policy that logged N' steps.

    chance `[N']`: its probability of each action taken; often `[N', A]`: whether it takes each
    action often enough to support it (empty in a box); estimated: whether chances are estimates;
    whole: whether those of all actions were logged.
    """

    chance: Doubles
    often: NDArray[np.bool_]
    estimated: bool
    whole: bool


def _behaviour(
    data: Dataset, steps: Steps, space: ActionSpace, choices: Choices, seed: int
) -> Logger:
    if not choices.weighted:
        # nothing is weighted, so nothing has to be known of it
        never = np.zeros((len(steps.time), 0), dtype=bool)
        return Logger(np.ones(len(steps.time)), never, estimated=False, whole=True)
    behaviour = behaviour_along(steps, space, seed)
    logged = steps.propensities
    chances = behaviour.propensities[:, 0]
    chance = chances[np.arange(len(chances)), steps.actions]
    if not (chance > 0).all():
        raise DataError(
            f"{data.path}: {int((chance <= 0).sum())} logged actions have probability 0; "
            "run sept-offline validate to see where."
        )
    whole = logged is not None and bool(np.isfinite(logged).all())
    often = chances >= (RARE if whole else RARE_ESTIMATED)
    return Logger(chance, np.asarray(often), behaviour.estimated, whole)


def behaviour_along(steps: Steps, space: ActionSpace, seed: int) -> Behaviour:
    """The behaviour's probabilities `[N', 1, A]`, as logged; where they are not, an estimate.

    Each step is a separate segment, with its clock as one more column of the state.
    """
    clock = (steps.time / max(1, int(steps.time.max()))).astype(np.float32)
    seen = np.concatenate([steps.observations[steps.row], clock[:, None]], axis=1)
    logged = steps.propensities
    single = SimpleNamespace(
        observations=seen[:, None],
        actions=steps.actions[:, None],
        propensities=None if logged is None else logged[:, None],
        instance=steps.instance,
    )
    return logged_or_estimated(cast(Segments, single), space, seed)


@dataclass(frozen=True)
class Values:
    """Fitted values along the logs, `[E, H]` each.

    crossed_q, crossed_v: of Q(s_t, a_t) and V(s_t) by the network fitted to the other half of the
    episodes; whole_v: V(s_t) by one fitted to all. first, second: mean V(s_0) of all episodes by
    the two halves' networks. moved: by how much that of the one fitted to all changed in the second
    half of its updates. crossed: whether there were two halves; a single episode makes one.
    """

    crossed_q: Doubles
    crossed_v: Doubles
    whole_v: Doubles
    first: float
    second: float
    moved: float
    crossed: bool

    def fit_error(self, whole: float) -> float:
        """The error of a fit, which the bootstrap of first states does not include.

        Means over halves vary twice as much as those over all, so (a − b)/2 is the spread of a fit
        to all; and where more data or more updates move the estimate, they are not enough yet: its
        bias.
        """
        bias = whole - (self.first + self.second) / 2
        return float(np.linalg.norm([(self.first - self.second) / 2, bias, self.moved]))


def fitted_values(
    moves: Transitions,
    table: StepTable,
    space: ActionSpace,
    horizon: int,
    config: OpeConfig,
    seed: int,
    progress: Progress,
) -> Values:
    """Three fits: to all episodes, and to each half for the use of the other."""
    from sept_offline.tools.ope.fitted_q import FittedQ

    half = halves(table.instance, generator(seed, "halves"))
    shares = equal_shares(table.instance)
    whole, first, second = (
        FittedQ(moves.inputs.shape[1], space, horizon, config, integer(seed, "fitted q", name)).fit(
            moves, shares * rows if rows.any() else shares, f"fitted Q of {name}", progress
        )
        for name, rows in (("all", np.ones_like(half)), ("one half", ~half), ("the other", half))
    )

    whole_v, early_v = table.fill(whole.final.expected), table.fill(whole.halfway.expected)
    first_v, second_v = table.fill(first.final.expected), table.fill(second.final.expected)
    first_q, second_q = table.fill(first.final.taken), table.fill(second.final.taken)
    return Values(
        crossed_q=np.where(half[:, None], first_q, second_q),
        crossed_v=np.where(half[:, None], first_v, second_v),
        whole_v=whole_v,
        first=float(shares @ first_v[:, 0]),
        second=float(shares @ second_v[:, 0]),
        moved=float(shares @ (whole_v - early_v)[:, 0]),
        crossed=bool(half.any() and not half.all()),
    )


def estimate_all(
    table: StepTable, values: Values, overlap: Overlap, config: OpeConfig, seed: int, weighted: bool
) -> dict[str, Estimate]:
    """Every estimator with its interval; those without weights if there are none."""
    rng = generator(seed, "bootstrap")
    equal = equal_shares(table.instance)
    drawn = bootstrap_shares(table.instance, config.replicates, rng)
    shares = np.concatenate([equal[None], drawn])
    q, v, whole = values.crossed_q, values.crossed_v, values.whole_v
    error = values.fit_error(float(equal @ whole[:, 0]))
    # three fits give only a rough estimate of their spread: Student's t, not a normal
    wobble = np.concatenate([[0.0], error * rng.standard_t(3, config.replicates)])
    # Where hardly anybody followed the agent nothing corrects the values, and their error stays.
    leaning = wobble * (overlap.ess < LITTLE)
    answers = {
        "fqe": direct(whole, shares) + wobble,
        "dm": direct(v, shares) + wobble,
        "pdis": per_decision(table, shares),
        "wpdis": self_normalised(table, shares),
        "dr": doubly_robust(table, q, v, shares) + leaning,
        "wdr": weighted_doubly_robust(table, q, v, shares) + leaning,
    }
    if not weighted:
        answers = {name: answers[name] for name in ("fqe", "dm")}
    plain = float(effective_size(table.unweighted(), equal).min())
    tail = (1 - config.confidence) / 2
    # an episode may end at any step, so no reward at all is among what can be earned
    horizon = table.rewards.shape[1]
    bounds = horizon * table.rewards.min(initial=0.0), horizon * table.rewards.max(initial=0.0)
    result = {}
    for name, answer in answers.items():
        mean = float(answer[0])
        low, high = np.quantile(answer[1:], [tail, 1 - tail])
        if name in ("fqe", "dm", "dr", "wdr") and overlap.ess < LITTLE:
            low, high = mean + WIDENED * (np.array([low, high]) - mean)
        low, high = np.clip([low, high], *bounds)
        if name in ("pdis", "wpdis") and overlap.covered_steps < horizon:
            # Hardly anybody followed the agent to the end: any logged return may be its own.
            lowest, highest = table.bounds
            low, high = min(low, lowest), max(high, highest)
        ess = plain if name in ("fqe", "dm") else overlap.ess
        result[name] = Estimate(mean, min(float(low), mean), max(float(high), mean), ess)
    return result


def _check_finite(data: Dataset, steps: Steps) -> None:
    for name, column in (("observations", steps.observations), ("rewards", steps.rewards)):
        bad = int((~np.isfinite(column)).sum())
        if bad:
            raise DataError(
                f"{data.path}: {bad} values of {name} are not finite; run sept-offline validate "
                "to see where."
            )

"""Evidence for the verdict: the agent, or a second fit, next to `avg` and `history` in learned
dynamics."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Agent, HiddenContext, RefinedContext, SegmentContext
from sept_offline.agent.encoders import SegmentEncoder, TransitionEncoder
from sept_offline.control import EARLY
from sept_offline.data import Dataset
from sept_offline.errors import ConfigError, DataError
from sept_offline.family import Hidden
from sept_offline.latent.identification import Separation, measure_separation
from sept_offline.methods.baselines import AVG, HISTORY
from sept_offline.methods.hold_out import FEW_INSTANCES, choose_hold_out, unfitted_episodes
from sept_offline.methods.knowledge import later_steps, refines
from sept_offline.methods.method import Method, check_data
from sept_offline.methods.rehearsal import Rehearsal, bootstrap, rehearse_in
from sept_offline.methods.verdict import Evidence, Interval, probe_pays
from sept_offline.seeding import generator, integer
from sept_offline.settings import FitConfig
from sept_offline.stacking import Stack
from sept_offline.stage import Stage
from sept_offline.training.inputs import Doubles, Integers

HELD_OUT = 0.2
"""Share of the instances that a second fit does not see."""
LEAST_HELD_OUT = 4
"""Instances that it does not see at least: fewer say too little of others."""
SHORT = 0.25
"""Share of control's updates that the second fit makes."""
SHORT_LATENT = 0.5
"""Share of the latent's updates that it makes."""
SEGMENTS = 4000
"""Held-out segments that are looked at, at most."""


def trial(
    method: Method,
    data: Dataset,
    config: FitConfig,
    seed: int,
    agent: Agent,
    early: Agent,
    stack: Stack | None = None,
) -> Generator[Stage, None, Evidence]:
    """Compare the agent, and a shorter fit of it, with an `avg` as short in learned dynamics.

    early: the agent as it was after a share `EARLY` of control's updates. stack: how the rows of
    `data` are stacked, if they are; the agent is one for such rows.
    """
    fresh = data.select(unfitted_episodes(data, config.held_out, seed))
    seed = integer(seed, "trial")
    if len(np.unique(data.episode_index.instance)) < FEW_INSTANCES:
        return (yield from _compare_early(method, data, fresh, config, seed, agent, early, stack))
    return (yield from _compare_second_fit(method, data, config, seed, agent, stack))


def _compare_early(
    method: Method,
    data: Dataset,
    fresh: Dataset,
    config: FitConfig,
    seed: int,
    agent: Agent,
    early: Agent,
    stack: Stack | None,
) -> Generator[Stage, None, Evidence]:
    """Too few instances to hold any out: compare the early agent with an `avg` trained as long.

    The agent itself is compared with a `history` as short: a short one that earns more is better.
    The latent has not seen the episodes of `fresh`.
    """
    short = shortened(config, EARLY)
    history = short if _compares_history(method, config, stack) else None
    rivals = yield from _rivals(method, data, short, seed, history)
    rehearsal = yield from rehearse_in(data, data, config, seed, stack)
    choosing = chooses_probe(method, config)
    probe_gains = _probe_gains(rehearsal, agent) if choosing else None
    if choosing:
        agent = with_or_without_probe(agent, probe_gains)
        early = with_or_without_probe(early, probe_gains)
    returns, early_returns = rehearsal.returns(agent), rehearsal.returns(early)
    rival_returns = {name: rehearsal.returns(rival) for name, rival in rivals.items()}
    evidence = Evidence(
        dynamics_off=rehearsal.off,
        above_logs=rehearsal.difference(returns, None),
        probe_gains=probe_gains,
        seeds_differ=float((early_returns - returns).mean()),
        knowing_gains=knowing_gains(rehearsal, agent, returns, data, config),
        **_above(rehearsal, returns, rival_returns),
    )
    if "avg" in rival_returns:
        early_gain = rehearsal.difference(early_returns, rival_returns["avg"])
        evidence = replace(evidence, above_avg=early_gain, agent_above_avg=evidence.above_avg)
    if isinstance(agent.context, SegmentContext | RefinedContext):
        gain = _explained(agent.context, fresh, config, generator(seed, "explained"))
        evidence = replace(evidence, explained=gain)
    return evidence


def _compare_second_fit(
    method: Method,
    data: Dataset,
    config: FitConfig,
    seed: int,
    agent: Agent,
    stack: Stack | None,
) -> Generator[Stage, None, Evidence]:
    """Fit again without a share of the instances, and `avg` like it; try both in those."""
    try:
        share = share_held_out(len(np.unique(data.episode_index.instance)))
        held, record = choose_hold_out(data, share, seed)
        kept, unseen = data.select(~held), data.select(held)
        check_data(kept, config.probe_steps if method.segments else 0)
    except (DataError, ConfigError):
        why = "There are too few episodes to hold some out and try the agent on them. Log more."
        return Evidence(missing=why)
    short = shortened(config)
    second_fit = yield from renamed(method.stages(kept, short, seed), "trial")
    history = short if _compares_history(method, config, stack) else None
    rivals = yield from _rivals(method, kept, short, seed, history)
    rehearsal = yield from rehearse_in(data, unseen, config, seed, stack)
    choosing = chooses_probe(method, config)
    probe_gains = _probe_gains(rehearsal, second_fit, agent) if choosing else None
    if choosing:
        agent = with_or_without_probe(agent, probe_gains)
        second_fit = with_or_without_probe(second_fit, probe_gains)
    returns, second_returns = rehearsal.returns(agent), rehearsal.returns(second_fit)
    rival_returns = {name: rehearsal.returns(rival) for name, rival in rivals.items()}
    evidence = Evidence(
        dynamics_off=rehearsal.off,
        probe_gains=probe_gains,
        held_out=record["by"],
        above_logs=rehearsal.difference(returns, None),
        seeds_differ=float((second_returns - returns).mean()),
        knowing_gains=knowing_gains(rehearsal, agent, returns, data, config),
        **_above(rehearsal, second_returns, rival_returns),
        **_above(rehearsal, returns, rival_returns, "agent_above"),
    )
    if isinstance(second_fit.context, SegmentContext | RefinedContext):
        evidence = replace(evidence, **_separation(second_fit.context, unseen, config, seed))
    return evidence


def share_held_out(instances: int) -> float:
    """The share of this number of instances that the second fit does not see."""
    return max(HELD_OUT, LEAST_HELD_OUT / instances)


def _compares_history(method: Method, config: FitConfig, stack: Stack | None) -> bool:
    """Whether `history` is tried too: settings leave open how the agent begins.

    An agent that stacks observations reads what `history` reads.
    """
    return chooses_probe(method, config) and refines(config) and stack is None


def _rivals(
    method: Method, data: Dataset, config: FitConfig, seed: int, history: FitConfig | None
) -> Generator[Stage, None, dict[str, Agent]]:
    """Agents to compare with: `avg` and, with settings of its own, `history`."""
    rivals = {}
    if method.name != AVG.name:
        rivals["avg"] = yield from renamed(AVG.stages(data, config, seed), "trial-avg")
    if history is not None:
        rivals["history"] = yield from renamed(HISTORY.stages(data, history, seed), "trial-history")
    return rivals


def _above(
    rehearsal: Rehearsal, returns: Doubles, rival_returns: dict[str, Doubles], field: str = "above"
) -> dict[str, Any]:
    """The returns `returns[n]` less those of each rival, as fields of the evidence."""
    return {
        f"{field}_{name}": rehearsal.difference(returns, theirs, across=rehearsal.unseen)
        for name, theirs in rival_returns.items()
    }


def _probe_gains(rehearsal: Rehearsal, *agents: Agent) -> Interval | None:
    """The return with the probe less that without: of the first agent whose probe does not pay.

    Of the first agent, if it pays for all. None if an agent has no probe to leave out.
    """
    gains = []
    for agent in agents:
        context = agent.context
        if not isinstance(context, RefinedContext) or context.probe is None:
            return None
        without = replace(agent, context=context.without_probe())
        gains.append(rehearsal.difference(rehearsal.returns(agent), rehearsal.returns(without)))
        if not probe_pays(gains[-1]):
            return gains[-1]
    return gains[0]


def knowing_gains(
    rehearsal: Rehearsal, agent: Agent, returns: Doubles, data: Dataset, config: FitConfig
) -> Interval | None:
    """The return of the same control if it is given each instance's latent, less `returns[n]`.

    The latent of an instance is the mean of those that the agent infers in its logged episodes, or
    in the longest of them if all are short. None for an agent that infers none.
    """
    context = agent.context
    if not isinstance(context, RefinedContext):
        return None
    names = tuple(f"z{column}" for column in range(context.encoder.latent_dim))
    index, codes = data.episode_index, np.unique(rehearsal.instance)
    longest = np.array([index.length[index.instance == code].max() for code in codes])
    read = np.minimum(longest, later_steps(data, config))
    known: dict[int, Hidden] = {}
    for steps in np.unique(read):
        encoder, segments = context.encoder.reading(int(steps)), data.segments(int(steps))
        taken = data.action_space.encode(segments.actions)
        latent, _ = encoder.encode(segments.observations, taken)
        for code in codes[read == steps]:
            mean = latent[segments.instance == code].mean(axis=0)
            known[int(code)] = dict(zip(names, map(float, mean), strict=True))
    informed = replace(agent, context=HiddenContext(names, context.latent_scaler))
    best = rehearsal.returns(informed, [known[int(i)] for i in rehearsal.instance])
    return rehearsal.difference(best, returns)


def chooses_probe(method: Method, config: FitConfig) -> bool:
    """Whether it is left to the trial if a probe acts first."""
    return method.probe_optional and config.probe.use == "auto"


def with_or_without_probe(agent: Agent, gains: Interval | None) -> Agent:
    """The agent with its probe only if the probe is shown to pay."""
    if (gains is not None and probe_pays(gains)) or not isinstance(agent.context, RefinedContext):
        return agent
    return replace(agent, context=agent.context.without_probe())


def shortened(config: FitConfig, share: float = SHORT) -> FitConfig:
    """The same fit with fewer updates, and with a probe if one is to be tried."""
    if config.probe.use == "auto":
        config = replace(config, probe=replace(config.probe, use="always"))
    latent = replace(config.latent, updates=max(1, round(SHORT_LATENT * config.latent.updates)))
    control = replace(config.control, updates=max(1, round(share * config.control.updates)))
    return replace(config, verdict=False, latent=latent, control=control)


def renamed(stages: Generator[Stage, None, Agent], prefix: str) -> Generator[Stage, None, Agent]:
    """The same stages under different names."""
    while True:
        try:
            stage = next(stages)
        except StopIteration as finished:
            agent: Agent = finished.value
            return agent
        stage.name = f"{prefix}-{stage.name}"
        yield stage


def _separation(
    context: SegmentContext | RefinedContext, unseen: Dataset, config: FitConfig, seed: int
) -> dict[str, Any]:
    """Whether the second fit's latent distinguishes unseen instances and explains their steps."""
    first = context.encoder
    later = first
    if isinstance(first, TransitionEncoder) and isinstance(context, RefinedContext):
        later = first.reading(later_steps(unseen, config))
    evidence: dict[str, Any] = {}
    separation = _separation_by(later, unseen, generator(seed, "separation"))
    if separation is not None:
        evidence["unseen"] = Interval(separation.apart, separation.low, separation.high)
        evidence["unseen_separates"] = separation.better_than_chance
    # The regions of an agent are those of its first steps.
    early = _separation_by(first, unseen, generator(seed, "regions"))
    if early is not None:
        evidence["unseen_radii"] = early.radii
    explained = _explained(context, unseen, config, generator(seed, "explained"))
    return evidence | {"explained": explained}


def _separation_by(
    encoder: SegmentEncoder, unseen: Dataset, rng: np.random.Generator
) -> Separation | None:
    """Separation of unseen instances by their first steps; None if there are too few episodes.

    Their centres come from one half of their episodes, the segments asked from the other.
    """
    segments = unseen.segments(encoder.steps)
    rows = np.sort(rng.permutation(len(segments.actions))[:SEGMENTS])
    taken = unseen.action_space.encode(segments.actions[rows])
    mean, log_variance = encoder.encode(segments.observations[rows], taken)
    deviation, instance = np.exp(0.5 * log_variance), segments.instance[rows]
    half = _halves(instance, rng)
    if len(np.unique(instance[half])) < 2 or half.all():
        return None
    return measure_separation(
        mean[half],
        instance[half],
        mean[~half],
        deviation[~half],
        instance[~half],
        np.ones(int((~half).sum())),
        rng,
    )


def _halves(instance: Integers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random half of each instance's rows."""
    half = np.zeros(len(instance), dtype=bool)
    for code in np.unique(instance):
        rows = rng.permutation(np.flatnonzero(instance == code))
        half[rows[: (len(rows) + 1) // 2]] = True
    return half


def _explained(
    context: SegmentContext | RefinedContext,
    unseen: Dataset,
    config: FitConfig,
    rng: np.random.Generator,
) -> Interval | None:
    """The gain in log-likelihood of steps from the latent of their own episode over another's.

    The latent is read from the first steps, of which it has seen none before; the steps to explain
    come after them.
    """
    if context.novelty is None or not unseen.num_episodes:
        return None
    encoder = context.encoder
    if isinstance(encoder, TransitionEncoder) and isinstance(context, RefinedContext):
        encoder = encoder.reading(max(1, later_steps(unseen, config) // 2))
    segments = unseen.segments(encoder.steps)
    chosen = np.sort(rng.permutation(len(segments.actions))[:SEGMENTS])
    taken = unseen.action_space.encode(segments.actions[chosen])
    latent, _ = encoder.encode(segments.observations[chosen], taken)
    episode, instance = segments.episode[chosen], segments.instance[chosen]
    steps = unseen.steps()
    order = np.argsort(episode)
    place = np.searchsorted(episode[order], steps.episode)
    here = (place < len(order)) & (
        episode[order][np.minimum(place, len(order) - 1)] == steps.episode
    )
    rows = rng.permutation(np.flatnonzero(here & (steps.time >= encoder.steps)))[:SEGMENTS]
    mine = order[place[rows]]
    other = rng.permutation(len(latent))[np.arange(len(rows)) % len(latent)]
    differs = instance[other] != instance[mine]
    rows, mine, other = rows[differs], mine[differs], other[differs]
    if not len(rows):
        return None
    pairs = np.stack(
        [steps.observations[steps.row[rows]], steps.observations[steps.row[rows] + 1]], axis=1
    )
    taken = unseen.action_space.encode(steps.actions[rows][:, None])
    decoder = context.novelty.decoder
    gain = decoder.log_prob(pairs, taken, latent[mine]) - decoder.log_prob(
        pairs, taken, latent[other]
    )
    return bootstrap(gain, instance[mine], rng)

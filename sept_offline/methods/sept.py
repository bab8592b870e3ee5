"""SEPT: learn a latent, learn to probe for it, learn control given it; then one episode."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import (
    Agent,
    NoContext,
    Novelty,
    RefinedContext,
    SegmentContext,
)
from sept_offline.agent.encoders import TransitionEncoder
from sept_offline.agent.networks import Standardiser
from sept_offline.agent.probes import NetworkProbe
from sept_offline.data import Dataset, Segments
from sept_offline.errors import TrainingError
from sept_offline.latent import (
    LatentModel,
    TransitionLatentStage,
    context_latents,
    identify,
)
from sept_offline.latent.separation import Separation, measure_separation
from sept_offline.methods.method import Method
from sept_offline.methods.novelty import novelty_of
from sept_offline.methods.shared import control_stage, fallback_stage, spaces_of
from sept_offline.probe import (
    Behaviour,
    PaperLoopStage,
    ProbeStage,
    logged_or_estimated,
    segment_rewards,
)
from sept_offline.probe.policy import PolicyNetwork
from sept_offline.probe.weights import balance, possible
from sept_offline.seeding import generator, integer
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage

SEPARATION_SAMPLE = 4000
"""Segments of each kind, at most, on which the separation of instances is measured."""


@dataclass(frozen=True)
class Knowledge:
    """A latent, a probe if there is one, and how likely each logged segment is under it.

    weights `[N]`: self-normalised importance weights of all segments; likely `[N]`: the same with
    the held-out segments, if `weights` excludes them and only the probe determines the latent.
    """

    latent: LatentModel
    probe: NetworkProbe | None
    weights: NDArray[np.float64]
    record: dict[str, Any]
    likely: NDArray[np.float64] | None = None


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    return (yield from probe_infer_control("sept", data, config, seed))


def probe_infer_control(
    name: str, data: Dataset, config: FitConfig, seed: int
) -> Generator[Stage, None, Agent]:
    """SEPT with the probe rewarded as `config.probe.reward` says; `name` is the method's."""
    held = held_out_episodes(data, config.held_out, seed)
    segments = data.segments(config.probe_steps)
    fresh = np.isin(segments.episode, data.episode_index.number[held])
    fitted = data.select(~held)
    refine = refines(config)
    if config.latent.objective == "segment":
        known = yield from learn_jointly(fitted, segments, fresh, config, seed)
    else:
        known = yield from learn_in_turn(fitted, segments, fresh, config, seed)

    separated = separation(known, segments, fresh, seed)
    if refine and separated is not None:
        separated = separation_in_time(separated, known, data, held, config, seed)
    record = known.record | identification(known.latent, segments, fresh)
    if separated is not None:
        informed = separated.better_than_chance
        record["separation"] = asdict(separated) | {"better_than_chance": informed}
        if config.verdict and not informed and config.latent.objective != "segment":
            # Steps spent on a probe would be lost, and its latent noise: act as avg does.
            control = yield from control_stage(data, config.control, seed)
            return Agent(
                name,
                data.metadata.family or "",
                spaces_of(data),
                NoContext(uncertainty=1.0),
                control,
                record=record,
            )
    read = read_contexts if refine else read_segments
    seen = read(data, segments, known, config, seed)
    scaler = Standardiser.fit(seen.latent, unit=1.0)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=scaler(seen.latent),
        context_instance=seen.instance,
        context_weights=seen.weights,
    )
    fallback = yield from fallback_stage(data, config, seed)
    context = context_of(
        known,
        scaler,
        novelty_of(known.latent, known.weights, segments, fresh, config),
        1.0 if separated is None else separated.scale,
        config,
    )
    return Agent(
        name,
        data.metadata.family or "",
        spaces_of(data),
        context,
        control,
        fallback,
        record=record,
    )


def refines(config: FitConfig) -> bool:
    """Whether the agent refines its latent with every step."""
    return config.latent.refine and config.latent.objective == "transitions"


def probes(config: FitConfig) -> bool:
    """Whether a probe is learned; whether it is kept may still depend on a trial of both."""
    if not refines(config):
        return True
    return config.probe.use == "always" or (config.probe.use == "auto" and config.verdict)


def context_of(
    known: Knowledge,
    scaler: Standardiser,
    novelty: Novelty | None,
    uncertainty_scale: float,
    config: FitConfig,
) -> SegmentContext | RefinedContext:
    """How the agent infers its latent: once after the probe, or at every step."""
    encoder, probe = known.latent.encoder, known.probe
    if refines(config) and isinstance(encoder, TransitionEncoder):
        steps = max(config.latent.refine_steps, config.probe_steps)
        return RefinedContext(probe, encoder, scaler, novelty, uncertainty_scale, steps)
    if probe is None:
        raise TrainingError("A latent that is inferred once needs a probe.")
    return SegmentContext(probe, encoder, scaler, novelty, uncertainty_scale)


@dataclass(frozen=True)
class Seen:
    """The latents that control is trained with.

    latent `[S, k]`, instance `[S]`, weights `[S]`: how often each is drawn within its instance.
    """

    latent: NDArray[np.float32]
    instance: NDArray[np.int64]
    weights: NDArray[np.float64]


def read_segments(
    data: Dataset, segments: Segments, known: Knowledge, config: FitConfig, seed: int
) -> Seen:
    """Contexts of the first T_p steps, weighted by the probe."""
    latent, _ = known.latent.encode(segments)
    return Seen(latent, segments.instance, known.weights)


def read_contexts(
    data: Dataset, segments: Segments, known: Knowledge, config: FitConfig, seed: int
) -> Seen:
    """Contexts of any length; those at the start of an episode are weighted by the probe."""
    steps = data.steps()
    found = context_latents(known.latent, steps, config.latent.context, integer(seed, "contexts"))
    # of each episode, its weight among those of its instance, 1 on average
    counts = np.maximum(np.bincount(segments.instance), 1)
    mean = np.bincount(segments.instance, weights=known.weights) / counts
    likely = known.weights / np.maximum(mean[segments.instance], 1e-300)
    order = np.argsort(segments.episode)
    place = order[np.searchsorted(segments.episode[order], steps.episode[found.first])]
    weights = np.where(found.begins, likely[place], 1.0)
    return Seen(found.latent, found.instance, weights)


def learn_in_turn(
    fitted: Dataset, segments: Segments, fresh: NDArray[np.bool_], config: FitConfig, seed: int
) -> Generator[Stage, None, Knowledge]:
    """A latent of the instance first, then a probe that makes it plain.

    The latent sees the `fitted` episodes, the probe all `segments`; the `fresh` ones are those that
    the latent does not see.
    """
    latent = TransitionLatentStage(
        fitted.steps(),
        fitted.segments(config.probe_steps),
        config.latent,
        integer(seed, "latent"),
        space=fitted.action_space,
        num_instances=len(fitted.instances),
        held_out=pick(segments, fresh),
        predicted=fitted.present_dim,
    )
    yield latent
    model = latent.result()
    record: dict[str, Any] = {"latent_dimensions": {"used": model.used_dimensions, "of": model.dim}}
    if not probes(config):
        record |= {"probe": "none, control acts from the first step", "probe_accepted": False}
        return Knowledge(model, None, balance(segments.instance), record)
    rewards = segment_rewards(config.probe.reward, model, segments)
    probe = ProbeStage(
        segments, rewards, config.probe, integer(seed, "probe"), space=fitted.action_space
    )
    yield probe
    result = probe.result()
    record |= {
        "probe": result.reason,
        "probe_reward": config.probe.reward,
        "probe_accepted": result.accepted,
        "probe_ess": result.history[-1].ess if result.accepted else float(len(segments.actions)),
        **describe_behaviour(probe.behaviour),
    }
    return Knowledge(model, result.policy, result.weights, record)


def learn_jointly(
    fitted: Dataset, segments: Segments, fresh: NDArray[np.bool_], config: FitConfig, seed: int
) -> Generator[Stage, None, Knowledge]:
    """The paper's loop: the probe makes the VAE's data, the VAE rewards the probe."""
    loop = PaperLoopStage(
        pick(segments, ~fresh),
        config.latent,
        config.probe,
        integer(seed, "loop"),
        space=fitted.action_space,
        num_instances=len(fitted.instances),
    )
    yield loop
    result = loop.result()
    last = result.history[-1]
    record = {"probe": "the paper's loop", "probe_accepted": True, "probe_ess": last.ess}
    record["probe_reward"] = loop.reward
    record |= describe_behaviour(loop.behaviour)
    weights = np.zeros(len(segments.actions))
    weights[~fresh] = result.weights
    likely = None
    if config.latent.changes:
        behaviour = logged_or_estimated(segments, fitted.action_space, integer(seed, "loop"))
        likely = probe_weights(result.policy, segments, behaviour)
    return Knowledge(result.latent, result.policy.export(), weights, record, likely)


def probe_weights(
    policy: PolicyNetwork, segments: Segments, behaviour: Behaviour
) -> NDArray[np.float64]:
    """Self-normalised importance weights of segments under a probe, `[N]`, balanced by instance."""
    logged = behaviour.along(segments)
    ratio = policy.along(segments) - logged.sum(axis=1)
    # an action that the behaviour denies says nothing about the probe
    ratio = np.where(possible(logged), ratio, -np.inf)
    weights = np.exp(ratio - ratio.max()) * balance(segments.instance)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def describe_behaviour(behaviour: Behaviour) -> dict[str, Any]:
    """Whether the logged probabilities are estimates, and how good those are on held-out steps."""
    if not behaviour.estimated:
        return {"behaviour_estimated": False}
    return {
        "behaviour_estimated": True,
        "behaviour_log_loss": behaviour.nll,
        "behaviour_calibration_error": behaviour.ece,
    }


def held_out_episodes(data: Dataset, share: float, seed: int) -> NDArray[np.bool_]:
    """Episodes held out from the latent: a share of each instance's, none of a single one."""
    rng = generator(seed, "held out")
    instance = data.episode_index.instance
    held = np.zeros(len(instance), dtype=bool)
    for code in np.unique(instance):
        own = rng.permutation(np.flatnonzero(instance == code))
        count = min(max(1, round(share * len(own))), len(own) - 1)
        held[own[:count]] = True
    return held


def pick(segments: Segments, rows: NDArray[np.bool_]) -> Segments:
    """The segments in `rows`."""
    propensities = segments.propensities
    return Segments(
        observations=segments.observations[rows],
        actions=segments.actions[rows],
        rewards=segments.rewards[rows],
        propensities=None if propensities is None else propensities[rows],
        instance=segments.instance[rows],
        episode=segments.episode[rows],
        skipped=0,
    )


def identification(
    latent: LatentModel, segments: Segments, fresh: NDArray[np.bool_]
) -> dict[str, Any]:
    """Identification on held-out segments, for the record; empty if there are none."""
    if not fresh.any():
        return {}
    found = identify(latent, pick(segments, ~fresh), pick(segments, fresh))
    return {"identification": asdict(found)}


def separation(
    known: Knowledge, segments: Segments, fresh: NDArray[np.bool_], seed: int
) -> Separation | None:
    """Separation of the instances on held-out segments, weighted by the probe; None without any."""
    rng = generator(seed, "separation")
    asked = rng.permutation(np.flatnonzero(fresh))[:SEPARATION_SAMPLE]
    reference = rng.permutation(np.flatnonzero(~fresh))[:SEPARATION_SAMPLE]
    if not len(asked):
        return None
    known_weights = known.weights
    if known.likely is not None:
        known_weights = known.likely
        chances = np.where(fresh, 0.0, known.likely)
        drawn = rng.choice(len(fresh), SEPARATION_SAMPLE, p=chances / chances.sum())
        reference = np.unique(drawn)
    rows = np.zeros(len(fresh), dtype=bool)
    rows[asked] = rows[reference] = True
    mean, log_variance = known.latent.encode(pick(segments, rows))
    new, instance = fresh[rows], segments.instance[rows]
    weights = known_weights[rows][new]
    if not weights.sum() > 0:
        weights = np.ones(len(weights))
    return measure_separation(
        mean[~new],
        instance[~new],
        mean[new],
        np.exp(0.5 * log_variance[new]),
        instance[new],
        weights,
        rng,
    )


def later_steps(data: Dataset, config: FitConfig) -> int:
    """Steps after which a refined latent is measured: what three quarters of the episodes reach."""
    reached = int(np.quantile(data.episode_index.length, 0.25))
    return max(config.probe_steps, min(config.latent.refine_steps, reached))


def separation_in_time(
    first: Separation,
    known: Knowledge,
    data: Dataset,
    held: NDArray[np.bool_],
    config: FitConfig,
    seed: int,
) -> Separation:
    """The same with the separation that the latent reaches later, when it has been refined."""
    steps = later_steps(data, config)
    segments = data.segments(steps)
    fresh = np.isin(segments.episode, data.episode_index.number[held])
    longer = replace(known, latent=known.latent.reading(steps), weights=balance(segments.instance))
    later = separation(longer, segments, fresh, seed)
    if later is None or later.apart < first.apart:
        return first
    return replace(first, apart=later.apart, low=later.low, high=later.high)


SEPT = Method(
    "sept",
    _stages,
    "Probe, infer a latent, control: Single Episode Policy Transfer.",
    segments=True,
    novelty=True,
    probe_optional=True,
    title="SEPT",
    probe_reward=True,
)

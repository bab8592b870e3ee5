"""SEPT: learn a latent, learn to probe for it, learn control given it; then one episode.

Its ablations TotalVar and MaxEnt differ in the reward of the probe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import NoContext, Novelty, RefinedContext, SegmentContext
from sept_offline.agent.encoders import TransitionEncoder
from sept_offline.agent.networks import Standardiser
from sept_offline.control import Replay
from sept_offline.data import Dataset, Segments
from sept_offline.errors import TrainingError
from sept_offline.latent import LatentModel, context_latents
from sept_offline.methods.counterfactual import CounterfactualReplay, learn_to_imagine, reached
from sept_offline.methods.hold_out import FEW_INSTANCES, unfitted_episodes
from sept_offline.methods.knowledge import (
    Knowledge,
    identification,
    learn_in_turn,
    learn_jointly,
    novelty_of,
    refines,
    separation,
    separation_in_time,
)
from sept_offline.methods.method import (
    Method,
    Recipe,
    Stages,
    agent_of,
    control_stage,
    fallback_stage,
)
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig, Reward


def probe_infer_control(name: str, data: Dataset, config: FitConfig, seed: int) -> Stages:
    """SEPT with the probe rewarded as `config.probe.reward` says; `name` is the method's."""
    unfitted = unfitted_episodes(data, config.held_out, seed)
    segments = data.segments(config.probe_steps)
    fresh = np.isin(segments.episode, data.episode_index.number[unfitted])
    fitted = data.select(~unfitted)
    refine = refines(config)
    if config.latent.objective == "segment":
        known = yield from learn_jointly(fitted, segments, fresh, config, seed)
    else:
        known = yield from learn_in_turn(fitted, segments, fresh, config, seed)

    separated = separation(known, segments, fresh, seed)
    if refine and separated is not None:
        separated = separation_in_time(separated, known, data, unfitted, config, seed)
    record = known.record | identification(known.latent, segments, fresh)
    if separated is not None:
        informed = separated.better_than_chance
        record["separation"] = asdict(separated) | {"better_than_chance": informed}
        if config.verdict and not informed and config.latent.objective != "segment":
            # Steps spent on a probe would be lost, and its latent noise: act as avg does.
            control = yield from control_stage(data, config.control, seed)
            return agent_of(name, data, NoContext(uncertainty=1.0), control, record=record)
    if refine:
        seen = read_contexts(known, segments, data, config.latent.context, seed)
    else:
        seen = read_segments(known, segments)
    scaler = Standardiser.fit(seen.latent, unit=1.0)
    moves = config.control.counterfactual > 0 and refine
    few = len(np.unique(segments.instance)) < FEW_INSTANCES
    if few and config.latent.objective == "transitions":
        scaler = among_instances(scaler, known.latent, beyond=moves)
    contexts = scaler(seen.latent)
    replay: Callable[..., Replay] = Replay
    if moves:
        imagination = yield from learn_to_imagine(data, known.latent, scaler, config, seed)
        contexts = np.concatenate([contexts, 1 - seen.variance], axis=1)
        replay = partial(CounterfactualReplay, imagination=imagination)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=contexts,
        context_instance=seen.instance,
        context_weights=seen.weights,
        replay=replay,
    )
    fallback = yield from fallback_stage(data, config, seed)
    context = context_of(
        known,
        scaler,
        novelty_of(known.latent, known.weights, segments, fresh, config),
        1.0 if separated is None else separated.scale,
        config,
    )
    return agent_of(name, data, context, control, fallback, record)


def among_instances(scaler: Standardiser, model: LatentModel, *, beyond: bool) -> Standardiser:
    """The same scaler, which keeps latents within the range of the known instances.

    From a few instances control learns nothing about latents beyond them, but for those that steps
    are moved to (`beyond`): there it acts as for the outermost instance, in each column. The range
    contains the prior's mean, 0, with which an episode starts.
    """
    mean = model.instance_mean
    outermost = reached(mean) if beyond else mean
    return scaler.within(np.concatenate([outermost, np.zeros_like(mean[:1])]))


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

    latent, variance `[S, k]`, instance `[S]`, weights `[S]`: how often each is drawn within its
    instance.
    """

    latent: NDArray[np.float32]
    variance: NDArray[np.float32]
    instance: NDArray[np.int64]
    weights: NDArray[np.float64]


def read_segments(known: Knowledge, segments: Segments) -> Seen:
    """Contexts of the first T_p steps, weighted by the probe."""
    mean, log_variance = known.latent.encode(segments)
    return Seen(mean, np.exp(log_variance), segments.instance, known.weights)


def read_contexts(
    known: Knowledge, segments: Segments, data: Dataset, longest: int, seed: int
) -> Seen:
    """Contexts of any length; those at the start of an episode are weighted by the probe."""
    steps = data.steps()
    latent, variance, instance, first = context_latents(
        known.latent, steps, longest, integer(seed, "contexts")
    )
    # of each episode, its weight among those of its instance, 1 on average
    counts = np.maximum(np.bincount(segments.instance), 1)
    mean = np.bincount(segments.instance, weights=known.weights) / counts
    likely = known.weights / np.maximum(mean[segments.instance], 1e-300)
    order = np.argsort(segments.episode)
    place = order[np.searchsorted(segments.episode[order], steps.episode[first])]
    return Seen(latent, variance, instance, np.where(steps.time[first] == 0, likely[place], 1.0))


def _recipe(name: str, reward: Reward | None = None) -> Recipe:
    """The stages of SEPT, or of an ablation that always probes, for this reward."""

    def stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
        if reward is not None:
            probe = replace(config.probe, use="always", reward=reward)
            config = replace(config, probe=probe)
        return (yield from probe_infer_control(name, data, config, seed))

    return stages


SEPT = Method(
    "sept",
    _recipe("sept"),
    "Probe, infer a latent, control: Single Episode Policy Transfer.",
    segments=True,
    novelty=True,
    probe_optional=True,
    title="SEPT",
    probe_reward=True,
)
TOTALVAR = replace(
    SEPT,
    name="totalvar",
    stages=_recipe("totalvar", "total-variation"),
    summary="SEPT whose probe seeks to move the state as far as it can.",
    probe_optional=False,
    title="TotalVar",
    ablation=True,
)
MAXENT = replace(
    TOTALVAR,
    name="maxent",
    stages=_recipe("maxent", "negative-elbo"),
    summary="SEPT whose probe seeks what the latent's model explains least.",
    title="MaxEnt",
)

"""What an agent must know before control: a latent of the instance, a probe for it, and novelty."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import InstancePrior, Novelty, segment_elbo
from sept_offline.agent.probes import NetworkProbe
from sept_offline.data import Dataset, Segments
from sept_offline.latent import LatentModel, TransitionLatentStage, identify
from sept_offline.latent.identification import Separation, measure_separation
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


@dataclass(frozen=True)
class Knowledge:
    """A latent, a probe if there is one, and how likely each logged segment is under it.

    weights `[N]`: self-normalised importance weights of all segments; likely `[N]`: the same with
    the fresh segments, if `weights` excludes them and only the probe determines the latent.
    """

    latent: LatentModel
    probe: NetworkProbe | None
    weights: NDArray[np.float64]
    record: dict[str, Any]
    likely: NDArray[np.float64] | None = None


def refines(config: FitConfig) -> bool:
    """Whether the agent refines its latent with every step."""
    return config.latent.refine and config.latent.objective == "transitions"


def probes(config: FitConfig) -> bool:
    """Whether a probe is learned; whether it is kept may still depend on a trial of both."""
    if not refines(config):
        return True
    return config.probe.use == "always" or (config.probe.use == "auto" and config.verdict)


def learn_in_turn(
    fitted: Dataset, segments: Segments, fresh: NDArray[np.bool_], config: FitConfig, seed: int
) -> Generator[Stage, None, Knowledge]:
    """A latent of the instance first, then a probe that reveals it.

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
        fresh=segments.select(fresh),
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
        segments.select(~fresh),
        config.latent,
        config.probe,
        integer(seed, "loop"),
        space=fitted.action_space,
        num_instances=len(fitted.instances),
    )
    yield loop
    policy = loop.learner.policy
    record = {
        "probe": "the paper's loop",
        "probe_accepted": True,
        "probe_ess": loop.history[-1].ess,
        "probe_reward": loop.reward,
        **describe_behaviour(loop.behaviour),
    }
    weights = np.zeros(len(segments.actions))
    weights[~fresh] = loop.weights().numpy()
    likely = None
    if config.latent.changes:
        behaviour = logged_or_estimated(segments, fitted.action_space, integer(seed, "loop"))
        likely = probe_weights(policy, segments, behaviour)
    return Knowledge(loop.result(), policy.export(), weights, record, likely)


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


LEVELS = (np.arange(2000) + 0.5) / 2000
"""Where the distribution of ELBOs is read: these quantiles are what an agent keeps."""
TAIL = 0.2
"""Share of the distribution, at most, that is smoothed."""
TAIL_SHAPE = -0.1
"""Shape of the generalised Pareto tail: between an exponential (0) and a normal one (−0.2)."""
TAIL_SEGMENTS = 40
"""Effective segments that the smoothed part needs; with enough of them little is smoothed."""


def novelty_of(
    latent: LatentModel,
    weights: NDArray[np.float64],
    segments: Segments,
    fresh: NDArray[np.bool_],
    config: FitConfig,
) -> Novelty | None:
    """The ELBOs that segments of known instances have, to compare with.

    weights `[N]`: how likely each segment is under the policy that acts first; fresh `[N]`: those
    that the latent was not fitted to.
    """
    decoder = latent.decoder
    if decoder is None or not fresh.any():
        return None
    prior = None
    if config.novelty_prior == "instances":
        prior = instance_prior(latent, segments, ~fresh)
    taken = latent.space.encode(segments.actions)
    elbos = segment_elbo(latent.encoder, decoder, segments.observations, taken, prior)
    return Novelty(decoder, smoothed_quantiles(as_if_fresh(elbos, fresh), weights), prior=prior)


def as_if_fresh(elbos: NDArray[np.float64], fresh: NDArray[np.bool_]) -> NDArray[np.float64]:
    """ELBOs `[N]`, with those of the fitted segments shifted to the distribution of fresh ones.

    Few of the fresh segments resemble those of the probe. The others are used too, less likely
    and wider spread by what fitting has gained on average over all segments.
    """
    unfitted, others = elbos[fresh], elbos[~fresh]
    if not len(others):
        return elbos
    gain = max(others.mean() - unfitted.mean(), 0.0)
    wider = max(unfitted.std() / others.std(), 1.0) if others.std() > 0 else 1.0
    moved = others.mean() - gain + wider * (others - others.mean())
    return np.where(fresh, elbos, moved[np.cumsum(~fresh) - 1])


def smoothed_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles of weighted values `[N]` at `LEVELS`, with a generalised Pareto lower tail.

    The first percentile of a hundred effective segments is one or two of them: noise. The mean
    depth of the lowest fifth is not, and says how far a tail of known shape reaches.
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order] / weights.sum()
    edges = np.cumsum(weights)
    quantiles = values[np.minimum(np.searchsorted(edges, LEVELS), len(values) - 1)]
    share = min(TAIL, TAIL_SEGMENTS * float(np.square(weights).sum()))
    start = values[np.searchsorted(edges, share)]
    depth = float((weights * np.maximum(start - values, 0.0)).sum()) / share
    tail = share > LEVELS
    reach = ((share / LEVELS[tail]) ** TAIL_SHAPE - 1) / TAIL_SHAPE
    quantiles[tail] = start - depth * (1 - TAIL_SHAPE) * reach
    return quantiles


def instance_prior(
    latent: LatentModel, segments: Segments, fitted: NDArray[np.bool_]
) -> InstancePrior:
    """Mean and spread of each instance's fitted segments in latent space."""
    mean, log_variance = latent.encode(segments)
    variance = np.exp(log_variance)
    rows = [fitted & (segments.instance == code) for code in np.unique(segments.instance[fitted])]
    return InstancePrior(
        np.stack([mean[part].mean(axis=0) for part in rows]),
        np.stack([mean[part].var(axis=0) + variance[part].mean(axis=0) for part in rows]),
    )


SEPARATION_SAMPLE = 4000
"""Segments of each kind, at most, on which the separation of instances is measured."""


def identification(
    latent: LatentModel, segments: Segments, fresh: NDArray[np.bool_]
) -> dict[str, Any]:
    """Identification on fresh segments, for the record; empty if there are none."""
    if not fresh.any():
        return {}
    shares = identify(latent, segments.select(~fresh), segments.select(fresh))
    return {"identification": asdict(shares)}


def separation(
    known: Knowledge, segments: Segments, fresh: NDArray[np.bool_], seed: int
) -> Separation | None:
    """Separation of the instances on fresh segments, weighted by the probe.

    None without a fresh segment of an instance that has others too.
    """
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
    mean, log_variance = known.latent.encode(segments.select(rows))
    new, instance = fresh[rows], segments.instance[rows]
    if not np.isin(instance[new], instance[~new]).any():
        return None
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
    unfitted: NDArray[np.bool_],
    config: FitConfig,
    seed: int,
) -> Separation:
    """The same with the separation that the latent reaches later, when it has been refined.

    unfitted `[E]`: the episodes that the latent was not fitted to.
    """
    steps = later_steps(data, config)
    segments = data.segments(steps)
    fresh = np.isin(segments.episode, data.episode_index.number[unfitted])
    longer = replace(known, latent=known.latent.reading(steps), weights=balance(segments.instance))
    later = separation(longer, segments, fresh, seed)
    if later is None or later.apart < first.apart:
        return first
    return replace(first, apart=later.apart, low=later.low, high=later.high)

"""What an agent must know before control: a latent of the instance and a probe for it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.probes import NetworkProbe
from sept_offline.data import Dataset, Segments
from sept_offline.latent import LatentModel, TransitionLatentStage
from sept_offline.probe import (
    Behaviour,
    PaperLoopStage,
    ProbeStage,
    logged_or_estimated,
    segment_rewards,
)
from sept_offline.probe.policy import PolicyNetwork
from sept_offline.probe.weights import balance, possible
from sept_offline.seeding import integer
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

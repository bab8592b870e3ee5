"""SEPT-NP: no probe. Control acts from the first step, and z is inferred from its steps.

The paper's VAE learns from the segments that the control policy makes, and the policy starts each
episode with the mean of the z seen so far. Logged segments are weighted instead by how likely that
policy would have made them. Policy and latent need each other, so there are two rounds: a short one
on the segments as they are logged gives the policy whose weights the second one learns from.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.actions import Box, TruncatedNormal
from sept_offline.agent import Control, UnprobedContext
from sept_offline.agent.networks import Array, Standardiser
from sept_offline.control import Batch, Replay
from sept_offline.data import Dataset, Segments
from sept_offline.latent import LatentModel, SegmentLatentStage, TransitionLatentStage
from sept_offline.methods.hold_out import unfitted_episodes
from sept_offline.methods.knowledge import describe_behaviour, identification, novelty_of
from sept_offline.methods.method import Method, Stages, agent_of, control_stage, fallback_stage
from sept_offline.probe import Behaviour, logged_or_estimated
from sept_offline.probe.weights import balance, check_possible, effective, normalised
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage

NEAR = 0.25
"""Deviation of the actions that count as greedy in a box, as a share of half its range."""
EPSILONS = np.linspace(0.05, 1.0, 20)
"""Values of ε for the near-greedy policy; at 1 it is the behaviour."""


@dataclass(frozen=True)
class Round:
    """A latent, and control given it; start `[k]`: the mean z as control reads it."""

    latent: LatentModel
    scaler: Standardiser
    start: Array
    control: Control


@dataclass(frozen=True)
class NearGreedy:
    """weights `[N]`: self-normalised, of all segments under (1 − ε) · greedy + ε · μ."""

    weights: NDArray[np.float64]
    epsilon: float
    ess_share: float


class UnprobedReplay(Replay):
    """Transitions as the policy meets them: with the mean z until T_p steps have been seen.

    time `[N]`: of each step in its episode.
    """

    def __init__(
        self, *columns: Any, time: NDArray[np.int64], steps: int, start: Array, **contexts: Any
    ) -> None:
        self._early = torch.from_numpy(time < steps)
        self._still_early = torch.from_numpy(time + 1 < steps)
        self._start = torch.from_numpy(start)
        super().__init__(*columns, **contexts)

    def gather(self, index: torch.Tensor, context: torch.Tensor | None) -> Batch:
        """See Replay."""
        batch = super().gather(index, context)
        first = self.input_dim - len(self._start)
        batch.inputs[self._early[index], first:] = self._start
        batch.next_inputs[self._still_early[index], first:] = self._start
        return batch


def _stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
    unfitted = unfitted_episodes(data, config.held_out, seed)
    segments = data.segments(config.probe_steps)
    fresh = np.isin(segments.episode, data.episode_index.number[unfitted])
    behaviour = logged_or_estimated(segments, data.action_space, integer(seed, "behaviour"))
    check_possible(behaviour.along(segments))

    logged = balance(segments.instance)
    short = halved(config)
    first = yield from learn_round(data, segments, fresh, logged, short, seed, "-first")
    floor = config.probe.floor(behaviour.estimated)
    acted = near_greedy(first.control, first.start, segments, behaviour, floor)
    last = yield from learn_round(data, segments, fresh, acted.weights, config, seed, "")

    fallback = yield from fallback_stage(data, config, seed)
    novelty = novelty_of(last.latent, acted.weights, segments, fresh, config)
    context = UnprobedContext(last.start, last.latent.encoder, last.scaler, novelty)
    record = {
        "probe": "none, control acts from the first step",
        "segment_epsilon": acted.epsilon,
        "segment_ess": acted.ess_share * len(segments.actions),
        **describe_behaviour(behaviour),
        **identification(last.latent, segments, fresh),
    }
    return agent_of("sept-np", data, context, last.control, fallback, record)


def halved(config: FitConfig) -> FitConfig:
    """The same with half the updates."""
    latent, control = config.latent, config.control
    return replace(
        config,
        latent=replace(latent, updates=max(1, latent.updates // 2)),
        control=replace(control, updates=max(1, control.updates // 2)),
    )


def learn_round(
    data: Dataset,
    segments: Segments,
    fresh: NDArray[np.bool_],
    weights: NDArray[np.float64],
    config: FitConfig,
    seed: int,
    suffix: str,
) -> Generator[Stage, None, Round]:
    """A latent of segments drawn by `weights[N]`, then control that begins with their mean z."""
    fitted = segments.select(~fresh)
    settings: dict[str, Any] = {
        "space": data.action_space,
        "num_instances": len(data.instances),
    }
    number = integer(seed, f"latent{suffix}")
    stage: TransitionLatentStage | SegmentLatentStage
    if config.latent.objective == "segment":
        settings["segment_weights"] = weights[~fresh]
        stage = SegmentLatentStage(fitted, config.latent, number, **settings)
    else:
        unfitted = np.isin(data.episode_index.number, segments.episode[fresh])
        steps = data.select(~unfitted).steps()
        settings |= {"fresh": segments.select(fresh), "predicted": data.present_dim}
        stage = TransitionLatentStage(steps, fitted, config.latent, number, **settings)
    stage.name = f"latent{suffix}"
    yield stage
    model = stage.result()
    latent, _ = model.encode(segments)
    scaler = Standardiser.fit(latent, unit=1.0)
    start = scaler(weights @ latent / weights.sum())
    replay = partial(UnprobedReplay, time=data.steps().time, steps=config.probe_steps, start=start)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=scaler(latent),
        context_instance=segments.instance,
        context_weights=weights,
        name=f"control{suffix}",
        replay=replay,
    )
    return Round(model, scaler, start, control)


def near_greedy(
    control: Control, start: Array, segments: Segments, behaviour: Behaviour, floor: float
) -> NearGreedy:
    """Weights of the segments under control with the mean z, as greedy as the floor allows.

    A step's ratio to μ is (1 − ε) · [a is greedy] / μ(a) + ε: mixed with μ itself, so that the
    effective share rises to 1 with ε, for any μ. In a box a density around the greedy action stands
    for [a is greedy].
    """
    count, length = segments.actions.shape[:2]
    seen = segments.observations[:, :length].reshape(count * length, -1)
    inputs = np.concatenate([control.scaler(seen), np.tile(start, (len(seen), 1))], axis=1)
    best = control.greedy(inputs).reshape(segments.actions.shape)
    logged = behaviour.along(segments)
    space = behaviour.space
    if isinstance(space, Box):
        near = TruncatedNormal(space, best.astype(np.float64), NEAR * space.half)
        sure = np.exp(near.log_probability(segments.actions) - logged)
    else:
        sure = (best == segments.actions) / np.exp(logged)
    shares = torch.from_numpy(balance(segments.instance))
    for epsilon in EPSILONS:
        ratio = torch.from_numpy(np.log((1 - epsilon) * sure + epsilon).sum(axis=1))
        share = float(effective(ratio, shares))
        if share >= floor:
            break
    return NearGreedy(normalised(ratio, shares).numpy(), float(epsilon), share)


SEPT_NP = Method(
    "sept-np",
    _stages,
    "SEPT without a probe: z from the first steps of control.",
    segments=True,
    novelty=True,
    title="SEPT-NP",
    ablation=True,
)

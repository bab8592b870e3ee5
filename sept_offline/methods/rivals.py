"""Shared parts of `focal`, `unicorn` and `csro`: distances, and an agent that reads its context.

They are published with rewards in the context, and with a context that is logged in the test task.
Here the context is what the agent itself has seen of its one episode, as for every other method.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from sept_offline.agent import Agent, RefinedContext
from sept_offline.agent.contexts import RewardedContext
from sept_offline.agent.networks import Standardiser
from sept_offline.agent.probes import Probe
from sept_offline.data import Dataset
from sept_offline.latent.context_encoder import ContextStage
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.settings import FitConfig, FocalConfig
from sept_offline.stage import Stage


def distance_loss(instance: Tensor, z: Tensor, config: FocalConfig) -> Tensor:
    """‖z_i − z_j‖² over pairs of one instance, plus β / (‖z_i − z_j‖² + ε) over all other pairs.

    instance `[B]`, z `[B, k]`; each kind of pair has its own mean.
    """
    first, second = torch.triu_indices(len(z), len(z), offset=1)
    apart = ((z[first] - z[second]) ** 2).sum(dim=1)
    same = instance[first] == instance[second]
    together = apart[same].sum() / same.sum().clamp(min=1)
    others = (1 / (apart[~same] + config.softening)).sum() / (~same).sum().clamp(min=1)
    return together + config.repulsion * others


def encode_and_control(
    name: str,
    data: Dataset,
    config: FitConfig,
    seed: int,
    stage: ContextStage,
    *,
    rewards: bool,
    probe: Probe | None = None,
) -> Generator[Stage, None, Agent]:
    """Train the encoder, then control given its latents; `rewards`: whether the encoder reads them.

    probe: acts in the first T_p steps, if there is one.
    """
    yield stage
    found = stage.result()
    scaler = Standardiser.fit(found.latent, unit=1.0)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=scaler(found.latent),
        context_instance=found.instance,
    )
    kind = RewardedContext if rewards else RefinedContext
    steps = max(config.latent.refine_steps, config.probe_steps)
    encoder = found.encoder.reading(config.probe_steps)
    context = kind(probe, encoder, scaler, refine_steps=steps)
    return Agent(
        name,
        data.metadata.family or "",
        spaces_of(data),
        context,
        control,
        record={"context_rewards": rewards},
    )

"""FOCAL: an encoder that draws contexts of one instance together and those of others apart.

    L = mean ‖z_i − z_j‖²  over pairs of one instance
        + β · mean 1 / (‖z_i − z_j‖² + ε)  over all other pairs

z is the mean embedding of a context's transitions; control learns π(a | s, z). From Li, Yang and
Luo, "FOCAL: efficient fully-offline meta-reinforcement learning via distance metric learning and
behavior regularization" (2021).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from torch import Tensor

from sept_offline.agent import Agent
from sept_offline.data import Dataset
from sept_offline.latent.context_encoder import ContextStage
from sept_offline.methods.method import Method
from sept_offline.methods.rivals import distance_loss, encode_and_control
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig, FocalConfig
from sept_offline.stage import Stage


class DistanceStage(ContextStage):
    """Learns embeddings by distances alone."""

    def __init__(self, *parts: Any, distance: FocalConfig, **others: Any) -> None:
        self._distance = distance
        super().__init__(*parts, **others)

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        return distance_loss(instance, z, self._distance)


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    steps, rewards = data.steps(), config.focal.rewards
    stage = DistanceStage(
        steps,
        config.latent,
        integer(seed, "latent"),
        space=data.action_space,
        rewards=steps.rewards if rewards else None,
        distance=config.focal,
    )
    return (yield from encode_and_control("focal", data, config, seed, stage, rewards=rewards))


FOCAL = Method(
    "focal",
    _stages,
    "A latent by distances between contexts and, as published, their rewards.",
    judged=False,
    title="FOCAL",
    moving_latent=True,
)

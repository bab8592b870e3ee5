"""UNICORN: an encoder whose latent must also predict other transitions of the same instance.

    L = E ‖decoder(s, a, z) − (s′ − s, r)‖² + α · L_FOCAL

The transitions to predict come from anywhere in the instance; without rewards no r is read or
predicted. From Li et al., "Towards an information theoretic framework of context-based offline
meta-reinforcement learning" (2024): reconstruction bounds the information about the task from
below, distances from above.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor, nn

from sept_offline.agent import Agent
from sept_offline.data import Dataset
from sept_offline.latent.context_encoder import ContextStage
from sept_offline.latent.networks import outer
from sept_offline.latent.transitions import TARGETS
from sept_offline.methods.method import Method
from sept_offline.methods.rivals import distance_loss, encode_and_control
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig, FocalConfig
from sept_offline.stage import Stage
from sept_offline.training.layers import perceptron


class ReconstructionStage(ContextStage):
    """Learns embeddings by what they predict, and by distances with the weight `weight`."""

    def __init__(self, *parts: Any, distance: FocalConfig, weight: float, **others: Any) -> None:
        self._distance, self._weight = distance, weight
        super().__init__(*parts, **others)

    def _beside(self) -> dict[str, nn.Sequential]:
        width, taken = self.states.shape[1], self.chosen.shape[1]
        dim, hidden = self.config.dim, self.config.hidden
        inputs = width + taken + dim + taken * dim
        return {"decoder": perceptron(inputs, (hidden, hidden), width)}

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        rows = self.targets(instance, TARGETS)
        chosen, repeated = self.chosen[rows], z.repeat_interleave(TARGETS, dim=0)
        inputs = (self.states[rows], chosen, repeated, outer(chosen, repeated))
        predicted: Tensor = self.beside["decoder"](torch.cat(inputs, dim=1))
        error = ((predicted - self.changes[rows]) ** 2).sum(dim=1).mean()
        return error + self._weight * distance_loss(instance, z, self._distance)


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    steps, rewards = data.steps(), config.unicorn.rewards
    stage = ReconstructionStage(
        steps,
        config.latent,
        integer(seed, "latent"),
        space=data.action_space,
        rewards=steps.rewards if rewards else None,
        distance=config.focal,
        weight=config.unicorn.distance,
    )
    return (yield from encode_and_control("unicorn", data, config, seed, stage, rewards=rewards))


UNICORN = Method(
    "unicorn",
    _stages,
    "A latent that predicts other steps, by distances and, as published, with rewards.",
    judged=False,
    title="UNICORN",
    moving_latent=True,
    sections=("focal",),
)

"""CSRO: distances between contexts, and embeddings that say little about who acted where.

    L = L_FOCAL + λ · ( E log q(e | s, a) − E_{e′ of other steps} log q(e′ | s, a) )

The bracket bounds the information between a transition's embedding e and its state and action from
above (CLUB), so that z depends on what an action does and not on the behaviour that chose it. q is
a Gaussian that is fitted beside it, to embeddings held constant. At test time random steps come
first, then control with the latent they gave. From Gao et al., "Context shift reduction for
offline meta-reinforcement learning" (2023).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor, nn

from sept_offline.actions import Box
from sept_offline.agent import Agent
from sept_offline.agent.probes import UniformBoxProbe, UniformProbe
from sept_offline.data import Dataset
from sept_offline.latent.context_encoder import ContextStage
from sept_offline.latent.networks import LOG_VARIANCE, bounded
from sept_offline.methods.method import Method
from sept_offline.methods.rivals import distance_loss, encode_and_control
from sept_offline.seeding import integer
from sept_offline.settings import CsroConfig, FitConfig, FocalConfig
from sept_offline.stage import Stage
from sept_offline.training.gaussians import log_normal
from sept_offline.training.layers import perceptron

TARGETS = 4
"""Transitions per context on which the information is bounded."""


class IndependentStage(ContextStage):
    """Learns embeddings by distances, and keeps states and actions out of them."""

    def __init__(self, *parts: Any, distance: FocalConfig, own: CsroConfig, **others: Any) -> None:
        self._distance, self._own = distance, own
        super().__init__(*parts, **others)

    def _beside(self) -> dict[str, nn.Sequential]:
        # q: mean and log-variance of an embedding, from state and action
        inputs = self.states.shape[1] + self.chosen.shape[1]
        hidden = (self._own.hidden, self._own.hidden)
        return {"q": perceptron(inputs, hidden, 2 * self.config.dim)}

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        rows, network = self.targets(instance, TARGETS), self.beside["q"]
        embedded = self.embed(rows)
        known = torch.cat((self.states[rows], self.chosen[rows]), dim=1)
        fitted = log_normal(embedded.detach(), *bounded(network(known), LOG_VARIANCE)).mean()
        held = {name: value.detach() for name, value in network.named_parameters()}
        q = bounded(torch.func.functional_call(network, held, (known,)), LOG_VARIANCE)
        others = embedded[torch.randperm(len(rows), generator=self.rng)]
        bound = (log_normal(embedded, *q) - log_normal(others, *q)).mean()
        distances = distance_loss(instance, z, self._distance)
        return distances - fitted + self._own.independence * bound


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    steps, rewards, space = data.steps(), config.csro.rewards, data.action_space
    stage = IndependentStage(
        steps,
        config.latent,
        integer(seed, "latent"),
        space=space,
        rewards=steps.rewards if rewards else None,
        distance=config.focal,
        own=config.csro,
    )
    kind = UniformBoxProbe if isinstance(space, Box) else UniformProbe
    return (
        yield from encode_and_control(
            "csro", data, config, seed, stage, rewards=rewards, probe=kind(space.width)
        )
    )


CSRO = Method(
    "csro",
    _stages,
    "Random steps, then a latent by distances that ignores the behaviour; reads rewards.",
    judged=False,
    title="CSRO",
    moving_latent=True,
    sections=("focal",),
)

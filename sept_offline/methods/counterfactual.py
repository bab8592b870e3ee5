"""Steps of instances between and beyond the logged ones, for control to learn from.

A logged step of instance i becomes one of an instance on the line from i to another instance j, at
m̃ = m_i + u · (m_j − m_i) with u in [−0.3, 1.3]. The latent's decoder f corrects where the step
leads, and a model of rewards what it earns:

    s̃′ = s′ + f(s, a, m̃) − f(s, a, m_i)        r̃ = r + r(s, a, s̃′) − r(s, a, s′)

All else that was logged is kept, noise included. The latent that control reads moves along, in each
dimension by the share that its context has revealed: 1 − its variance, where the prior has 1.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser
from sept_offline.control import Replay
from sept_offline.control.replay import Batch
from sept_offline.control.rewards import one_form
from sept_offline.data import Dataset
from sept_offline.dynamics.columns import Columns
from sept_offline.dynamics.outcome import OutcomeModel, OutcomeStage
from sept_offline.latent import LatentModel
from sept_offline.latent.networks import TransitionNetwork
from sept_offline.methods.method import centre_rewards
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage
from sept_offline.threads import one_thread

REACH = 0.3
"""How far beyond the two instances a step may lie, as a share of their distance."""


def reached(mean: NDArray[np.float32]) -> NDArray[np.float32]:
    """The outermost latents that steps can be moved to from `mean[I, k]`, `[2·I·I, k]`."""
    apart = mean[None, :] - mean[:, None]
    ends = [mean[:, None] + u * apart for u in (-REACH, 1 + REACH)]
    return np.concatenate(ends).reshape(-1, mean.shape[1])


@dataclass(frozen=True)
class Imagination:
    """Moves steps to other instances.

    mean `[I, k]`: latents of the logged instances; present: those with logged steps; factor `[I]`:
    size of their rewards in control's form, relative to those that `outcome` predicts; shift: what
    control takes off the reward of a step that goes on; scaler: of observations, latent_scaler: of
    latents, as control reads them; low, high `[d]`: range of the logged observations.
    """

    network: TransitionNetwork
    outcome: OutcomeModel
    space: ActionSpace
    mean: Tensor
    present: NDArray[np.int64]
    factor: Tensor
    shift: float
    share: float
    scaler: Standardiser
    latent_scaler: Standardiser
    low: Tensor
    high: Tensor

    def __call__(
        self, batch: Batch, instance: NDArray[np.int64], revealed: Tensor, rng: np.random.Generator
    ) -> Batch:
        """The same transitions of `instance[B]`, a share of them moved.

        revealed `[B, k]`: what the context of each transition has revealed of its latent.
        """
        count = len(instance)
        chosen = torch.from_numpy(rng.random(count) < self.share)
        further = rng.integers(1, len(self.present), size=count)
        place = np.searchsorted(self.present, instance) + further
        other = self.present[place % len(self.present)]
        u = torch.from_numpy(rng.uniform(-REACH, 1 + REACH, size=count).astype(np.float32))
        with one_thread():
            moved, ended = self.move(batch, instance, other, u, revealed)
        # Where the logs or the models see an end, the step stays as it was logged.
        chosen &= ~ended & (batch.terminals == 0)
        rows = chosen.unsqueeze(1)
        return replace(
            batch,
            inputs=torch.where(rows, moved.inputs, batch.inputs),
            next_inputs=torch.where(rows, moved.next_inputs, batch.next_inputs),
            rewards=torch.where(chosen, moved.rewards, batch.rewards),
        )

    @torch.no_grad()
    def move(
        self,
        batch: Batch,
        instance: NDArray[np.int64],
        other: NDArray[np.int64],
        u: Tensor,
        revealed: Tensor,
    ) -> tuple[Batch, Tensor]:
        """All steps, moved the share `u[B]` of the way to `other[B]`, and which of them end."""
        width = self.scaler.dim
        centre, scale = torch.from_numpy(self.scaler.mean), torch.from_numpy(self.scaler.scale)
        states, after = (
            part[:, :width] * scale + centre for part in (batch.inputs, batch.next_inputs)
        )
        actions = self._encoded(batch.actions)
        mean = self.mean[instance]
        apart = u.unsqueeze(1) * (self.mean[other] - mean)
        there = after + self._change(states, actions, mean, mean + apart)
        there = torch.minimum(torch.maximum(there, self.low), self.high)

        logged, _ = self.outcome.predict(states, actions, after)
        earned, ended = self.outcome.predict(states, actions, there)
        factor = self.factor[instance]
        growth = (self.factor[other] / factor) ** u.clamp(0, 1)
        raw = batch.rewards + self.shift + factor * (earned - logged)

        latent = batch.inputs[:, width:] + apart * revealed * torch.from_numpy(
            self.latent_scaler.inverse
        )
        if self.latent_scaler.limits is not None:
            least, most = torch.from_numpy(self.latent_scaler.limits)
            latent = torch.minimum(torch.maximum(latent, least), most)
        moved = replace(
            batch,
            inputs=torch.cat((batch.inputs[:, :width], latent), dim=1),
            next_inputs=torch.cat(((there - centre) / scale, latent), dim=1),
            rewards=raw * growth - self.shift,
        )
        return moved, ended > 0

    def _encoded(self, actions: Tensor) -> Tensor:
        """Actions as the models read them: `[B, A]`."""
        if actions.ndim == 2:
            return actions
        return torch.nn.functional.one_hot(actions, self.space.width).float()

    def _change(self, states: Tensor, actions: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """s̃′ − s′, `[B, d]`, if the latent `there[B, k]` takes the place of `here[B, k]`."""
        network = self.network
        known = network.scaled("state", states)
        gain = network.predict(known, actions, there)[0] - network.predict(known, actions, here)[0]
        per_change = network.get_buffer("per_change")
        unit = torch.where(per_change > 0, network.get_buffer("rest") / per_change, 0.0)
        return gain * unit


class CounterfactualReplay(Replay):
    """A replay that moves a share of its steps to other instances.

    contexts `[S, 2k]`: latents, standardised, and what each context has revealed of them.
    """

    def __init__(self, *columns: NDArray[Any], imagination: Imagination, **contexts: Any) -> None:
        super().__init__(*columns, **contexts)
        self._imagination = imagination
        self.input_dim -= imagination.mean.shape[1]

    def sample(self, batch_size: int, rng: np.random.Generator) -> Batch:
        """See Replay."""
        index, context = self.draw(batch_size, rng)
        batch = self.gather(index, context)
        revealed = batch.inputs[:, self.input_dim :]
        batch = replace(
            batch,
            inputs=batch.inputs[:, : self.input_dim],
            next_inputs=batch.next_inputs[:, : self.input_dim],
        )
        return self._imagination(batch, self._instance[index.numpy()], revealed, rng)


def learn_to_imagine(
    data: Dataset,
    model: LatentModel,
    latent_scaler: Standardiser,
    config: FitConfig,
    seed: int,
) -> Generator[Stage, None, Imagination]:
    """Train the model of rewards; with the latent's decoder it moves steps."""
    if not isinstance(model.network, TransitionNetwork):
        raise TypeError("Only the transitions objective has a decoder of single steps.")
    steps = data.steps()
    rewards, factor = one_form(steps.rewards, steps.terminations, steps.instance, config.control)
    stage = OutcomeStage(
        steps,
        rewards,
        steps.terminations,
        Columns.fit(steps),
        config.dynamics,
        integer(seed, "outcome"),
        space=data.action_space,
    )
    yield stage
    shifted = centre_rewards(data, config.control)
    return Imagination(
        model.network,
        stage.outcome,
        data.action_space,
        torch.from_numpy(model.instance_mean),
        np.unique(steps.instance),
        torch.from_numpy(factor.astype(np.float32)),
        (shifted.goal_shift or 0.0) * (1 - shifted.gamma),
        config.control.counterfactual,
        Standardiser.fit(steps.observations),
        latent_scaler,
        torch.from_numpy(steps.observations.min(axis=0)),
        torch.from_numpy(steps.observations.max(axis=0)),
    )

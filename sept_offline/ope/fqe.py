"""Fitted Q evaluation by d3rlpy, on the agent as a whole: the probe's steps and the control's.

d3rlpy would ask the policy it evaluates for its action in the next state. Ours depends on more than
that state (a probe samples, a latent comes from the whole segment), so what it does was written
down beforehand for every logged state, and the targets are made here from those notes: d3rlpy has
the networks, the loss, the optimiser and the target's copies.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.ope import DiscreteFQE, FQEConfig
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory
from d3rlpy.torch_utility import TorchMiniBatch
from numpy.typing import NDArray

from sept_offline.errors import TrainingError
from sept_offline.ope.table import Doubles
from sept_offline.ope.transitions import Transitions
from sept_offline.progress import Progress
from sept_offline.seeding import generator, integer
from sept_offline.settings import OpeConfig
from sept_offline.threads import one_thread

REPORT = 500
"""Updates between two reports."""


class _Noted:
    """A placeholder for the evaluated policy, whose actions are precomputed."""

    def __init__(self) -> None:
        self.impl = self


class FittedQ:
    """Q(s, z, t, a) of an agent, fitted to transitions.

    final, halfway: its values `[R, A]` of all logged states, in the rewards' own units, after all
    updates and after half of them.
    """

    final: Doubles
    halfway: Doubles

    def __init__(
        self, inputs: int, num_actions: int, horizon: int, config: OpeConfig, seed: int
    ) -> None:
        self.updates = updates = config.updates_for(horizon)
        self.every = config.target_every_for(horizon)
        self.config, self.seed = config, seed
        settings = FQEConfig(
            learning_rate=config.learning_rate,
            optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates)),
            encoder_factory=VectorEncoderFactory(hidden_units=list(config.hidden)),
            batch_size=config.batch_size,
            gamma=1.0,
            target_update_interval=self.every,
        )
        # d3rlpy initialises from torch's global generator: fork it
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(seed, "weights"))
            algorithm = DiscreteFQE(_Noted(), settings)
            algorithm.create_impl((inputs,), num_actions)
        self._impl = algorithm.impl

    def fit(self, data: Transitions, shares: Doubles, title: str, progress: Progress) -> FittedQ:
        """Learn from the transitions, those of an episode as often as `shares[E]` say."""
        rows = np.flatnonzero(shares[data.episode] > 0)
        if not len(rows):
            raise TrainingError("There are no transitions to fit Q to.")
        rng = generator(self.seed, "minibatches")
        weights = shares[data.episode[rows]]
        size = self.config.batch_size
        progress.start(title, self.updates, "updates")
        self._impl.modules.set_train()
        with one_thread():
            for first in range(0, self.updates, self.every):
                count = min(self.every, self.updates - first)
                drawn = rows[_places(weights, count * size, rng)]
                batch, value = self._targets(data, drawn, data.draw_actions(rng))
                for update in range(count):
                    part = slice(update * size, (update + 1) * size)
                    loss = self._update(_part(batch, part), value[part])
                    if not math.isfinite(loss):
                        raise TrainingError(
                            f"The loss of the fitted Q is {loss} at update {first + update}."
                        )
                    if (first + update) % REPORT == 0:
                        progress.update(first + update, loss=loss)
                self._impl.update_target()
                if first < self.updates / 2 <= first + count:
                    self.halfway = self._values(data)
            self.final = self._values(data)
        progress.update(self.updates)
        progress.finish()
        return self

    def _targets(
        self, data: Transitions, rows: NDArray[np.int64], choice: NDArray[np.int64]
    ) -> tuple[TorchMiniBatch, torch.Tensor]:
        """Steps `rows[n]` for d3rlpy, and the value `[n, 1]` of what comes after their rewards.

        A step's rewards are all that was earned as long as the log did what the agent does,
        `choice[R]`; where they part comes the target's value of the agent's action: a tree backup.
        """
        ends, earned = data.until_parting(choice)
        ends = ends[rows]
        after = data.row[ends] + 1
        batch = _minibatch(
            data.inputs[data.row[rows]],
            data.actions[rows],
            earned[rows],
            data.inputs[after],
            data.last[ends],
        )
        value = self._impl.compute_target(batch, torch.from_numpy(choice[after])).numpy()
        return batch, torch.from_numpy(data.attainable(value, after))

    def _update(self, batch: TorchMiniBatch, value: torch.Tensor) -> float:
        loss = self._impl.compute_loss(batch, value)
        optimiser = self._impl.modules.optim
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    def _values(self, data: Transitions) -> Doubles:
        with torch.no_grad():
            parts = [
                self._impl._q_func_forwarder.compute_expected_q(torch.from_numpy(part))
                for part in np.array_split(data.inputs, max(1, len(data.inputs) // 65536))
            ]
        q = torch.cat(parts).double().numpy()
        return np.asarray(data.attainable(q, slice(None)) * data.scale)


def _places(weights: Doubles, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`count` places, each as often as its weight says."""
    if np.ptp(weights) == 0:
        return rng.integers(0, len(weights), size=count)
    edges = np.cumsum(weights)
    places: NDArray[np.int64] = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return np.minimum(places, len(weights) - 1)


def _minibatch(
    observations: NDArray[np.float32],
    actions: NDArray[np.int64],
    rewards: NDArray[np.float32],
    after: NDArray[np.float32],
    last: NDArray[np.float32],
) -> TorchMiniBatch:
    taken = torch.from_numpy(actions).view(-1, 1)
    earned = torch.from_numpy(rewards).view(-1, 1)
    return TorchMiniBatch(
        observations=torch.from_numpy(observations),
        actions=taken,
        rewards=earned,
        next_observations=torch.from_numpy(after),
        next_actions=taken,
        returns_to_go=earned,
        terminals=torch.from_numpy(last).view(-1, 1),
        intervals=torch.ones_like(earned),
        device="cpu:0",
    )


def _part(batch: TorchMiniBatch, part: slice) -> TorchMiniBatch:
    columns = {
        name: column[part] for name, column in vars(batch).items() if torch.is_tensor(column)
    }
    return replace(batch, **columns)

"""Fitted Q evaluation by d3rlpy, on the agent as a whole: the probe's steps and the control's.

d3rlpy asks the policy it evaluates for its action in the next state. Ours depends on more than that
state (a probe samples, a latent comes from the whole segment), so it was written down beforehand
for every logged state, and a policy that reads from those notes stands in its place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.ope import DiscreteFQE, FQEConfig
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory
from d3rlpy.torch_utility import TorchMiniBatch
from numpy.typing import NDArray

from sept_offline.errors import TrainingError
from sept_offline.ope.config import OpeConfig
from sept_offline.ope.table import Doubles
from sept_offline.ope.transitions import Transitions
from sept_offline.progress import Progress
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

CHUNK = 64
"""Minibatches drawn at once."""
REPORT = 500
"""Updates between two reports."""


class _Noted:
    """The policy under evaluation: its next actions, noted for the minibatch at hand."""

    def __init__(self) -> None:
        self.impl = self
        self.next_actions = torch.zeros(0, dtype=torch.int64)

    def predict_best_action(self, _: torch.Tensor) -> torch.Tensor:
        """What was noted, whatever the state."""
        return self.next_actions


class FittedQ:
    """Q(s, z, t, a) of an agent, fitted to transitions."""

    def __init__(
        self, inputs: int, num_actions: int, horizon: int, config: OpeConfig, seed: int
    ) -> None:
        self.updates = updates = config.updates_for(horizon)
        self.config, self.seed = config, seed
        self._policy = _Noted()
        settings = FQEConfig(
            learning_rate=config.learning_rate,
            optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates)),
            encoder_factory=VectorEncoderFactory(hidden_units=list(config.hidden)),
            batch_size=config.batch_size,
            gamma=1.0,
            target_update_interval=config.target_every_for(horizon),
        )
        # d3rlpy initialises from torch's global generator: fork it
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer(seed, "weights"))
            algorithm = DiscreteFQE(self._policy, settings)
            algorithm.create_impl((inputs,), num_actions)
        self._impl = algorithm.impl

    def fit(
        self, data: Transitions, episodes: NDArray[np.bool_], title: str, progress: Progress
    ) -> FittedQ:
        """Learn from the transitions of `episodes[E]`."""
        rows = np.flatnonzero(episodes[data.episode])
        if not len(rows):
            raise TrainingError("There is not a single transition to fit a Q to.")
        rng = generator(self.seed, "minibatches")
        edges = np.cumsum(data.probabilities, axis=1)
        size = self.config.batch_size
        progress.start(title, self.updates, "updates")
        self._impl.modules.set_train()
        with one_thread():
            for update in range(self.updates):
                if update % CHUNK == 0:
                    drawn = rows[rng.integers(0, len(rows), size=CHUNK * size)]
                    chance = rng.random(CHUNK * size)
                part = slice(update % CHUNK * size, (update % CHUNK + 1) * size)
                loss = self._update(data, edges, drawn[part], chance[part], update)
                if not math.isfinite(loss):
                    raise TrainingError(f"The loss of the fitted Q is {loss} at update {update}.")
                if update % REPORT == 0:
                    progress.update(update, loss=loss)
        progress.update(self.updates)
        progress.finish()
        return self

    def _update(
        self, data: Transitions, edges: Doubles, rows: Any, chance: Doubles, update: int
    ) -> float:
        after = data.row[rows] + 1
        # one draw a transition from what the agent would do: a probe's expectation, in the mean
        places = (edges[after] <= (chance * edges[after, -1])[:, None]).sum(axis=1)
        places = np.minimum(places, edges.shape[1] - 1)
        self._policy.next_actions = torch.from_numpy(places)
        actions = torch.from_numpy(data.actions[rows]).view(-1, 1)
        rewards = torch.from_numpy(data.rewards[rows]).view(-1, 1)
        batch = TorchMiniBatch(
            observations=torch.from_numpy(data.inputs[data.row[rows]]),
            actions=actions,
            rewards=rewards,
            next_observations=torch.from_numpy(data.inputs[after]),
            next_actions=actions,
            returns_to_go=rewards,
            terminals=torch.from_numpy(data.last[rows]).view(-1, 1),
            intervals=torch.ones_like(rewards),
            device="cpu:0",
        )
        loss: float = self._impl.inner_update(batch, update + 1)["loss"]
        return loss

    def values(self, inputs: NDArray[np.float32], scale: float) -> Doubles:
        """Q `[n, A]` of `inputs[n, m]`, in the rewards' own units."""
        self._impl.modules.set_eval()
        with one_thread(), torch.no_grad():
            parts = [
                self._impl._q_func_forwarder.compute_expected_q(torch.from_numpy(part))
                for part in np.array_split(inputs, max(1, len(inputs) // 65536))
            ]
        return np.asarray(torch.cat(parts).double().numpy() * scale)

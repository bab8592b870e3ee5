"""Fitted Q evaluation by d3rlpy, on the agent as a whole: the probe's steps and the control's.

d3rlpy would ask the policy it evaluates for its action in the next state. Ours depends on more than
that state (a probe samples, a latent comes from the whole segment), so what it does was written
down beforehand for every logged state, and the targets are made here from those notes: d3rlpy has
the networks, the loss, the optimiser and the target's copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.control import Batch
from sept_offline.control.d3rlpy import Evaluation
from sept_offline.errors import TrainingError
from sept_offline.progress import Progress
from sept_offline.seeding import generator, integer
from sept_offline.settings import OpeConfig
from sept_offline.threads import one_thread
from sept_offline.tools.ope.table import Doubles
from sept_offline.tools.ope.transitions import Transitions

REPORT = 500
"""Updates between two reports."""


@dataclass(frozen=True)
class Along:
    """Values at N' logged steps, in the rewards' own units.

    taken `[N']`: of the logged actions; expected `[N']`: of what the agent does there.
    """

    taken: Doubles
    expected: Doubles


class FittedQ:
    """Q(s, z, t, a) of an agent, fitted to transitions.

    final, halfway: its values along the logs, after all updates and after half of them.
    """

    final: Along
    halfway: Along

    def __init__(
        self, inputs: int, space: ActionSpace, horizon: int, config: OpeConfig, seed: int
    ) -> None:
        self.updates = updates = config.updates_for(horizon)
        self.every = config.target_every_for(horizon)
        self.config, self.seed = config, seed
        seed = integer(seed, "weights")
        self._networks = Evaluation(config, inputs, space, updates, seed)

    def fit(self, data: Transitions, shares: Doubles, title: str, progress: Progress) -> FittedQ:
        """Learn from the transitions, those of an episode as often as `shares[E]` say."""
        rows = np.flatnonzero(shares[data.episode] > 0)
        if not len(rows):
            raise TrainingError("There are no transitions to fit Q to.")
        rng = generator(self.seed, "minibatches")
        weights = shares[data.episode[rows]]
        size = self.config.batch_size
        progress.start(title, self.updates, "updates")
        with one_thread():
            for first in range(0, self.updates, self.every):
                count = min(self.every, self.updates - first)
                drawn = rows[_places(weights, count * size, rng)]
                batch, value = self._targets(data, drawn, data.choices.draw(rng))
                batches = list(batch.split(count))
                for update in range(count):
                    part = slice(update * size, (update + 1) * size)
                    loss = self._networks.update(batches[update], value[part])
                    if not math.isfinite(loss):
                        raise TrainingError(
                            f"The loss of the fitted Q is {loss} at update {first + update}."
                        )
                    if (first + update) % REPORT == 0:
                        progress.update(first + update, loss=loss)
                self._networks.copy_to_target()
                if first < self.updates / 2 <= first + count:
                    self.halfway = self._values(data)
            self.final = self._values(data)
        progress.update(self.updates)
        progress.finish()
        return self

    def _targets(
        self, data: Transitions, rows: NDArray[np.int64], choice: NDArray[Any]
    ) -> tuple[Batch, torch.Tensor]:
        """Steps `rows[n]`, and the value `[n, 1]` of what comes after their rewards.

        A step's rewards are all that was earned as long as the log did what the agent does,
        `choice[R]`; where they part comes the target's value of the agent's action: a tree backup.
        """
        ends, earned = data.until_parting(choice)
        ends = ends[rows]
        after = data.row[ends] + 1
        batch = Batch(
            inputs=torch.from_numpy(data.inputs[data.row[rows]]),
            actions=torch.from_numpy(data.actions[rows]),
            rewards=torch.from_numpy(earned[rows]),
            next_inputs=torch.from_numpy(data.inputs[after]),
            terminals=torch.from_numpy(data.last[ends]),
        )
        value = self._networks.after(batch.next_inputs, torch.from_numpy(choice[after])).numpy()
        return batch, torch.from_numpy(data.attainable(value, after))

    def _values(self, data: Transitions) -> Along:
        every = np.arange(len(data.inputs))
        expected = data.choices.expect(
            lambda actions: self._q(data, every, actions), generator(self.seed, "values")
        )
        return Along(self._q(data, data.row, data.actions), expected[data.row])

    def _q(self, data: Transitions, rows: NDArray[np.int64], actions: NDArray[Any]) -> Doubles:
        """`[n]`: values of `actions[n, …]` in the states `rows[n]`, in the rewards' own units."""
        parts = np.array_split(np.arange(len(rows)), max(1, len(rows) // 65536))
        q = [
            self._networks.value(
                torch.from_numpy(data.inputs[rows[part]]), torch.from_numpy(actions[part])
            )
            for part in parts
        ]
        values = torch.cat(q).double().numpy()
        return np.asarray(data.attainable(values, rows)[:, 0] * data.scale)


def _places(weights: Doubles, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`count` places, each as often as its weight says."""
    if np.ptp(weights) == 0:
        return rng.integers(0, len(weights), size=count)
    edges = np.cumsum(weights)
    places: NDArray[np.int64] = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return np.minimum(places, len(weights) - 1)

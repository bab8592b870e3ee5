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
from sept_offline.agent.networks import Standardiser
from sept_offline.control import Batch
from sept_offline.control.d3rlpy import Evaluation
from sept_offline.data.records import Steps
from sept_offline.elementary import Doubles
from sept_offline.errors import TrainingError
from sept_offline.progress import Progress
from sept_offline.seeding import generator, integer
from sept_offline.settings import OpeConfig
from sept_offline.threads import one_thread
from sept_offline.tools.ope.following import Choices, Followed

REPORT = 500
"""Updates between two reports."""


@dataclass(frozen=True)
class Transitions:
    """N' logged steps before the horizon: what Q reads, and what the agent does next.

    inputs `[R, m]` of all logged states, row `[N']` of a step's own (its next one's is row + 1);
    actions `[N', …]`, as `choices` gives them; rewards `[N']`, divided by `scale`; last `[N']`: 1
    where nothing follows, because the episode ended or the horizon is reached; choices:
    what the agent does in the R states; episode `[N']`: its position in the data; left `[R]`: steps
    before the horizon.
    """

    inputs: NDArray[np.float32]
    row: NDArray[np.int64]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    last: NDArray[np.float32]
    choices: Choices
    episode: NDArray[np.int64]
    left: NDArray[np.float32]
    scale: float

    def until_parting(self, choice: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """From each step on, the last step `[N']` up to which the log does what the agent does.

        And the rewards until then, `[N']`. The first step counts for any action.
        """
        count = len(self.row)
        goes_on = np.zeros(count, dtype=bool)
        goes_on[:-1] = (
            (self.last[:-1] == 0)
            & (self.episode[1:] == self.episode[:-1])
            & self.choices.agrees(choice[self.row[1:]], self.actions[1:])
        )
        stops = np.where(goes_on, count, np.arange(count))
        ends = np.minimum.accumulate(stops[::-1])[::-1]
        total = np.cumsum(self.rewards, dtype=np.float64)
        earned = total[ends] - total + self.rewards
        return ends, earned.astype(np.float32)

    def attainable(self, values: NDArray[Any], rows: Any) -> NDArray[Any]:
        """Values `[n, k]` of `rows[n]`, none beyond what the rewards of the steps left allow.

        An episode may also end at any step, so 0 is among them. Without bounds a Q that feeds on
        its own guesses can run away.
        """
        left = self.left[rows, None]
        least, most = min(0.0, float(self.rewards.min())), max(0.0, float(self.rewards.max()))
        bounded: NDArray[Any] = np.clip(values, left * least, left * most)
        return bounded


def transitions(
    steps: Steps, followed: Followed, horizon: int, known: NDArray[np.int64], scale: float
) -> Transitions:
    """Q reads [state, context, clock, whether the probe acts, what the agent does, which instance].

    With the clock, Q at γ = 1 is the undiscounted value of the steps that are left. What the agent
    does jumps from state to state, and values with it, where the state alone would be smoothed
    over. The instance is there if it is one of `known[K]`, those with episodes enough: what the
    agent does not know of it, the estimate may. All others share one input.
    """
    clock = np.zeros(len(steps.observations), dtype=np.float32)
    clock[steps.row] = steps.time
    starts = np.flatnonzero(steps.time == 0)
    ends = np.append(starts[1:], len(steps.time)) - 1
    after = steps.row[ends] + 1
    clock[after] = steps.time[ends] + 1
    columns: list[NDArray[Any]] = [
        Standardiser.fit(steps.observations)(steps.observations),
        followed.contexts,
        (2 * clock / horizon - 1)[:, None],
        followed.probing[:, None],
        followed.choices.features,
    ]
    if len(known):
        which = np.zeros(len(steps.observations), dtype=np.int64)
        which[steps.row] = steps.instance
        which[after] = steps.instance[ends]
        columns.append(which[:, None] == known)
    kept = steps.time < horizon
    last = steps.terminations | (steps.time == horizon - 1)
    return Transitions(
        inputs=np.concatenate([np.float32(column) for column in columns], axis=1),
        row=steps.row[kept],
        actions=followed.choices.read(steps.actions[kept]),
        rewards=(steps.rewards[kept] / scale).astype(np.float32),
        last=last[kept].astype(np.float32),
        choices=followed.choices,
        episode=np.repeat(np.arange(len(starts)), ends - starts + 1)[kept],
        left=np.maximum(horizon - clock, 0),
        scale=scale,
    )


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
        """Steps `rows[n]`, and the value `[n, 1]` of the states after their rewards.

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

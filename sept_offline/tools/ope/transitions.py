"""Logged steps as fitted Q evaluation needs them: what Q reads, and what the agent does next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Steps
from sept_offline.tools.ope.choices import Choices
from sept_offline.tools.ope.following import Followed


@dataclass(frozen=True)
class Transitions:
    """N' logged steps before the horizon.

    inputs `[R, m]` of all logged states, row `[N']` of a step's own (its next one's is row + 1);
    actions `[N', …]`, as `choices` gives them; rewards `[N']`, divided by `scale`; last `[N']`: 1
    where nothing follows, be it that the episode ended or that the horizon is reached; choices:
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
    steps: Steps,
    followed: Followed,
    horizon: int,
    known: NDArray[np.int64],
    scale: float,
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

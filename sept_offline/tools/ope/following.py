"""The agent along the logs: what it would do at each logged step, probe and control as one policy.

A logged episode is shown to the agent observation by observation. At each one it states its action
or its distribution of actions; then it takes the logged action for its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Agent, Control
from sept_offline.agent.contexts import Tracker
from sept_offline.data import Dataset
from sept_offline.data.records import Steps
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import integer
from sept_offline.threads import one_thread
from sept_offline.tools.ope.choices import Choices, choices_of


@dataclass(frozen=True)
class Followed:
    """An agent along N logged steps of E episodes; rows as `Steps.observations` has them.

    choices: what it does in each, given the logged past. contexts `[N+E, k]`: what control reads
    beside the state; zeros while another acts. probing `[N+E]`: whether the probe acts.
    """

    choices: Choices
    contexts: NDArray[np.float32]
    probing: NDArray[np.bool_]


def follow(
    agent: Agent, data: Dataset, steps: Steps, seed: int = 0, progress: Progress | None = None
) -> Followed:
    """Lead `agent` along all episodes of `data`, whose `steps` are given: stacked as it stacks."""
    progress = progress or Silent()
    check_spaces(agent, data, agent.stacking.width)
    starts = np.flatnonzero(steps.time == 0)
    ends = np.append(starts[1:], len(steps.time))
    count = len(steps.observations)
    result = Followed(
        choices_of(agent.spaces.actions, count),
        np.zeros((count, agent.context.dim), dtype=np.float32),
        np.zeros(count, dtype=bool),
    )
    pending = _Pending(agent, steps.observations, result)
    progress.start("follow", len(starts), "episodes")
    with one_thread():
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            hidden = _hidden(agent, data, int(steps.instance[start]))
            _lead(agent, steps, int(start), int(end), hidden, integer(seed, number), pending)
            if number % 100 == 0:
                progress.update(number)
        pending.act()
    progress.update(len(starts))
    progress.finish()
    return result


class _Pending:
    """Rows that await one of the agent's controls, which values all of them at once."""

    def __init__(self, agent: Agent, observations: NDArray[Any], result: Followed) -> None:
        self.agent, self.observations, self.result = agent, observations, result
        self._rows: list[tuple[Control, list[NDArray[np.int64]]]] = [
            (control, []) for control in (agent.control, agent.fallback) if control is not None
        ]

    def leave(self, control: Control, rows: NDArray[np.int64]) -> None:
        """`control` is to act in `rows`, with the contexts noted for them."""
        for shared, waiting in self._rows:
            if control is shared:
                waiting.append(rows)
                return
        # learned in this episode: act at once, so that it need not be kept
        self._act(control, rows)

    def act(self) -> None:
        """Let the shared controls act."""
        for control, waiting in self._rows:
            if waiting:
                self._act(control, np.concatenate(waiting))

    def _act(self, control: Control, rows: NDArray[np.int64]) -> None:
        inputs = control.scaler(self.observations[rows])
        if control is not self.agent.fallback:
            inputs = np.concatenate([inputs, self.result.contexts[rows]], axis=1)
        self.result.choices.control(rows, control.greedy(np.ascontiguousarray(inputs)))


def _lead(
    agent: Agent,
    steps: Steps,
    start: int,
    end: int,
    hidden: Hidden | None,
    seed: int,
    pending: _Pending,
) -> None:
    """One episode, the steps `start` … `end − 1`."""
    result, actions = pending.result, steps.actions[start:end]
    taken = agent.spaces.actions.encode(actions)
    tracker = agent.context.begin(seed, hidden, agent.control)
    first = int(steps.row[start])
    # where the episode was cut the agent would have gone on; where it ended it would not
    shown = end - start + int(not steps.terminations[end - 1])
    wants_reward = "reward" in agent.needs
    for time in range(shown):
        row = first + time
        if tracker.settled:
            rows = np.arange(row, first + shown)
            _note(agent, tracker, rows, pending)
            return
        observation = steps.observations[row]
        reward = float(steps.rewards[start + time - 1]) if wants_reward and time else None
        probe = tracker.step(observation, reward)
        if probe is None:
            _note(agent, tracker, np.array([row]), pending)
        else:
            result.choices.probe(row, probe)
            result.probing[row] = True
        if not tracker.settled and time < end - start:
            tracker.took(taken[time])


def _note(agent: Agent, tracker: Tracker, rows: NDArray[np.int64], pending: _Pending) -> None:
    if tracker.flagged and agent.fallback is not None:
        pending.leave(agent.fallback, rows)
        return
    pending.result.contexts[rows] = tracker.vector
    pending.leave(tracker.control or agent.control, rows)


def _hidden(agent: Agent, data: Dataset, instance: int) -> Hidden | None:
    if "hidden" not in agent.needs:
        return None
    if data.hidden is None:
        raise AgentError(
            f"The agent ({agent.method}) needs the hidden parameters, which {data.path} does not "
            "contain; evaluate another agent on these logs."
        )
    return data.hidden[instance]


def check_spaces(agent: Agent, data: Dataset, columns: int) -> None:
    """Refuse logs of another family than the agent's, whose observations have other `columns`."""
    space, logged = agent.spaces.actions, data.action_space
    if (space.kind, space.width) != (logged.kind, logged.width) or data.observation_dim != columns:
        raise AgentError(
            f"The agent ({agent.method}) takes actions of {space.expected} on {columns} columns, "
            f"but {data.path} has {logged.expected} and {data.observation_dim}; evaluate it on "
            "logs of its own family."
        )

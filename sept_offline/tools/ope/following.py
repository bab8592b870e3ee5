"""The agent's actions at every logged step, with probe and control as one policy.

A logged episode is shown to the agent observation by observation. At each one it states its action
or its distribution of actions; then it takes the logged action for its own.

In a finite set it has a probability for each action: several in its probe, a single 1 in control.
In a box its control is deterministic and has no density, so importance weights do not exist and the
fitted Q alone values it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sept_offline.actions import ActionSpace, Finite, Policy, TruncatedNormal
from sept_offline.agent import Agent, Control
from sept_offline.agent.contexts import Tracker
from sept_offline.agent.probes import scaled_box
from sept_offline.data import Dataset
from sept_offline.data.records import Int64, Steps
from sept_offline.elementary import Doubles
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import integer
from sept_offline.threads import one_thread

NEIGHBOURS, COMPARED = 32, 20_000
"""Logged states around a state whose actions are compared with the agent's, and the states, at
most, among which they are looked for."""
NEAR = 0.25
"""Greatest distance in each component between the agent's action and a logged one that supports it:
an eighth of the range."""
DRAWS = 8
"""Actions of a probe over which values are averaged."""


class FiniteChoices:
    """Probabilities of all actions in R logged states; zeros where an episode terminated."""

    weighted = True
    """Whether importance weights exist."""

    def __init__(self, states: int, width: int) -> None:
        self.probabilities: Doubles = np.zeros((states, width))

    def probe(self, row: int, policy: Policy) -> None:
        """The probe acts in a state, by a policy over encoded actions."""
        self.probabilities[row] = policy.logged(np.zeros((), dtype=np.int64))

    def control(self, rows: Int64, actions: NDArray[Any]) -> None:
        """Control takes `actions[n, *shape]` in the states `rows[n]`."""
        self.probabilities[rows, actions] = 1.0

    @property
    def features(self) -> Doubles:
        """`[R, width]`: what a value network reads of them."""
        return 2 * self.probabilities - 1

    def read(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Logged actions in the form that `draw` gives."""
        return actions

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """`[R, …]`: an action in each state; drawn where there is a choice."""
        choice: Int64 = self.probabilities.argmax(axis=1)
        free = self.probabilities[np.arange(len(choice)), choice] < 1
        edges = np.cumsum(self.probabilities[free], axis=1)
        chance = rng.random((len(edges), 1)) * edges[:, -1:]
        choice[free] = np.minimum((edges <= chance).sum(axis=1), edges.shape[1] - 1)
        return choice

    def expect(self, value: Callable[[NDArray[Any]], Doubles], rng: np.random.Generator) -> Doubles:
        """`[R]`: the mean of `value(actions)` over what the agent does."""
        states, width = self.probabilities.shape
        each = [value(np.full(states, action)) for action in range(width)]
        return np.asarray((self.probabilities * np.stack(each, axis=1)).sum(axis=1))

    def agrees(self, choice: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """`[n]`: whether drawn actions are the ones that were logged."""
        return np.asarray(choice == actions)

    def probability(self, rows: Int64, actions: NDArray[Any]) -> Doubles:
        """`[n]`: of logged actions in the states `rows[n]`; 0 where they have only a density."""
        return np.asarray(self.probabilities[rows, actions])

    def support(
        self, rows: Int64, states: NDArray[Any], actions: NDArray[Any], often: NDArray[Any]
    ) -> Doubles:
        """`[n]`: the share of the agent's actions in the states `rows[n]` that the logs contain.

        states `[n, d]`: standardised; actions `[n, …]`: logged there; often `[n, A]`: whether the
        behaviour takes each action often enough, where it has probabilities.
        """
        return np.asarray((self.probabilities[rows] * often).sum(axis=1))


class BoxChoices:
    """The same for actions of a box: encoded actions of control, and the probe's distributions."""

    weighted = False

    def __init__(self, states: int, space: ActionSpace) -> None:
        self._space, self._unit = space, scaled_box(space.width)
        self.mean: Doubles = np.zeros((states, space.width))
        self.deviation: Doubles = np.zeros((states, space.width))

    def probe(self, row: int, policy: Policy) -> None:
        # a uniform policy is a very wide one
        if isinstance(policy, TruncatedNormal):
            wide = policy.spread == 1
            self.mean[row] = 0 if wide else policy.mean
            self.deviation[row] = 100 if wide else policy.deviation

    def control(self, rows: Int64, actions: NDArray[Any]) -> None:
        self.mean[rows] = self._space.encode(actions)

    @property
    def features(self) -> Doubles:
        return self.mean

    def read(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self._space.encode(actions)

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        chosen = self.mean.astype(np.float32)
        free = np.flatnonzero(self.deviation.any(axis=1))
        policy = TruncatedNormal(self._unit, self.mean[free], self.deviation[free])
        chosen[free] = policy.draw(rng.random((len(free), self._unit.draws)))
        return chosen

    def expect(self, value: Callable[[NDArray[Any]], Doubles], rng: np.random.Generator) -> Doubles:
        # the mean of some draws where the probe acts
        draws = DRAWS if self.deviation.any() else 1
        return np.asarray(np.mean([value(self.draw(rng)) for _ in range(draws)], axis=0))

    def agrees(self, choice: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        # vectors of real numbers are never equal but by chance
        return np.zeros(len(choice), dtype=bool)

    def probability(self, rows: Int64, actions: NDArray[Any]) -> Doubles:
        return np.zeros(len(rows))

    def support(
        self, rows: Int64, states: NDArray[Any], actions: NDArray[Any], often: NDArray[Any]
    ) -> Doubles:
        """Whether the actions logged in the nearest states include a similar one."""
        among = np.unique(np.linspace(0, len(states) - 1, min(COMPARED, len(states))).astype(int))
        tree = cKDTree(states[among])
        nearest = tree.query(states, k=min(NEIGHBOURS, len(among)))[1].reshape(len(states), -1)
        logged = self.read(actions)[among]
        away = np.abs(logged[nearest] - self.mean[rows][:, None]).max(axis=2).min(axis=1)
        # a probe's distribution was learned on logged actions under a floor on their weights
        return np.asarray((away <= NEAR) | self.deviation[rows].any(axis=1), dtype=np.float64)


Choices = FiniteChoices | BoxChoices


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
    space = agent.spaces.actions
    finite = isinstance(space, Finite)
    result = Followed(
        FiniteChoices(count, space.width) if finite else BoxChoices(count, space),
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
            _note(agent, tracker, np.arange(row, first + shown), pending)
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

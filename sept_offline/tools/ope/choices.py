"""What an agent does in every logged state, and how far the logs show the same.

In a finite set it has a probability for each action: several in its probe, a single 1 in control.
In a box its control is deterministic and has no density, so importance weights do not exist and the
fitted Q alone values it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from sept_offline.actions import ActionSpace, Finite, Policy, TruncatedNormal
from sept_offline.agent.probes import scaled_box

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
NEIGHBOURS, COMPARED = 32, 20_000
"""Logged states around a state whose actions are compared with the agent's, and the states, at
most, among which they are looked for."""
NEAR = 0.25
"""Greatest distance in each component between the agent's action and a logged one that supports it:
an eighth of the range."""
DRAWS = 8
"""Actions of a probe over which values are averaged."""


class Choices(ABC):
    """What the agent does in R logged states."""

    weighted: bool
    """Whether importance weights exist."""

    @abstractmethod
    def probe(self, row: int, policy: Policy) -> None:
        """Its probe acts in a state, by a policy over encoded actions."""

    @abstractmethod
    def control(self, rows: Integers, actions: NDArray[Any]) -> None:
        """Its control takes `actions[n, *shape]` in the states `rows[n]`."""

    @property
    @abstractmethod
    def features(self) -> Doubles:
        """`[R, width]`: what a value network reads of them."""

    @abstractmethod
    def read(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Logged actions in the form that `draw` gives."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """`[R, …]`: an action in each state; drawn where there is a choice."""

    @abstractmethod
    def expect(self, value: Callable[[NDArray[Any]], Doubles], rng: np.random.Generator) -> Doubles:
        """`[R]`: the mean of `value(actions)` over what the agent does."""

    @abstractmethod
    def agrees(self, choice: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """`[n]`: whether drawn actions are the ones that were logged."""

    @abstractmethod
    def probability(self, rows: Integers, actions: NDArray[Any]) -> Doubles:
        """`[n]`: of logged actions in the states `rows[n]`; 0 where they have only a density."""

    @abstractmethod
    def support(
        self, rows: Integers, states: NDArray[Any], actions: NDArray[Any], often: NDArray[Any]
    ) -> Doubles:
        """`[n]`: the share of what the agent does in the states `rows[n]` that the logs also do.

        states `[n, d]`: standardised; actions `[n, …]`: logged there; often `[n, A]`: whether the
        behaviour takes each action often enough, where it has probabilities.
        """


class FiniteChoices(Choices):
    """Probabilities of all actions; zeros in a state that ended an episode for good."""

    weighted = True

    def __init__(self, states: int, width: int) -> None:
        self.probabilities: Doubles = np.zeros((states, width))

    def probe(self, row: int, policy: Policy) -> None:
        """See Choices."""
        self.probabilities[row] = policy.logged(np.zeros((), dtype=np.int64))

    def control(self, rows: Integers, actions: NDArray[Any]) -> None:
        """See Choices."""
        self.probabilities[rows, actions] = 1.0

    @property
    def features(self) -> Doubles:
        """See Choices."""
        return 2 * self.probabilities - 1

    def read(self, actions: NDArray[Any]) -> NDArray[Any]:
        """See Choices."""
        return actions

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """See Choices."""
        choice: Integers = self.probabilities.argmax(axis=1)
        free = self.probabilities[np.arange(len(choice)), choice] < 1
        edges = np.cumsum(self.probabilities[free], axis=1)
        chance = rng.random((len(edges), 1)) * edges[:, -1:]
        choice[free] = np.minimum((edges <= chance).sum(axis=1), edges.shape[1] - 1)
        return choice

    def expect(self, value: Callable[[NDArray[Any]], Doubles], rng: np.random.Generator) -> Doubles:
        """See Choices."""
        states, width = self.probabilities.shape
        each = [value(np.full(states, action)) for action in range(width)]
        return np.asarray((self.probabilities * np.stack(each, axis=1)).sum(axis=1))

    def agrees(self, choice: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See Choices."""
        return np.asarray(choice == actions)

    def probability(self, rows: Integers, actions: NDArray[Any]) -> Doubles:
        """See Choices."""
        return np.asarray(self.probabilities[rows, actions])

    def support(
        self, rows: Integers, states: NDArray[Any], actions: NDArray[Any], often: NDArray[Any]
    ) -> Doubles:
        """See Choices: by the behaviour's probabilities."""
        return np.asarray((self.probabilities[rows] * often).sum(axis=1))


class BoxChoices(Choices):
    """Encoded actions of control, and the probe's distributions."""

    weighted = False

    def __init__(self, states: int, space: ActionSpace) -> None:
        self._space, self._unit = space, scaled_box(space.width)
        self.mean: Doubles = np.zeros((states, space.width))
        self.deviation: Doubles = np.zeros((states, space.width))

    def probe(self, row: int, policy: Policy) -> None:
        """See Choices; a uniform policy is a very wide one."""
        if isinstance(policy, TruncatedNormal):
            wide = policy.spread == 1
            self.mean[row] = 0 if wide else policy.mean
            self.deviation[row] = 100 if wide else policy.deviation

    def control(self, rows: Integers, actions: NDArray[Any]) -> None:
        """See Choices."""
        self.mean[rows] = self._space.encode(actions)

    @property
    def features(self) -> Doubles:
        """See Choices."""
        return self.mean

    def read(self, actions: NDArray[Any]) -> NDArray[Any]:
        """See Choices."""
        return self._space.encode(actions)

    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """See Choices."""
        chosen = self.mean.astype(np.float32)
        free = np.flatnonzero(self.deviation.any(axis=1))
        policy = TruncatedNormal(self._unit, self.mean[free], self.deviation[free])
        chosen[free] = policy.draw(rng.random((len(free), self._unit.draws)))
        return chosen

    def expect(self, value: Callable[[NDArray[Any]], Doubles], rng: np.random.Generator) -> Doubles:
        """See Choices; over some draws where the probe acts."""
        draws = DRAWS if self.deviation.any() else 1
        return np.asarray(np.mean([value(self.draw(rng)) for _ in range(draws)], axis=0))

    def agrees(self, choice: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
        """See Choices; vectors of real numbers are never equal but by chance."""
        return np.zeros(len(choice), dtype=bool)

    def probability(self, rows: Integers, actions: NDArray[Any]) -> Doubles:
        """See Choices."""
        return np.zeros(len(rows))

    def support(
        self, rows: Integers, states: NDArray[Any], actions: NDArray[Any], often: NDArray[Any]
    ) -> Doubles:
        """See Choices: whether the actions logged in the nearest states include a similar one."""
        among = np.unique(np.linspace(0, len(states) - 1, min(COMPARED, len(states))).astype(int))
        tree = cKDTree(states[among])
        nearest = tree.query(states, k=min(NEIGHBOURS, len(among)))[1].reshape(len(states), -1)
        logged = self.read(actions)[among]
        away = np.abs(logged[nearest] - self.mean[rows][:, None]).max(axis=2).min(axis=1)
        # a probe's distribution was learned on logged actions under a floor on their weights
        return np.asarray((away <= NEAR) | self.deviation[rows].any(axis=1), dtype=np.float64)


def choices_of(space: ActionSpace, states: int) -> Choices:
    """Room for what an agent does in `states` logged states."""
    if isinstance(space, Finite):
        return FiniteChoices(states, space.width)
    return BoxChoices(states, space)

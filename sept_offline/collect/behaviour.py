"""Behaviours: rules that give the probability of every action, so that they can be logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.networks import Network
from sept_offline.collect.portable import portable
from sept_offline.errors import ConfigError

Floats = NDArray[np.float64]
Policy = Callable[[NDArray[np.float32]], Any]


class Behaviour(Protocol):
    """Probabilities of all actions for a batch of rows."""

    def probabilities(self, observations: NDArray[Any], hidden: Floats, progress: Floats) -> Floats:
        """[n, A] from observations [n, d], hidden rows [n, h] and, for rules that change over
        the collection, each row's place in it [n], from 0 to 1."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every action alike."""

    num_actions: int

    def probabilities(self, observations: NDArray[Any], hidden: Floats, progress: Floats) -> Floats:
        """[n, A], all 1/A."""
        return np.full((len(observations), self.num_actions), 1.0 / self.num_actions)


@dataclass(frozen=True)
class Snapshot:
    """A value network frozen during training, and the exploration it had then.

    `network` maps scaled [observation, hidden] to action values.
    """

    network: Network
    epsilon: float

    @cached_property
    def values(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """The network as a function whose bits do not depend on the processor."""
        return portable(self.network)


@dataclass(frozen=True)
class EpsilonGreedy:
    """Greedy on a snapshot with probability 1 − ε, uniform otherwise.

    With several snapshots a row uses the one at its place in the collection.
    """

    snapshots: tuple[Snapshot, ...]
    features: Callable[[NDArray[Any], Floats], NDArray[np.float32]]

    def probabilities(self, observations: NDArray[Any], hidden: Floats, progress: Floats) -> Floats:
        """[n, A]: ε/A everywhere, and 1 − ε more on the best action."""
        last = len(self.snapshots) - 1
        chosen = np.minimum((progress * len(self.snapshots)).astype(int), last)
        inputs = self.features(observations, hidden)
        rows: Floats | None = None
        for index in np.unique(chosen):
            snapshot = self.snapshots[index]
            mine = np.flatnonzero(chosen == index)
            values = snapshot.values(inputs[mine])
            num_actions = values.shape[1]
            if rows is None:
                rows = np.empty((len(observations), num_actions))
            rows[mine] = snapshot.epsilon / num_actions
            rows[mine, values.argmax(axis=1)] += 1.0 - snapshot.epsilon
        if rows is None:
            raise ConfigError("A behaviour was asked to act for no rows.")
        return rows


@dataclass(frozen=True)
class UserPolicy:
    """A user's own function from observations [n, d] to action probabilities [n, A]."""

    function: Policy
    name: str
    num_actions: int

    def probabilities(self, observations: NDArray[Any], hidden: Floats, progress: Floats) -> Floats:
        """[n, A], checked: a wrong shape or sum is named, not logged."""
        rows = np.asarray(self.function(observations.astype(np.float32)), dtype=np.float64)
        expected = (len(observations), self.num_actions)
        if rows.shape != expected:
            raise ConfigError(
                f"Policy {self.name} returned shape {rows.shape} for observations "
                f"{observations.shape}; expected probabilities of shape {expected}."
            )
        bad = ~np.isfinite(rows).all(axis=1) | (rows < 0).any(axis=1)
        bad |= np.abs(rows.sum(axis=1) - 1.0) > 1e-6
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise ConfigError(
                f"Policy {self.name} returned {rows[row].tolist()} for observation "
                f"{observations[row].tolist()}; expected non-negative probabilities that sum to 1."
            )
        return rows

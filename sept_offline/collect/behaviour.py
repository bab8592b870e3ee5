"""Behaviours: rules that give the probability of every action, so that they can be logged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.networks import Network
from sept_offline.collect.portable_networks import portable
from sept_offline.environments import called
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
    """Uniform over all actions."""

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
            raise ConfigError("A behaviour needs at least one observation.")
        return rows


@dataclass(frozen=True)
class UserPolicy:
    """A user's own function from observations [n, d] to action probabilities [n, A]."""

    function: Policy
    name: str
    num_actions: int

    def probabilities(self, observations: NDArray[Any], hidden: Floats, progress: Floats) -> Floats:
        """[n, A], checked: a wrong shape or sum is named, not logged."""
        seen = observations.astype(np.float32)
        found = called(f"Policy {self.name}", lambda: self.function(seen), ConfigError)
        return _checked(found, self.name, observations, self.num_actions)


@dataclass(frozen=True)
class RememberingPolicy:
    """A user's own class, of which every episode gets a new object.

    The object is called at every step of its episode, the probe's too, with the observation [d],
    the last action and the last reward (both None at the first step), and returns the probabilities
    of all actions [A]. In the probe these are ignored: its actions are uniform.
    """

    kind: Callable[[], Callable[..., Any]]
    name: str
    num_actions: int

    def begin(self) -> Callable[..., Any]:
        """The object of one episode."""
        episode: Callable[..., Any] = called(f"Policy {self.name}", self.kind, ConfigError)
        if not callable(episode):
            raise ConfigError(
                f"Policy {self.name} is a class without __call__; define "
                "__call__(self, observation, last_action, last_reward)."
            )
        return episode

    def act(
        self,
        episodes: Sequence[Callable[..., Any]],
        observations: NDArray[Any],
        actions: NDArray[np.int64] | None,
        rewards: Floats | None,
    ) -> Floats:
        """[n, A] for n episodes, from observations [n, d], last actions and last rewards [n]."""
        rows = np.empty((len(episodes), self.num_actions))
        for row, episode in enumerate(episodes):
            seen = observations[row].astype(np.float32)
            action = None if actions is None else int(actions[row])
            reward = None if rewards is None else float(rewards[row])
            act = functools.partial(episode, seen, action, reward)
            found = called(f"Policy {self.name}", act, ConfigError)
            one = np.asarray(found, dtype=np.float64)
            if one.shape != (self.num_actions,):
                raise ConfigError(
                    f"Policy {self.name} returned shape {one.shape} for one observation; expected "
                    f"the probabilities of {self.num_actions} actions."
                )
            rows[row] = one
        return _checked(rows, self.name, observations, self.num_actions)


def user_policy(policy: Any, name: str, num_actions: int) -> UserPolicy | RememberingPolicy:
    """A function has no memory; a class is instantiated for every episode and may have one."""
    if isinstance(policy, type):
        return RememberingPolicy(policy, name, num_actions)
    return UserPolicy(policy, name, num_actions)


def _checked(found: Any, name: str, observations: NDArray[Any], num_actions: int) -> Floats:
    rows = np.asarray(found, dtype=np.float64)
    expected = (len(observations), num_actions)
    if rows.shape != expected:
        raise ConfigError(
            f"Policy {name} returned shape {rows.shape} for observations "
            f"{observations.shape}; expected probabilities of shape {expected}."
        )
    bad = ~np.isfinite(rows).all(axis=1) | (rows < 0).any(axis=1)
    bad |= np.abs(rows.sum(axis=1) - 1.0) > 1e-6
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ConfigError(
            f"Policy {name} returned {rows[row].tolist()} for observation "
            f"{observations[row].tolist()}; expected non-negative probabilities that sum to 1."
        )
    return rows

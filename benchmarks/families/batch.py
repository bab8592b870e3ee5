"""One process written over arrays, as a single Gymnasium environment and as a true batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from sept_offline.family import Family

Array = NDArray[np.float64]
Hidden = Mapping[str, float]
AHEAD = 64
"""Steps whose noise a row draws at once; part of the stream, so it is the same for every batch."""


@dataclass(frozen=True)
class Process:
    """What happens in a step; every array has a column for each instance, `[numbers, n]`.

    Columns never mix, so that an instance does the same alone and among others.
    """

    hidden: tuple[str, ...]
    """Names of the hidden parameters, in the order of the rows that `advance` gets."""
    observation_names: tuple[str, ...]
    action_names: tuple[str, ...]
    draws: int
    """Uniform numbers that `start` takes."""
    noises: int
    """Standard normal numbers that `advance` takes in each step."""
    start: Callable[[Array], Array]
    """From uniform draws `[draws, n]` to states `[s, n]`; it does not know the instance."""
    advance: Callable[[Array, Any, Array, Array], tuple[Array, Array, NDArray[np.bool_]]]
    """From states, actions, hidden and noise to states, rewards `[n]` and terminations. Actions are
    codes `[n]`, or numbers `[k, n]` if they have bounds."""
    observe: Callable[[Array], Array]
    """From states to observations `[d, n]`."""
    bounds: tuple[Sequence[float], Sequence[float]] | None = None
    """The lowest and highest values of continuous actions, one of each per name."""

    def rows(self, hiddens: Sequence[Hidden]) -> Array:
        """The hidden parameters `[h, n]`; a wrong name is refused."""
        for hidden in hiddens:
            if set(hidden) != set(self.hidden):
                raise ValueError(
                    f"Expected the hidden parameters {', '.join(self.hidden)}, got {dict(hidden)}."
                )
        return np.array([[float(hidden[name]) for hidden in hiddens] for name in self.hidden])

    def spaces(self) -> tuple[gymnasium.spaces.Box, gymnasium.Space[Any]]:
        """Of one instance."""
        shape = (len(self.observation_names),)
        observations = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
        if self.bounds is None:
            return observations, gymnasium.spaces.Discrete(len(self.action_names))
        low, high = (np.array(bound, dtype=np.float32) for bound in self.bounds)
        return observations, gymnasium.spaces.Box(low, high, dtype=np.float32)

    def columns(self, actions: Any) -> NDArray[Any]:
        """The actions of all instances `[n]` or `[n, k]`, as `advance` takes them."""
        if self.bounds is None:
            return np.asarray(actions, dtype=np.int64)
        return np.ascontiguousarray(np.asarray(actions, dtype=np.float64).T)


class Columns:
    """The states of some instances, and their streams of random numbers."""

    def __init__(self, process: Process, hiddens: Sequence[Hidden]) -> None:
        self.process = process
        self.hidden = process.rows(hiddens)
        count = len(hiddens)
        self.state = process.start(np.zeros((process.draws, count)))
        self.noise = np.zeros((AHEAD, process.noises, count))
        self.elapsed = np.zeros(count, dtype=np.int64)

    def begin(self, column: int, stream: np.random.Generator) -> None:
        """Start an episode."""
        draws = stream.random((self.process.draws, 1))
        self.state[:, [column]] = self.process.start(draws)
        self.elapsed[column] = 0

    def advance(
        self, actions: Any, streams: Sequence[np.random.Generator]
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Take one step everywhere, with an action for each; rewards and terminations."""
        place = self.elapsed % AHEAD
        if self.process.noises:
            for column in np.flatnonzero(place == 0).tolist():
                drawn = streams[column].standard_normal((AHEAD, self.process.noises))
                self.noise[:, :, column] = drawn
        noise = np.ascontiguousarray(self.noise[place, :, np.arange(len(place))].T)
        self.state, rewards, terminated = self.process.advance(
            self.state, self.process.columns(actions), self.hidden, noise
        )
        self.elapsed += 1
        return rewards, terminated

    def observe(self) -> NDArray[np.float32]:
        """`[n, d]`"""
        return np.ascontiguousarray(self.process.observe(self.state).T, dtype=np.float32)


class ProcessEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One instance of a process, without a time limit."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, process: Process, hidden: Hidden) -> None:
        self.observation_space, self.action_space = process.spaces()
        self._columns = Columns(process, [hidden])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._columns.begin(0, self.np_random)
        return self._columns.observe()[0], {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one action."""
        taken = np.asarray(action, dtype=self.action_space.dtype)
        if not self.action_space.contains(taken):
            raise ValueError(f"{action!r} is not in {self.action_space}.")
        rewards, terminated = self._columns.advance(taken[np.newaxis], [self.np_random])
        return self._columns.observe()[0], float(rewards[0]), bool(terminated[0]), False, {}


class ProcessVectorEnv(gymnasium.vector.VectorEnv[NDArray[np.float32], NDArray[Any], Any]):
    """A batch of instances; a row that has ended starts anew on its next step."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": "NextStep"}  # noqa: RUF012

    def __init__(self, process: Process, hiddens: Sequence[Hidden], max_episode_steps: int) -> None:
        self.num_envs = len(hiddens)
        self.single_observation_space, self.single_action_space = process.spaces()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._columns = Columns(process, hiddens)
        self._limit = max_episode_steps
        self._streams = [seeding.np_random(None)[0] for _ in hiddens]
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode in every row; `seed` is that of row 0, counted up, or one per row."""
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + row for row in range(self.num_envs)]
        for row in range(self.num_envs):
            given = None if seed is None else seed[row]
            if given is not None:
                self._streams[row] = seeding.np_random(given)[0]
            self._columns.begin(row, self._streams[row])
        self._ended[:] = False
        return self._columns.observe(), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Take one action a row; rows that have ended start anew instead."""
        again = np.flatnonzero(self._ended)
        for row in again.tolist():
            # A fresh start without noise of its own: what the step does to it is undone below.
            self._columns.elapsed[row] = 1
        rewards, terminated = self._columns.advance(actions, self._streams)
        for row in again.tolist():
            self._columns.begin(row, self._streams[row])
        rewards[again], terminated[again] = 0.0, False
        truncated = self._columns.elapsed >= self._limit
        self._ended = terminated | truncated
        return self._columns.observe(), rewards, terminated, truncated, {}


def process_family(name: str, process: Process, **more: Any) -> Family:
    """A family whose environments run `process`, alone or as a batch; `more` as in `Family`."""
    return Family(
        name=name,
        make=partial(ProcessEnv, process),
        make_vec=partial(ProcessVectorEnv, process),
        observation_names=process.observation_names,
        action_names=process.action_names,
        **more,
    )

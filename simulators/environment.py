"""The two thin Gymnasium environments, scalar and true batch, around one record of dynamics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector.utils import batch_space

from simulators.dynamics import Actions, Array, Dynamics, Integers, Mask, Observations

Hidden = Mapping[str, float]
# Start states that a row draws at once; the stream does not depend on the number.
STARTS_AHEAD = 32


def _observation_space(dynamics: Dynamics) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(
        np.array(dynamics.observation_low, dtype=np.float32),
        np.array(dynamics.observation_high, dtype=np.float32),
        dtype=np.float32,
    )


class SimulatorEnv(gymnasium.Env[Observations, Any]):
    """One instance of a family, without a time limit."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, dynamics: Dynamics, hidden: Hidden | None = None) -> None:
        self.observation_space = _observation_space(dynamics)
        self.action_space = dynamics.actions.space
        self._dynamics = dynamics
        self._read = dynamics.actions.one
        self._advance = dynamics.advance
        self._observe = dynamics.observe
        self._hidden = dynamics.hidden_row(hidden)[None]
        # The kernel's arrays, one row each, are kept: allocating them costs more than a step.
        self._state: Array = np.array([dynamics.start_low])
        self._action: Actions = dynamics.actions.empty(1)
        self._elapsed: Integers = np.zeros(1, dtype=np.int64)
        self._reward: Array = np.zeros(1)
        self._terminated: Mask = np.zeros(1, dtype=np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode, from `options["state"]` if it is given."""
        super().reset(seed=seed)
        given = self._dynamics.given_states({k: [v] for k, v in (options or {}).items()}, rows=1)
        if given is not None:
            self._state[:] = given
        elif self._dynamics.start_is_fixed:
            self._state[0] = self._dynamics.start_low
        else:
            self._state[:] = self._dynamics.draw_starts(self.np_random, 1)
        self._elapsed[0] = 0
        return self._observe(self._state)[0], {}

    def step(self, action: Any) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Take one action; truncation is left to the time limit around this environment."""
        self._action[0] = self._read(action, self._dynamics.name)
        state = self._state
        self._advance(
            state,
            self._action,
            self._hidden,
            self._elapsed,
            state,
            self._reward,
            self._terminated,
        )
        self._elapsed[0] += 1
        return self._observe(state)[0], self._reward.item(), self._terminated.item(), False, {}


class SimulatorVectorEnv(gymnasium.vector.VectorEnv[Observations, Any, Any]):
    """A batch of instances of a family, stepped by one call of its kernel.

    A row that ended is reset by the next `step`, which ignores the row's action and gives it
    reward 0. Row i of `reset(seed=s)` starts where the scalar environment does under seed s + i.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": "NextStep"}  # noqa: RUF012

    def __init__(
        self,
        dynamics: Dynamics,
        num_envs: int = 1,
        hidden: Hidden | Sequence[Hidden] | None = None,
        max_episode_steps: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got {num_envs}.")
        if max_episode_steps is None:
            max_episode_steps = dynamics.train_steps
        if max_episode_steps < 1:
            raise ValueError(f"`max_episode_steps` must be at least 1, got {max_episode_steps}.")
        self.num_envs = num_envs
        self.single_observation_space = _observation_space(dynamics)
        self.single_action_space = dynamics.actions.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._dynamics = dynamics
        self._limit = max_episode_steps
        self._hidden = dynamics.hidden_rows(hidden, num_envs)
        width = len(dynamics.start_low)
        self._state: Array = np.tile(np.array(dynamics.start_low), (num_envs, 1))
        self._elapsed: Integers = np.zeros(num_envs, dtype=np.int64)
        self._ended: Mask = np.zeros(num_envs, dtype=np.bool_)
        self._seeds: list[int | None] = [None] * num_envs
        self._streams: list[np.random.Generator | None] = [None] * num_envs
        self._starts: Array = np.empty((num_envs, STARTS_AHEAD, width))
        self._next_start: Integers = np.full(num_envs, STARTS_AHEAD, dtype=np.int64)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every row; `seed` is that of row 0, counted up, or one per row."""
        if seed is not None:
            self._seed(seed)
        given = self._dynamics.given_states(options or {}, rows=self.num_envs)
        if given is None:
            given = self._draw(np.arange(self.num_envs))
        self._state = np.ascontiguousarray(given)
        self._elapsed[:] = 0
        self._ended[:] = False
        return self._dynamics.observe(self._state), {}

    def step(self, actions: Any) -> tuple[Observations, Array, Mask, Mask, dict[str, Any]]:
        """Take one action per row; rows that have ended are reset instead."""
        dynamics = self._dynamics
        any_ended = self._ended.any()
        chosen = dynamics.actions.rows(actions, self._ended, dynamics.name)
        after = np.empty_like(self._state)
        reward: Array = np.empty(self.num_envs)
        terminated: Mask = np.empty(self.num_envs, dtype=np.bool_)
        # Episodes of one length end together, and then there is nothing to integrate.
        if not (any_ended and self._ended.all()):
            dynamics.advance(
                self._state, chosen, self._hidden, self._elapsed, after, reward, terminated
            )
        self._state = after
        self._elapsed += 1
        if any_ended:
            rows = np.flatnonzero(self._ended)
            after[rows] = self._draw(rows)
            reward[rows] = 0.0
            terminated[rows] = False
            self._elapsed[rows] = 0
        truncated: Mask = self._elapsed >= self._limit
        np.logical_or(terminated, truncated, out=self._ended)
        return dynamics.observe(after), reward, terminated, truncated, {}

    def _seed(self, seed: int | Sequence[int | None]) -> None:
        if isinstance(seed, int | np.integer):
            seeds: list[int | None] = [int(seed) + row for row in range(self.num_envs)]
        else:
            seeds = [None if value is None else int(value) for value in seed]
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"Expected {self.num_envs} seeds, one per environment, got {len(seeds)}."
            )
        for row, value in enumerate(seeds):
            if value is None:
                continue
            if value < 0:
                raise ValueError(f"A seed must not be negative, got {value} for row {row}.")
            self._seeds[row] = value
            self._streams[row] = None
            self._next_start[row] = STARTS_AHEAD

    def _draw(self, rows: Integers) -> Array:
        """The next start states [len(rows), s] of `rows`, each from its own stream."""
        dynamics = self._dynamics
        if dynamics.start_is_fixed:
            return np.tile(np.array(dynamics.start_low), (len(rows), 1))
        for row in rows[self._next_start[rows] == STARTS_AHEAD].tolist():
            stream = self._streams[row]
            if stream is None:
                stream, _ = seeding.np_random(self._seeds[row])
                self._streams[row] = stream
            self._starts[row] = dynamics.draw_starts(stream, STARTS_AHEAD)
            self._next_start[row] = 0
        starts: Array = self._starts[rows, self._next_start[rows]]
        self._next_start[rows] += 1
        return starts

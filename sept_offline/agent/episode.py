"""One episode of an agent, and many at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .agent import Agent
from .control import Control
from .networks import Array

if TYPE_CHECKING:
    from ..family import Hidden


class AgentEpisode:
    """The state of one episode; call `act` with each observation."""

    def __init__(self, agent: Agent, seed: int = 0, hidden: Hidden | None = None) -> None:
        _check_given(agent, "hidden", hidden is not None)
        self.agent = agent
        self.steps = 0
        self.ended = False
        self._tracker = agent.context.begin(seed, hidden, agent.control)
        self._wants_reward = "reward" in agent.needs
        self._shape = (agent.spaces.observation_dim,)
        self._stack = agent.stacking if agent.stack > 1 else None
        self._stacked = agent.stacking.empty()
        self._prepare(agent.control, self._tracker.vector)
        self._settled = self._tracker.settled
        self._seen: list[float] | None = None

    def _prepare(self, control: Control, vector: Array) -> None:
        """Allocate control's input, whose state part is overwritten at each step."""
        dim = len(self._stacked)
        self._control = control
        self._inputs = np.zeros(control.network.input_dim, dtype=np.float32)
        self._state = self._inputs[:dim]
        # empty while a probe has not yet found its vector
        self._inputs[dim : dim + len(vector)] = vector
        self._mean = control.scaler.mean
        self._inverse = control.scaler.inverse
        self._row = control.network.row

    @property
    def phase(self) -> str:
        """The part that chooses the next action: "probe" or "control"."""
        return "probe" if self.steps < self.agent.probe_steps else "control"

    @property
    def latent(self) -> Array | None:
        """The posterior mean `[k]`, once the probe is over."""
        return self._tracker.latent

    @property
    def uncertainty(self) -> float | None:
        """The uncertainty about the instance, once the probe is over.

        In units of the spread of the training instances' latents: near 0 if the instance is known,
        near 1 if nothing is known about it.
        """
        return self._tracker.uncertainty

    @property
    def novelty(self) -> float | None:
        """The share of held-out training segments at most as likely as this one; near 0 is new."""
        return self._tracker.novelty

    @property
    def flagged(self) -> bool:
        """Whether the instance looks unlike all training instances."""
        return self._tracker.flagged

    @property
    def out_of_range(self) -> tuple[str, ...]:
        """The columns of the last observation that lie outside the training data's range."""
        spaces = self.agent.spaces
        if self._seen is None:
            return ()
        return tuple(_named(spaces.observation_names, spaces.outside(np.array(self._seen))))

    @property
    def values(self) -> Array | None:
        """Control's action values for the last observation; None if control did not act."""
        return self._row(self._inputs) if self.steps > self.agent.probe_steps else None

    def act(
        self,
        observation: NDArray[Any],
        reward: float | None = None,
        mask: NDArray[Any] | None = None,
    ) -> int:
        """The action in `observation[d]`; `reward`, of the last step, only if declared.

        `mask[num_actions]` is true where an action is allowed; by default all are. Control takes
        the best allowed action; a probe samples from the allowed ones, renormalised.
        """
        if self.ended:
            raise AgentError("This episode has ended; begin another one to act again.")
        if self._wants_reward or reward is not None:
            self._check_reward(reward)
        try:
            value = np.asarray(observation, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise AgentError(
                f"The observation must be a 1-D numeric array, found {observation!r:.80}."
            ) from error
        if value.shape != self._shape:
            raise AgentError(
                f"The agent observes {self._shape[0]} columns, "
                f"found an observation of shape {list(value.shape)}."
            )
        # a row is short: a loop is faster than two calls into NumPy
        row = value.tolist()
        if not all(map(math.isfinite, row)):
            raise AgentError(f"The observation at step {self.steps} is not finite: {row}.")
        allowed = None
        if mask is not None:
            allowed = _check_mask(mask, (self.agent.spaces.num_actions,))
        self._seen = row
        if self._stack is None:
            return self._choose(value, reward, allowed)
        self._stack.see(self._stacked, value, first=self.steps == 0)
        action = self._choose(self._stacked, reward, allowed)
        self._stack.took(self._stacked, action)
        return action

    def _choose(self, value: Array, reward: float | None, allowed: NDArray[np.bool_] | None) -> int:
        """The action for a checked observation, stacked if the agent stacks."""
        if not self._settled:
            self._tracker.allowed = allowed
            own = self._track(value, reward)
            if own is not None:
                return own
        self.steps += 1
        np.subtract(value, self._mean, out=self._state)
        np.multiply(self._state, self._inverse, out=self._state)
        values = self._row(self._inputs)
        if allowed is not None:
            values = np.where(allowed, values, -np.inf)
        action = int(values.argmax())
        if not self._settled:
            self._tracker.took(action)
        return action

    def _track(self, observation: Array, reward: float | None) -> int | None:
        """Show the tracker an observation; its action, or None with the control's input ready."""
        own = self._tracker.step(observation, reward)
        if own is not None:
            self.steps += 1
            return own
        fallback = self.agent.fallback
        if self._tracker.flagged and fallback is not None:
            self._prepare(fallback, self._tracker.vector[:0])
        else:
            self._prepare(self._tracker.control or self.agent.control, self._tracker.vector)
        self._settled = self._tracker.settled
        return None

    def _check_reward(self, reward: float | None) -> None:
        if self._wants_reward and self.steps == 0:
            _check_unpaid(reward is not None)
            return
        _check_given(self.agent, "reward", reward is not None)
        if reward is not None and not math.isfinite(reward):
            raise AgentError(f"The reward before step {self.steps} is not finite: {reward}.")

    def end(self) -> None:
        """End the episode: any further `act` raises."""
        self.ended = True


class BatchEpisode:
    """Episodes that act together; each chooses the same actions as it would alone."""

    def __init__(
        self, agent: Agent, seeds: Sequence[int], hidden: Sequence[Hidden] | None = None
    ) -> None:
        _check_given(agent, "hidden", hidden is not None)
        if hidden is not None and len(hidden) != len(seeds):
            raise AgentError(
                f"{len(seeds)} episodes need as many sets of hidden parameters, "
                f"found {len(hidden)}."
            )
        self.agent = agent
        self.episodes = [
            AgentEpisode(agent, seed, None if hidden is None else hidden[index])
            for index, seed in enumerate(seeds)
        ]
        count = len(self.episodes)
        self._inputs = np.zeros((count, agent.control.network.input_dim), dtype=np.float32)
        self._stacked = agent.stacking.empty(count)
        for episode, row in zip(self.episodes, self._stacked, strict=True):
            # shared memory: an episode may act alone at first and with the others later
            episode._stacked = row
        self._settled = np.zeros(count, dtype=bool)
        self._falling_back = np.zeros(count, dtype=bool)
        self._ended = np.zeros(count, dtype=bool)
        self._seen: Array | None = None
        for index, episode in enumerate(self.episodes):
            self._settle(index, episode)

    def __len__(self) -> int:
        return len(self.episodes)

    def _settle(self, index: int, episode: AgentEpisode) -> None:
        """From now on let the episode act with the others, if it still has the shared control."""
        control, shared = episode._control, (self.agent.control, self.agent.fallback)
        if not episode._settled or not any(control is one for one in shared):
            return
        self._settled[index] = True
        self._falling_back[index] = control is not self.agent.control
        if not self._falling_back[index]:
            self._inputs[index] = episode._inputs

    def act(
        self,
        observations: NDArray[Any],
        active: NDArray[Any] | None = None,
        rewards: NDArray[Any] | None = None,
        masks: NDArray[Any] | None = None,
    ) -> NDArray[np.int64]:
        """The actions `[n]` in `observations[n, d]`; −1 where not `active[n]`.

        An episode that is not active once has ended. `rewards[n]`, of the last step, only if
        declared. `masks[n, num_actions]` are true where an action is allowed; by default all are.
        """
        try:
            values = np.asarray(observations, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise AgentError("The observations must be a 2-D numeric array.") from error
        shape = (len(self), self.agent.spaces.observation_dim)
        going = np.ones(len(self), dtype=bool) if active is None else np.asarray(active, dtype=bool)
        if values.shape != shape or going.shape != shape[:1]:
            raise AgentError(
                f"The batch needs observations {list(shape)} and {shape[0]} flags in active, "
                f"found {list(values.shape)} and {list(going.shape)}."
            )
        allowed = None
        if masks is not None:
            allowed = _check_mask(masks, (len(self), self.agent.spaces.num_actions), going)
        self._check(values, going, rewards)
        self._seen = np.where(going[:, None], values, np.float32(np.nan))
        actions = np.full(len(self), -1, dtype=np.int64)
        settled = going & self._settled
        for index in np.flatnonzero(going & ~self._settled):
            episode = self.episodes[index]
            reward = None if rewards is None else float(rewards[index])
            own = None if allowed is None else allowed[index]
            actions[index] = episode.act(values[index], reward, own)
            self._settle(int(index), episode)
        together = np.flatnonzero(settled)
        if self.agent.stack > 1 and len(together):
            values = self._see(values, together)
        control = np.flatnonzero(settled & ~self._falling_back)
        if len(control):
            dim = values.shape[1]
            rows = self._inputs if len(control) == len(self) else self._inputs[control]
            rows[:, :dim] = self.agent.control.scaler(values[control])
            among = None if allowed is None else allowed[control]
            actions[control] = self.agent.control.greedy(rows, among)
        fallback = self.agent.fallback
        behind = np.flatnonzero(settled & self._falling_back)
        if len(behind) and fallback is not None:
            among = None if allowed is None else allowed[behind]
            actions[behind] = fallback.greedy(fallback.scaler(values[behind]), among)
        for index in together:
            self.episodes[index].steps += 1
        if self.agent.stack > 1 and len(together):
            moved = self._stacked[together]
            self.agent.stacking.took(moved, actions[together])
            self._stacked[together] = moved
        return actions

    def _see(self, values: Array, together: NDArray[np.int64]) -> Array:
        """Stacked rows `[n, width]`, with `values[n, d]` seen by those that act `together`."""
        first = np.array([self.episodes[index].steps == 0 for index in together])
        for begins in (True, False):
            own = together[first == begins]
            rows = self._stacked[own]
            self.agent.stacking.see(rows, values[own], first=begins)
            self._stacked[own] = rows
        return self._stacked

    @property
    def out_of_range(self) -> list[tuple[str, ...]]:
        """For each episode the columns it last saw outside the training data's range.

        None for one that has ended.
        """
        spaces = self.agent.spaces
        if self._seen is None:
            return [()] * len(self)
        outside = spaces.outside(self._seen)
        return [tuple(_named(spaces.observation_names, row)) for row in outside]

    def _check(self, values: Array, going: NDArray[np.bool_], rewards: NDArray[Any] | None) -> None:
        if (going & self._ended).any():
            row = int(np.flatnonzero(going & self._ended)[0])
            raise AgentError(f"Episode {row} of the batch has ended; begin another to act again.")
        for index in np.flatnonzero(~going & ~self._ended):
            self.episodes[index].end()
        self._ended = ~going
        broken = np.flatnonzero(going & ~np.isfinite(values).all(axis=1))
        if len(broken):
            row = int(broken[0])
            raise AgentError(
                f"The observation of episode {row} of the batch at step "
                f"{self.episodes[row].steps} is not finite: {values[row].tolist()}."
            )
        if all(episode.steps == 0 for episode in self.episodes) and "reward" in self.agent.needs:
            _check_unpaid(rewards is not None)
        else:
            _check_given(self.agent, "reward", rewards is not None)
        if rewards is not None and np.shape(rewards) != (len(self),):
            raise AgentError(
                f"The batch of {len(self)} episodes needs as many rewards, "
                f"found the shape {list(np.shape(rewards))}."
            )


def _named(names: Sequence[str], chosen: NDArray[np.bool_]) -> list[str]:
    return [name for name, one in zip(names, chosen.tolist(), strict=True) if one]


def _check_mask(
    mask: NDArray[Any], shape: tuple[int, ...], going: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """`mask` as booleans of `shape`; every row, or every `going` one, must allow something."""
    try:
        given = np.asarray(mask)
    except ValueError as error:
        raise AgentError(
            f"A mask must be an array of true or false, found {mask!r:.80}."
        ) from error
    flags = given.dtype == bool or (given.dtype.kind in "iu" and np.isin(given, (0, 1)).all())
    if given.shape != shape or not flags:
        raise AgentError(
            f"A mask must be an array of true or false of shape {list(shape)}, found {given.dtype} "
            f"of shape {list(given.shape)}."
        )
    allowed: NDArray[np.bool_] = given.astype(bool)
    empty = ~allowed.any(axis=-1)
    if (empty if going is None else empty & going).any():
        raise AgentError("A mask forbids every action; at least one must be allowed.")
    return allowed


def _check_unpaid(given: bool) -> None:
    """Raise if a reward comes with the first observation."""
    if given:
        raise AgentError(
            "A reward was given with the first observation, before any action; leave it out."
        )


def _check_given(agent: Agent, what: str, given: bool) -> None:
    """Raise if `what` is given and not declared, or declared and not given."""
    declared = what in agent.needs
    if given and not declared:
        raise AgentError(
            f"The agent ({agent.method}) did not declare that it needs {what!r}, but was given it; "
            "leave it out."
        )
    if declared and not given:
        raise AgentError(f"The agent ({agent.method}) needs {what!r}, but was not given it.")

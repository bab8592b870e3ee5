"""One episode of an agent, and many at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..actions import Policy
from ..errors import AgentError
from ..seeding import generator, root_seed
from .control import Control
from .networks import Array

if TYPE_CHECKING:
    from ..family import Hidden
    from .agent import Agent


class AgentEpisode:
    """The state of one episode; call `act` with each observation."""

    def __init__(self, agent: Agent, seed: int = 0, hidden: Hidden | None = None) -> None:
        _check_given(agent, "hidden", hidden is not None)
        seed = root_seed(seed)
        self.agent = agent
        self.steps = 0
        self.ended = False
        self._tracker = agent.context.begin(seed, hidden, agent.control)
        self._rng = generator(seed, "agent", "probe") if agent.probe_steps else None
        self._wants_reward = "reward" in agent.needs
        self._shape = (agent.spaces.observation_dim,)
        self._space = agent.spaces.actions
        self._stack = agent.stacking if agent.stack > 1 else None
        self._stacked = agent.stacking.empty()
        self._change_control(agent.control)
        self._prepare(agent.control, self._tracker.vector)
        self._settled = self._tracker.settled
        self._seen: list[float] | None = None

    def _change_control(self, control: Control) -> None:
        """Act by `control` from now on."""
        self._control = control
        self._mean, self._inverse = control.scaler.mean, control.scaler.inverse
        self._place(np.zeros(control.network.input_dim, dtype=np.float32))

    def _place(self, inputs: Array) -> None:
        """Keep control's input in `inputs`, whose state part is overwritten at each step."""
        self._inputs, self._state = inputs, inputs[: len(self._stacked)]

    def _prepare(self, control: Control, vector: Array) -> None:
        """Write the context's `vector` into the input of `control`."""
        if control is not self._control:
            self._change_control(control)
        dim = len(self._stacked)
        # empty while a probe has not yet found its vector
        self._inputs[dim : dim + len(vector)] = vector

    @property
    def phase(self) -> str:
        """The part that chooses the next action: "probe" or "control"."""
        return "probe" if self.steps < self.agent.probe_steps else "control"

    @property
    def latent(self) -> Array | None:
        """The current posterior mean `[k]`; None while nothing has been inferred."""
        return self._tracker.latent

    @property
    def uncertainty(self) -> float | None:
        """The uncertainty about the instance; None while nothing has been inferred.

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
        return _named(spaces.observation_names, spaces.outside(np.array(self._seen)))

    @property
    def values(self) -> Array | None:
        """Control's action values for the last observation; None if control did not act.

        None for a box, too: an actor has no values.
        """
        return self._control.values(self._inputs) if self.steps > self.agent.probe_steps else None

    def act(
        self,
        observation: NDArray[Any],
        reward: float | None = None,
        mask: NDArray[Any] | None = None,
        bounds: Any = None,
    ) -> Any:
        """The action in `observation[d]`: a number, or float32 `[k]` in a box.

        `reward`, of the last step, only if declared. `mask[num_actions]` is true where an action is
        allowed; by default all are. Control takes the best allowed action; a probe samples from the
        allowed ones, renormalised. For a box `bounds`, a lower `[k]` and an upper `[k]` one, are
        given instead: control's action is clipped to them, a probe's distribution cut off at them.
        """
        if self.ended:
            raise AgentError("This episode has ended; begin another one to act again.")
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
        if mask is not None or bounds is not None:
            allowed = self._space.allowed(mask, bounds)
        return self._act(value, row, reward, allowed)

    def _act(
        self, value: Array, row: list[float], reward: float | None, allowed: NDArray[Any] | None
    ) -> Any:
        """The action for a checked observation, as an array and as a list."""
        if self._wants_reward or reward is not None:
            _check_reward(self.agent, reward is not None, first=self.steps == 0)
            if reward is not None and not math.isfinite(reward):
                raise AgentError(f"The reward before step {self.steps} is not finite: {reward}.")
        self._seen = row
        if self._stack is None:
            return self._choose(value, reward, allowed)
        self._stack.see(self._stacked, value, first=self.steps == 0)
        action = self._choose(self._stacked, reward, allowed)
        self._stack.took(self._stacked, self._space.encode(action))
        return action

    def _choose(self, value: Array, reward: float | None, allowed: NDArray[Any] | None) -> Any:
        """The action for an observation that is stacked if the agent stacks."""
        probe = None if self._settled else self._track(value, reward)
        self.steps += 1
        if probe is not None:
            action = self._draw(probe, allowed)
        else:
            np.subtract(value, self._mean, out=self._state)
            np.multiply(self._state, self._inverse, out=self._state)
            action = self._control.act(self._inputs, allowed)
        if not self._settled:
            self._tracker.took(self._space.encode(action))
        return action

    def _draw(self, probe: Policy, allowed: NDArray[Any] | None) -> Any:
        """An action of the probe's."""
        policy = self._space.decoded(probe)
        if allowed is not None:
            policy = policy.within(allowed)
        if self._rng is None:
            raise AgentError("The agent declares no probe steps, but its context probes.")
        action = policy.draw(self._rng.random(self._space.draws))
        return action if action.ndim else int(action)

    def _track(self, observation: Array, reward: float | None) -> Policy | None:
        """Show the tracker an observation; its policy, or None with the control's input ready."""
        probe = self._tracker.step(observation, reward)
        if probe is not None:
            return probe
        fallback = self.agent.fallback
        if self._tracker.flagged and fallback is not None:
            self._prepare(fallback, self._tracker.vector[:0])
        else:
            self._prepare(self._tracker.control or self.agent.control, self._tracker.vector)
        self._settled = self._tracker.settled
        return None

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
                f"{len(seeds)} episodes need one set of hidden parameters each, "
                f"found {len(hidden)} sets."
            )
        self.agent = agent
        self.episodes = [
            AgentEpisode(agent, seed, None if hidden is None else hidden[index])
            for index, seed in enumerate(seeds)
        ]
        count = len(self.episodes)
        self._steps = 0
        self._stacked = agent.stacking.empty(count)
        self._inputs = np.zeros((count, agent.control.network.input_dim), dtype=np.float32)
        for episode, row, inputs in zip(self.episodes, self._stacked, self._inputs, strict=True):
            # shared memory: an episode may act alone at first and with the others later
            episode._stacked = row
            inputs[:] = episode._inputs
            episode._place(inputs)
        dim = self._stacked.shape[1]
        self._states, self._contexts = self._inputs[:, :dim], self._inputs[:, dim:]
        self._settled = np.zeros(count, dtype=bool)
        self._steady = np.zeros(count, dtype=bool)
        self._falling_back = np.zeros(count, dtype=bool)
        self._ended = np.zeros(count, dtype=bool)
        self._seen: Array | None = None
        for index, episode in enumerate(self.episodes):
            self._settle(index, episode)

    def __len__(self) -> int:
        return len(self.episodes)

    def _settle(self, index: int, episode: AgentEpisode) -> None:
        """Let the episode act in the batch from now on, if it still has the shared control."""
        tracker = episode._tracker
        if not episode._settled:
            self._steady[index] = tracker.steady and episode._control is self.agent.control
            return
        self._steady[index] = False
        if episode._control is self.agent.control:
            self._contexts[index] = tracker.vector
        elif episode._control is self.agent.fallback:
            self._falling_back[index] = True
        else:
            return
        self._settled[index] = True

    def act(
        self,
        observations: NDArray[Any],
        active: NDArray[Any] | None = None,
        rewards: NDArray[Any] | None = None,
        masks: NDArray[Any] | None = None,
        bounds: Any = None,
    ) -> NDArray[Any]:
        """The actions `[n]` in `observations[n, d]`; −1 where not `active[n]`.

        In a box float32 `[n, k]`, and NaN where not active. An episode that is not active once has
        ended. `rewards[n]`, of the last step, only if declared. `masks[n, num_actions]` are true
        where an action is allowed; by default all are. For a box `bounds`, two arrays `[k]` or
        `[n, k]`, are given instead.
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
        space = self.agent.spaces.actions
        allowed = space.allowed(masks, bounds, shape[:1], going)
        self._check(values, going, rewards)
        self._seen = np.where(going[:, None], values, np.float32(np.nan))
        actions = space.empty(len(self))
        actions[...] = space.missing
        prepared = self._settled | self._steady
        together = np.flatnonzero(going & prepared)
        for index in np.flatnonzero(going & ~prepared):
            episode = self.episodes[index]
            reward = None if rewards is None else float(rewards[index])
            among = None if allowed is None else allowed[index]
            actions[index] = episode._act(values[index], values[index].tolist(), reward, among)
            self._settle(int(index), episode)
        if len(together):
            self._act_together(together, values, allowed, actions)
        self._steps += 1
        return actions

    def _act_together(
        self,
        together: NDArray[np.int64],
        values: Array,
        allowed: NDArray[Any] | None,
        actions: NDArray[Any],
    ) -> None:
        """Write the actions of the episodes `together`, whose context is settled or steady."""
        agent, stacked = self.agent, self._stacked[together]
        agent.stacking.see(stacked, values[together], first=self._steps == 0)
        steady = together[self._steady[together]]
        if len(steady):
            self._track(steady, stacked[self._steady[together]])
        falling_back = self._falling_back[together]
        for control, mine in ((agent.control, ~falling_back), (agent.fallback, falling_back)):
            if control is None or not mine.any():
                continue
            rows = together[mine]
            states = control.scaler(stacked[mine])
            if control is agent.control:
                self._states[rows] = states
                inputs = self._inputs[rows]
            else:
                inputs = states
                for index, row in zip(rows, inputs, strict=True):
                    self.episodes[index]._inputs[:] = row
            actions[rows] = control.greedy(inputs, None if allowed is None else allowed[rows])
        if agent.stack > 1:
            agent.stacking.took(stacked, agent.spaces.actions.encode(actions[together]))
            self._stacked[together] = stacked
        for index in together.tolist():
            self.episodes[index].steps += 1
        for index, taken in zip(steady, agent.spaces.actions.encode(actions[steady]), strict=True):
            if self._steady[index]:
                self.episodes[index]._tracker.took(taken)

    def _track(self, steady: NDArray[np.int64], observations: Array) -> None:
        """Show the trackers of the episodes `steady[n]` their `observations[n, m]`."""
        trackers = [self.episodes[index]._tracker for index in steady]
        trackers[0].step_together(trackers, observations)
        self._contexts[steady] = [tracker.vector for tracker in trackers]
        for index, tracker in zip(steady, trackers, strict=True):
            if tracker.settled:
                self.episodes[index]._settled = True
                self._settle(int(index), self.episodes[index])

    @property
    def out_of_range(self) -> list[tuple[str, ...]]:
        """For each episode the columns it last saw outside the training data's range.

        None for one that has ended.
        """
        spaces = self.agent.spaces
        if self._seen is None:
            return [()] * len(self)
        outside = spaces.outside(self._seen)
        return [_named(spaces.observation_names, row) for row in outside]

    def _check(self, values: Array, going: NDArray[np.bool_], rewards: NDArray[Any] | None) -> None:
        if (going & self._ended).any():
            row = int(np.flatnonzero(going & self._ended)[0])
            raise AgentError(f"Episode {row} of the batch has ended; begin another to act again.")
        broken = np.flatnonzero(going & ~np.isfinite(values).all(axis=1))
        if len(broken):
            row = int(broken[0])
            raise AgentError(
                f"The observation of episode {row} of the batch at step "
                f"{self.episodes[row].steps} is not finite: {values[row].tolist()}."
            )
        _check_reward(self.agent, rewards is not None, first=self._steps == 0)
        if rewards is not None:
            self._check_rewards(rewards, going)
        # Last: a step that is refused leaves every episode as it was.
        for index in np.flatnonzero(~going & ~self._ended):
            self.episodes[index].end()
        self._ended = ~going

    def _check_rewards(self, rewards: Any, going: NDArray[np.bool_]) -> None:
        if np.shape(rewards) != (len(self),):
            raise AgentError(
                f"The batch of {len(self)} episodes needs one reward per episode, "
                f"found shape {list(np.shape(rewards))}."
            )
        try:
            finite = np.isfinite(np.asarray(rewards, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise AgentError("The rewards of a batch must be numbers.") from error
        unpaid = np.flatnonzero(going & ~finite)
        if len(unpaid):
            raise AgentError(f"The reward of episode {unpaid[0]} of the batch is not finite.")


def _named(names: Sequence[str], chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(itertools.compress(names, chosen.tolist()))


def _check_reward(agent: Agent, given: bool, first: bool) -> None:
    """Raise unless a reward comes with each observation but the `first`, or with none."""
    if not first or "reward" not in agent.needs:
        _check_given(agent, "reward", given)
    elif given:
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

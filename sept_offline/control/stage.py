"""The control stage: minibatches in, a network that acts out."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sept_offline.agent.networks import MLP, Constrained, Ensemble
from sept_offline.control.learner import Learner, early_updates
from sept_offline.control.replay import Batch, Replay
from sept_offline.errors import TrainingError
from sept_offline.seeding import generator, generator_state, restore_generator
from sept_offline.settings import ControlConfig
from sept_offline.stage import StageState
from sept_offline.threads import one_thread

CHUNK = 64
"""Minibatches gathered at once; a snapshot falls anywhere, so it keeps the chunk's own start."""
WATCHED = 512
"""Transitions on which mean max-Q is watched."""


class ControlStage:
    """Fits the control network to a replay; the result is the average of its weights."""

    name = "control"

    def __init__(
        self,
        replay: Replay,
        config: ControlConfig,
        seed: int,
        width: int,
        learner: Callable[[ControlConfig, int, int, int], Learner] = Learner,
    ) -> None:
        self.config, self.replay = config, replay
        self.learner = learner(config, replay.input_dim, width, seed)
        if config.bounded:
            self.learner.limit_targets(*self._limits())
        self.total, self.done = config.updates, 0
        self._rng = generator(seed, "control", "minibatches")
        self._chunk_start = generator_state(self._rng)
        self._chunk: list[Batch] = []
        # a separate generator: monitoring must not change the result
        self._watched = replay.sample(WATCHED, generator(seed, "control", "watched")).inputs

    def advance(self, updates: int) -> dict[str, float]:
        """Up to `updates` more updates; loss, mean max-Q and the bound it should stay below."""
        end = min(self.done + updates, self.total)
        losses = 0.0
        count = end - self.done
        with one_thread():
            while self.done < end:
                position = self.done % CHUNK
                if position == 0:
                    self._chunk_start = generator_state(self._rng)
                    self._chunk = []
                if not self._chunk:
                    self._fill()
                loss = self.learner.update(self._chunk[position])
                self.done += 1
                if not math.isfinite(loss):
                    raise TrainingError(self._explain(loss))
                losses += loss
        return {
            "loss": losses / count if count else math.nan,
            "max_q": self.max_q(),
            "max_q_bound": self.bound,
        }

    def max_q(self) -> float:
        """Mean value of the chosen action at some logged states."""
        with one_thread():
            return float(self.learner.value(self._watched).mean())

    def _fill(self) -> None:
        size = self.config.batch_size * self.config.members
        first = self.done - self.done % CHUNK
        self._chunk = self.replay.minibatches(first, CHUNK, size, self._rng)

    @property
    def bound(self) -> float:
        """The most that the logged rewards allow an episode of the longest logged length to return.

        The largest reward of a step that goes on, at every step, and once the largest of one that
        ends the episode, at the best step; discounted, in the form control learns from.
        """
        replay, gamma = self.replay, self.config.gamma
        steps = np.arange(replay.longest + 1)
        largest = 0.0 if replay.going is None else replay.going[1]
        going = largest * (1 - gamma**steps) / (1 - gamma)
        if replay.ending is None:
            return float(going[-1])
        ending = going[:-1] + gamma ** steps[:-1] * replay.ending[1]
        return float(max(going[-1], ending.max()))

    def _limits(self) -> tuple[float, float]:
        """The least and the most that any value can be, however long an episode may last."""
        replay, gamma = self.replay, self.config.gamma
        ends = [0.0] if replay.ending is None else list(replay.ending)
        lasting = [0.0] if replay.going is None else [r / (1 - gamma) for r in replay.going]
        if replay.ending is None:
            return min(lasting), max(lasting)
        return min(lasting + ends), max(lasting + ends)

    def _explain(self, loss: float) -> str:
        if self.replay.largest_size > 1e4:
            cause = (
                f"rewards as large as {self.replay.largest_size:.3g}; "
                "try control.reward_form=instance or log"
            )
        else:
            cause = "values that grow without bound; try a lower control.learning_rate"
        return (
            f"The loss is {loss} at update {self.done} of {self.total} of the {self.name} stage, "
            f"probably because of {cause}."
        )

    def state(self) -> StageState:
        """A checkpoint: the learner, and its position in the current chunk of minibatches."""
        state = self.learner.state()
        inside = bool(self.done % CHUNK)
        state.values |= {
            "done": self.done,
            "minibatches": self._chunk_start if inside else generator_state(self._rng),
        }
        return state

    def restore(self, state: StageState) -> None:
        """Continue from a snapshot."""
        self.learner.restore(state)
        self.done = int(state.values["done"])
        self._rng = restore_generator(state.values["minibatches"])
        self._chunk_start = generator_state(self._rng)
        self._chunk = []

    def result(self) -> MLP | Ensemble | Constrained:
        """The network to deploy, on [state, context] as the replay holds them."""
        return self.learner.averaged()

    def early(self) -> MLP | Ensemble | Constrained | None:
        """The network after the first of the updates; None where the stage was ended before."""
        return None if self.done < early_updates(self.config) else self.learner.early()

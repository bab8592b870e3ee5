"""No context, but a control that takes one gradient step after the first steps: MAML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..control import Control
from ..networks import MLP, Array
from ..records import Part, Value, count, positive
from ..rewards import RewardForm
from .base import EMPTY, Context, Tracker

if TYPE_CHECKING:
    from ...family import Hidden


class AdaptedContext(Context):
    """The state alone; after `steps` steps, rewards included, control is adapted to them: `maml`.

    `rate` is the step size of the gradient step, `form` the transformation of the rewards.
    """

    kind = "adapted"
    stored = (
        Value("steps", count),
        Value("rate", positive),
        Part("form", RewardForm.from_arrays, key="rewards"),
    )
    dim = 0
    needs = frozenset({"reward"})
    learns = True

    def __init__(self, steps: int, rate: float, form: RewardForm) -> None:
        if steps < 1 or not (rate > 0 and math.isfinite(rate)):
            raise AgentError(
                f"A gradient step needs at least 1 step and a rate above 0, found {steps} and "
                f"{rate}."
            )
        self.steps, self.rate, self.form = steps, rate, form

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that records control's steps, then adapts control."""
        if not isinstance(control.network, MLP):
            raise AgentError("Only a single value network can take a gradient step.")
        return _Adapting(self, control, control.network)


class _Adapting(Tracker):
    """Keeps the first steps; adapts control once their last state and reward are known."""

    def __init__(self, context: AdaptedContext, control: Control, network: MLP) -> None:
        super().__init__(EMPTY, settled=False)
        self._context, self._before, self._network = context, control, network
        self._states = np.empty((context.steps + 1, control.scaler.dim), dtype=np.float32)
        self._actions: list[int] = []
        self._rewards: list[float] = []

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control always acts: as fitted at first, adapted from step T on."""
        self._states[len(self._actions)] = self._before.scaler(observation)
        if reward is not None:
            self._rewards.append(reward)
        if len(self._actions) == self._context.steps:
            self._adapt()
        return None

    def took(self, taken: Array) -> None:
        """One more step to learn from."""
        self._actions.append(int(taken.argmax()))

    def _adapt(self) -> None:
        context, going = self._context, np.zeros(len(self._rewards))
        stepped = td_step(
            self._network,
            self._states[:-1],
            np.array(self._actions, dtype=np.int64),
            context.form(np.array(self._rewards), going).astype(np.float32),
            self._states[1:],
            context.form.gamma,
            context.rate,
        )
        self.control = Control(self._before.scaler, stepped)
        self.settled = True


def td_step(
    network: MLP,
    inputs: Array,
    actions: NDArray[np.int64],
    rewards: Array,
    next_inputs: Array,
    gamma: float,
    rate: float,
) -> MLP:
    """θ − rate · ∇ mean_t huber(Q_θ(s_t, a_t) − y_t), y_t = r_t + γ · max_a Q_θ(s_t+1, a) held.

    `inputs[T, d]`, `actions[T]`, `rewards[T]`, `next_inputs[T, d]`: T steps that did not end the
    episode. The network itself is not changed.
    """
    if network.activation != "relu" or any(norm is not None for norm in network.norms):
        raise AgentError("Gradient steps support only ReLU networks without LayerNorm.")
    seen = [np.asarray(inputs, dtype=np.float32)]
    for weight, bias in network.layers[:-1]:
        seen.append(np.maximum(seen[-1] @ weight.T + bias, np.float32(0)))
    last, offset = network.layers[-1]
    rows = np.arange(len(actions))
    target = np.float32(gamma) * network(next_inputs).max(axis=1) + rewards
    error = (seen[-1] @ last.T + offset)[rows, actions] - target
    # Huber's slope is the error itself, at most 1 either way
    slope = np.zeros((len(rows), network.output_dim), dtype=np.float32)
    slope[rows, actions] = np.clip(error, -1, 1) / np.float32(len(rows))
    stepped: list[tuple[Array, Array]] = []
    ones = np.ones((len(rows), 1), dtype=np.float32)
    for (weight, bias), below in zip(reversed(network.layers), reversed(seen), strict=True):
        down: Array = np.float32(rate) * slope
        # slope times input, summed over rows
        stepped.append((weight - down.T @ below, bias - (down.T @ ones)[:, 0]))
        slope = (slope @ weight) * (below > 0)
    return MLP(stepped[::-1])

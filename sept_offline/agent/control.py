"""Control: a network from state and context to the action, by values of all actions or directly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..actions import ActionSpace, Box, Finite
from ..errors import AgentError
from .networks import MLP, Array, Network, Standardiser

NEARLY_TIED = np.float32(3e-5)
"""Values this close, relative to their size, may be ordered by rounding alone."""


@dataclass(frozen=True)
class Control:
    """Values of a finite set of actions on [standardised state, context].

    `network` takes d + k inputs.
    """

    scaler: Standardiser
    network: Network

    def values(self, inputs: Array) -> Array | None:
        """`[..., num_actions]` of prepared `inputs[..., d + k]`; None if control has no values."""
        return self.network(inputs)

    def act(self, inputs: Array, allowed: NDArray[Any] | None = None) -> Any:
        """The action in one row of prepared `inputs[d + k]`, of those `allowed[num_actions]`."""
        values = self.network.row(inputs)
        return int((values if allowed is None else np.where(allowed, values, -np.inf)).argmax())

    def greedy(self, inputs: Array, allowed: NDArray[Any] | None = None) -> NDArray[Any]:
        """The best action `[n]` of each row of prepared `inputs[n, d + k]`.

        Among those `allowed[n, num_actions]`, if given.

        A product of matrices rounds differently from a product of a matrix and a vector, depending
        on the number of rows. Where that could change the order of the best two actions, the row is
        computed alone, so that an action does not depend on the other rows.
        """
        values = self.network(inputs)
        size = np.abs(values).max(axis=1) + np.float32(1)
        if allowed is not None:
            values = np.where(allowed, values, -np.inf)
        best: NDArray[np.int64] = values.argmax(axis=1)
        if values.shape[1] > 1:
            top = np.partition(values, -2, axis=1)[:, -2:]
            for row in np.flatnonzero(top[:, 1] - top[:, 0] <= NEARLY_TIED * size):
                best[row] = self.act(inputs[row], None if allowed is None else allowed[row])
        return best

    def check(self, name: str, observation_dim: int, context_dim: int, space: ActionSpace) -> None:
        """Raise unless it fits these spaces and this context."""
        self._check_kind(name, space)
        expected = (observation_dim, observation_dim + context_dim, space.width)
        sizes = (self.scaler.dim, self.network.input_dim, self.network.output_dim)
        if sizes != expected:
            raise AgentError(
                f"The agent's {name} scales {sizes[0]} columns and maps {sizes[1]} inputs to "
                f"{sizes[2]} actions, expected {expected[0]}, {expected[1]} and {expected[2]}."
            )

    def _check_kind(self, name: str, space: ActionSpace) -> None:
        if not isinstance(space, Finite):
            raise AgentError(
                f"The agent's {name} has values of discrete actions, not continuous ones."
            )


@dataclass(frozen=True)
class Actor(Control):
    """The action itself, in a box: `network` ends in tanh and gives it scaled to [−1, 1]."""

    space: Box

    def values(self, inputs: Array) -> Array | None:
        """None: an actor has none."""
        return None

    def act(self, inputs: Array, allowed: NDArray[Any] | None = None) -> Any:
        """The action `[k]` in one row of prepared `inputs[d + k]`, clipped to `allowed[2, k]`."""
        if isinstance(self.network, MLP):
            action = self.network.action(inputs, self.space)
        else:
            action = self.space.decode(self.network.row(inputs))
        return action if allowed is None else np.clip(action, *allowed)

    def greedy(self, inputs: Array, allowed: NDArray[Any] | None = None) -> NDArray[Any]:
        """The actions `[n, k]` of prepared `inputs[n, d + k]`, clipped to `allowed[n, 2, k]`."""
        actions = self.space.decode(self.network(inputs))
        return actions if allowed is None else np.clip(actions, allowed[:, 0], allowed[:, 1])

    def _check_kind(self, name: str, space: ActionSpace) -> None:
        if space != self.space:
            raise AgentError(f"The action space of the agent's {name} is not the agent's.")
        if not self.network.squashed:
            raise AgentError(f"The network of the agent's {name} must end in tanh.")

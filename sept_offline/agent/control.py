"""Control: a network from state and context to the values of the actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .networks import Array, Network, Standardiser

NEARLY_TIED = np.float32(3e-5)
"""Values this close, relative to their size, may be ordered by rounding alone."""


@dataclass(frozen=True)
class Control:
    """Values of the actions on [standardised state, context]: `network` takes d + k inputs."""

    scaler: Standardiser
    network: Network

    def values(self, inputs: Array) -> Array:
        """`[n, num_actions]` of prepared `inputs[n, d + k]`."""
        return self.network(inputs)

    def greedy(self, inputs: Array, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
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
                alone = self.network.row(inputs[row])
                best[row] = (
                    alone if allowed is None else np.where(allowed[row], alone, -np.inf)
                ).argmax()
        return best

    def check(self, name: str, observation_dim: int, context_dim: int, num_actions: int) -> None:
        """Raise unless it fits these spaces and this context."""
        expected = (observation_dim, observation_dim + context_dim, num_actions)
        found = (self.scaler.dim, self.network.input_dim, self.network.output_dim)
        if found != expected:
            raise AgentError(
                f"The agent's {name} scales {found[0]} columns and maps {found[1]} inputs to "
                f"{found[2]} actions, expected {expected[0]}, {expected[1]} and {expected[2]}."
            )

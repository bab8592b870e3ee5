"""Probe policies: how the first steps of the one episode are chosen."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from ..limits import MOST_ACTIONS
from .fields import count, field
from .networks import MLP, Array, Arrays, Standardiser, softmax, take


class Probe(Protocol):
    """π(a | s, t), from which the probe's actions are sampled."""

    kind: str
    num_actions: int

    def probabilities(self, observation: Array, time: int) -> NDArray[np.float64]:
        """`[num_actions]`, in the state `observation[d]`, at step `time` of the episode."""
        ...

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is needed beside the weights, JSON-ready."""
        ...


class UniformProbe:
    """The uniform policy."""

    kind = "uniform"

    def __init__(self, num_actions: int) -> None:
        self.num_actions = num_actions
        self._probabilities = np.full(num_actions, 1 / num_actions)

    def probabilities(self, observation: Array, time: int) -> NDArray[np.float64]:
        """`[num_actions]`, all equal."""
        return self._probabilities

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Nothing is learned."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Its kind and the number of actions."""
        return {"kind": self.kind, "num_actions": self.num_actions}


class NetworkProbe:
    """The softmax of a network on the standardised state."""

    kind = "network"

    def __init__(self, scaler: Standardiser, network: MLP) -> None:
        if scaler.dim != network.input_dim:
            raise AgentError(
                f"The probe's network takes {network.input_dim} inputs, its scaler {scaler.dim}."
            )
        self.scaler, self.network, self.num_actions = scaler, network, network.output_dim

    def probabilities(self, observation: Array, time: int) -> NDArray[np.float64]:
        """`[num_actions]`."""
        return softmax(self.network.row(self.scaler(observation)))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Scaler and weights."""
        return self.scaler.to_arrays(f"{prefix}.scaler") | self.network.to_arrays(
            f"{prefix}.network"
        )

    def describe(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": self.kind}


class TableProbe:
    """A policy that depends on the step only: probabilities `table[T, num_actions]`."""

    kind = "table"

    def __init__(self, table: NDArray[Any]) -> None:
        self.table = np.ascontiguousarray(table, dtype=np.float32)
        rows = np.asarray(self.table, dtype=np.float64)
        whole = rows.ndim == 2 and len(rows) > 0 and not (rows < 0).any()
        if not whole or not np.allclose(rows.sum(axis=1), 1, atol=1e-5):
            raise AgentError("A probe's table needs one row of probabilities per step.")
        self._rows = rows / rows.sum(axis=1, keepdims=True)
        self.num_actions = rows.shape[1]

    def probabilities(self, observation: Array, time: int) -> NDArray[np.float64]:
        """`[num_actions]`; the last row again beyond the table."""
        row: NDArray[np.float64] = self._rows[min(time, len(self._rows) - 1)]
        return row

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The table."""
        return {f"{prefix}.table": self.table}

    def describe(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": self.kind}


def within(probabilities: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """`probabilities[num_actions]` over the allowed actions; uniform if all of them were 0."""
    left = np.where(allowed, probabilities, 0.0)
    total = left.sum()
    shared: NDArray[np.float64] = left / total if total > 0 else allowed / allowed.sum()
    return shared


def draw(
    probe: Probe,
    observation: Array,
    time: int,
    allowed: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> int:
    """An action of the probe in `observation[d]` at step `time`; of `allowed[A]` ones, if given."""
    probabilities = probe.probabilities(observation, time)
    if allowed is not None:
        probabilities = within(probabilities, allowed)
    edges = np.cumsum(probabilities)
    place = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    # rounding may carry a draw past the last allowed action
    return min(place, int(np.flatnonzero(probabilities)[-1]))


def probe_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Probe:
    """The probe that `description` names."""
    kind = field(description, "kind", str)
    if kind == UniformProbe.kind:
        return UniformProbe(count(description, "num_actions", MOST_ACTIONS))
    if kind == NetworkProbe.kind:
        return NetworkProbe(
            Standardiser.from_arrays(arrays, f"{prefix}.scaler"),
            MLP.from_arrays(arrays, f"{prefix}.network"),
        )
    if kind == TableProbe.kind:
        return TableProbe(take(arrays, f"{prefix}.table", 2))
    raise AgentError(f"There is no probe {kind!r}; a later version may have written this agent.")

"""Probe policies: how the first steps of the one episode are chosen.

A probe knows the columns of an encoded action, not the space itself: `ActionSpace.decoded` turns
its policies into policies over the actions. The probe of a finite set gives probabilities. That of
a box is a normal distribution per component, cut off at the bounds. Its network has 2k outputs, m
and s, and with s clipped to `LOG_DEVIATION`

    mean = tanh(m)                  centre + half · tanh(m) in the units of the actions
    deviation = exp(s)              half · exp(s)

where half is half of the component's range. Learners of a probe use the same formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..actions import Box, Categorical, Finite, Policy, TruncatedNormal
from ..errors import AgentError
from .networks import MLP, Array, Arrays, Standardiser, softmax, take
from .records import Record, Value, Weights, action_count, named

LOG_DEVIATION = (-4.0, 1.0)
"""Least and greatest logarithm of a deviation, relative to half of the range: from nearly fixed to
nearly uniform."""


class Probe(Record, ABC):
    """π(a | s, t), from which the probe's actions are sampled."""

    action_width: int
    """The columns of an encoded action."""

    @abstractmethod
    def policy(self, observation: Array, time: int) -> Policy:
        """Over encoded actions, in the state `observation[d]`, at step `time` of the episode."""


class UniformProbe(Probe):
    """The uniform policy over a finite set."""

    kind = "uniform"
    stored = (Value("num_actions", action_count),)

    def __init__(self, num_actions: int) -> None:
        self.action_width = self.num_actions = num_actions
        self._policy: Policy = Finite.of(num_actions).uniform()

    def policy(self, observation: Array, time: int) -> Policy:
        """All actions have the same probability."""
        return self._policy


class UniformBoxProbe(UniformProbe):
    """The uniform policy over a box."""

    kind = "uniform-box"
    stored = (Value("components", action_count, key="num_actions"),)

    def __init__(self, components: int) -> None:
        self.action_width = self.components = components
        self._policy = scaled_box(components).uniform()


class NetworkProbe(Probe):
    """The softmax of a network on the standardised state."""

    kind = "network"
    stored = (Weights("scaler", Standardiser.from_arrays), Weights("network", MLP.from_arrays))

    def __init__(self, scaler: Standardiser, network: MLP) -> None:
        if scaler.dim != network.input_dim:
            raise AgentError(
                f"The probe's network takes {network.input_dim} inputs, its scaler {scaler.dim}."
            )
        self.scaler, self.network, self.action_width = scaler, network, network.output_dim

    def policy(self, observation: Array, time: int) -> Policy:
        return Categorical(softmax(self.network.row(self.scaler(observation))))


class NormalProbe(NetworkProbe):
    """Normal components cut off at the bounds of a box, from a network on the standardised state.

    `network` gives 2k outputs; see the head of this module.
    """

    kind = "normal"

    def __init__(self, scaler: Standardiser, network: MLP) -> None:
        super().__init__(scaler, network)
        if network.output_dim % 2:
            raise AgentError(
                "A probe of continuous actions needs a mean and a deviation per component, found "
                f"{network.output_dim} outputs."
            )
        self.action_width = network.output_dim // 2
        self._box = scaled_box(self.action_width)

    def policy(self, observation: Array, time: int) -> Policy:
        output = self.network.row(self.scaler(observation)).astype(np.float64)
        mean, log_deviation = np.tanh(output[: self.action_width]), output[self.action_width :]
        return TruncatedNormal(self._box, mean, np.exp(np.clip(log_deviation, *LOG_DEVIATION)))


class TableProbe(Probe):
    """A policy that depends on the step only: probabilities `table[T, num_actions]`."""

    kind = "table"
    stored = (Weights("table", partial(take, ndim=2)),)

    def __init__(self, table: NDArray[Any]) -> None:
        self.table = np.ascontiguousarray(table, dtype=np.float32)
        rows = np.asarray(self.table, dtype=np.float64)
        whole = rows.ndim == 2 and len(rows) > 0 and not (rows < 0).any()
        if not whole or not np.allclose(rows.sum(axis=1), 1, atol=1e-5):
            raise AgentError("A probe's table needs one row of probabilities per step.")
        self._rows = rows / rows.sum(axis=1, keepdims=True)
        self.action_width = rows.shape[1]

    def policy(self, observation: Array, time: int) -> Policy:
        """See Probe; the last row again beyond the table."""
        return Categorical(self._rows[min(time, len(self._rows) - 1)])


def scaled_box(components: int) -> Box:
    """The box of encoded actions: every component from −1 to 1."""
    return Box.of(np.full(components, -1.0), np.ones(components))


PROBES: dict[str, type[Probe]] = {
    each.kind: each
    for each in (UniformProbe, UniformBoxProbe, NetworkProbe, NormalProbe, TableProbe)
}


def probe_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Probe:
    """The probe that `description` names."""
    return named(PROBES, description, "probe").from_arrays(arrays, description, prefix)

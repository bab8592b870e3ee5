"""Contexts: what an agent's control sees beside the state, and how it comes by it in an episode.

A context makes one tracker an episode. A tracker is shown each observation and either answers with
an action of its own, as a probe does, or leaves the step to control, which then reads its vector.
A method with another idea of context (a window of steps, an adapted belief) adds one class here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent.encoder import SegmentEncoder, encoder_from_arrays
from sept_offline.agent.networks import Array, Arrays, Standardiser
from sept_offline.agent.novelty import Novelty
from sept_offline.agent.probes import Probe, probe_from_arrays
from sept_offline.agent.reading import field, strings
from sept_offline.errors import AgentError
from sept_offline.family import Hidden
from sept_offline.seeding import generator

EMPTY = np.empty(0, dtype=np.float32)


class Tracker:
    """One episode's context. This one never changes; others override `step`.

    vector `[k]` is what control reads; settled means it will not change again in this episode.
    """

    latent: Array | None = None
    uncertainty: float | None = None
    novelty: float | None = None
    flagged = False

    def __init__(self, vector: Array, settled: bool = True) -> None:
        self.vector, self.settled = vector, settled

    def step(self, observation: Array) -> int | None:
        """The tracker's own action in `observation[d]`, or None where control is to act."""
        return None


class Context(Protocol):
    """Where the vector beside the state comes from."""

    kind: str
    dim: int
    needs: frozenset[str]
    probe_steps: int

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """The tracker of a new episode; `hidden` is given exactly if it is among the needs."""
        ...

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Raise unless its parts fit these spaces."""
        ...

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All weights, each under a name that starts with `prefix`."""
        ...

    def describe(self) -> dict[str, Any]:
        """What is needed beside the weights, JSON-ready."""
        ...


class NoContext:
    """The state alone: the robust policy `avg`."""

    kind = "none"
    dim = 0
    needs: frozenset[str] = frozenset()
    probe_steps = 0

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker with nothing in it."""
        return Tracker(EMPTY)

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Nothing can be wrong."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Its kind."""
        return {"kind": self.kind}


class HiddenContext:
    """The true hidden parameters, standardised: the privileged `oracle`."""

    kind = "hidden"
    needs = frozenset({"hidden"})
    probe_steps = 0

    def __init__(self, names: tuple[str, ...], scaler: Standardiser) -> None:
        if len(names) != scaler.dim:
            raise AgentError(f"{len(names)} hidden parameters, but a scaler of {scaler.dim}.")
        self.names, self.scaler, self.dim = tuple(names), scaler, scaler.dim

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker that holds them."""
        given: Hidden = {} if hidden is None else hidden
        if set(given) != set(self.names):
            raise AgentError(
                f"The agent needs the hidden parameters {', '.join(self.names)}, "
                f"found {', '.join(map(str, given)) or 'none'}."
            )
        values = [float(given[name]) for name in self.names]
        if not all(map(math.isfinite, values)):
            raise AgentError(f"Hidden parameters must be finite, found {dict(given)}.")
        return Tracker(self.scaler(np.array(values, dtype=np.float32)))

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Nothing in it depends on the spaces."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The scaler."""
        return self.scaler.to_arrays(f"{prefix}.scaler")

    def describe(self) -> dict[str, Any]:
        """Its kind and the parameters' names, in order."""
        return {"kind": self.kind, "names": list(self.names)}


class SegmentContext:
    """The latent of the episode's first steps: probe, encode once, keep the posterior mean."""

    kind = "segment"
    needs: frozenset[str] = frozenset()

    def __init__(
        self,
        probe: Probe,
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
    ) -> None:
        self.probe, self.encoder = probe, encoder
        self.latent_scaler, self.novelty = latent_scaler, novelty
        self.probe_steps, self.dim = encoder.steps, encoder.latent_dim
        if latent_scaler.dim != self.dim:
            raise AgentError(
                f"The latent has {self.dim} columns, but its scaler {latent_scaler.dim}."
            )

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker that probes first."""
        return _Probing(self, seed)

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Probe, encoder and decoder must be for these spaces, and the latent alike in all."""
        encoder, expected = self.encoder, (observation_dim, num_actions)
        found = {"encoder": (encoder.observation_dim, encoder.num_actions)}
        found["probe"] = (observation_dim, self.probe.num_actions)
        if self.novelty is not None:
            decoder = self.novelty.decoder
            found["decoder"] = (decoder.observation_dim, decoder.num_actions)
            if decoder.latent_dim != self.dim:
                raise AgentError(
                    f"The decoder's latent has {decoder.latent_dim} columns, "
                    f"the encoder's {self.dim}."
                )
        for name, sizes in found.items():
            if sizes != expected:
                raise AgentError(
                    f"The agent's {name} is for {sizes[0]} columns and {sizes[1]} actions, "
                    f"its spaces have {expected[0]} and {expected[1]}."
                )

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        arrays = {
            **self.probe.to_arrays(f"{prefix}.probe"),
            **self.encoder.to_arrays(f"{prefix}.encoder"),
            **self.latent_scaler.to_arrays(f"{prefix}.latent"),
        }
        if self.novelty is not None:
            arrays |= self.novelty.to_arrays(f"{prefix}.novelty")
        return arrays

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        return {
            "kind": self.kind,
            "probe_steps": self.probe_steps,
            "latent_dim": self.dim,
            "probe": self.probe.describe(),
            "encoder": self.encoder.describe(),
            "novelty": None if self.novelty is None else self.novelty.describe(),
        }


class _Probing(Tracker):
    """Probes for T steps, then encodes them and the state they end in."""

    def __init__(self, context: SegmentContext, seed: int) -> None:
        super().__init__(EMPTY, settled=False)
        self._context = context
        self._rng = generator(seed, "agent", "probe")
        self._time = 0
        steps, dim = context.probe_steps, context.encoder.observation_dim
        self._observations = np.empty((1, steps + 1, dim), dtype=np.float32)
        self._actions = np.empty((1, steps), dtype=np.int64)

    def step(self, observation: Array) -> int | None:
        """A sampled action while the probe lasts; then the latent is inferred, once."""
        if self.settled:
            return None
        self._observations[0, self._time] = observation
        if self._time == self._context.probe_steps:
            self._infer()
            return None
        probabilities = self._context.probe.probabilities(observation, self._time)
        edges = np.cumsum(probabilities)
        place = int(np.searchsorted(edges, self._rng.random() * edges[-1], side="right"))
        # rounding may carry a draw past the last action that can be taken at all
        action = min(place, int(np.flatnonzero(probabilities)[-1]))
        self._actions[0, self._time] = action
        self._time += 1
        return action

    def _infer(self) -> None:
        context = self._context
        mean, log_var = context.encoder.encode(self._observations, self._actions)
        self.latent = mean[0]
        self.uncertainty = float(np.exp(0.5 * log_var[0]).mean())
        self.vector = context.latent_scaler(mean[0])
        if context.novelty is not None:
            share = context.novelty.quantile(self._observations, self._actions, mean, log_var)
            self.novelty = float(share[0])
            self.flagged = self.novelty < context.novelty.flagged_below
        self.settled = True


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """Whichever context `description` names."""
    kind = field(description, "kind", str)
    if kind == NoContext.kind:
        return NoContext()
    if kind == HiddenContext.kind:
        scaler = Standardiser.from_arrays(arrays, f"{prefix}.scaler")
        return HiddenContext(strings(description, "names"), scaler)
    if kind == SegmentContext.kind:
        novelty = description.get("novelty") if isinstance(description, Mapping) else None
        return SegmentContext(
            probe_from_arrays(arrays, field(description, "probe", dict), f"{prefix}.probe"),
            encoder_from_arrays(arrays, field(description, "encoder", dict), f"{prefix}.encoder"),
            Standardiser.from_arrays(arrays, f"{prefix}.latent"),
            None if novelty is None else Novelty.from_arrays(arrays, novelty, f"{prefix}.novelty"),
        )
    raise AgentError(f"The agent names an unknown context {kind!r}; is it of a later version?")

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

from sept_offline.agent.encoder import SegmentEncoder, encoder_from_arrays, one_hot
from sept_offline.agent.networks import Array, Arrays, Standardiser, take
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

    def took(self, action: int) -> None:
        """Told, until it is settled, what control chose after `step` left it the choice."""


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


class HistoryContext:
    """The last `steps` observations and actions before the present one: `history`.

    From the newest to the oldest, each is the standardised observation, the one-hot action taken in
    it and a 1; all zeros where the episode had not begun. `dim` is steps · (d + num_actions + 1).
    """

    kind = "history"
    needs: frozenset[str] = frozenset()
    probe_steps = 0

    def __init__(self, steps: int, num_actions: int, scaler: Standardiser) -> None:
        if steps < 1:
            raise AgentError(f"A history needs at least 1 step, found {steps}.")
        self.steps, self.num_actions, self.scaler = steps, num_actions, scaler
        self.dim = steps * (scaler.dim + num_actions + 1)

    def features(
        self, observations: NDArray[Any], actions: NDArray[Any], seen: NDArray[np.bool_]
    ) -> Array:
        """`[n, dim]` of `observations[n, steps, d]`, `actions[n, steps]`, newest first.

        `seen[n, steps]` says which of them there were; the others may hold anything.
        """
        there = seen[..., None]
        taken = one_hot(actions, self.num_actions)
        columns = np.concatenate([self.scaler(observations), taken, there], axis=2)
        whole = np.where(there, columns, np.float32(0)).astype(np.float32)
        return whole.reshape(len(whole), self.dim)

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker that remembers nothing yet."""
        return _Remembering(self)

    def check(self, observation_dim: int, num_actions: int) -> None:
        """It must remember these spaces."""
        _check_sizes("history", (self.scaler.dim, self.num_actions), (observation_dim, num_actions))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The scaler."""
        return self.scaler.to_arrays(f"{prefix}.scaler")

    def describe(self) -> dict[str, Any]:
        """Its kind, length and number of actions."""
        return {"kind": self.kind, "steps": self.steps, "num_actions": self.num_actions}


class _Remembering(Tracker):
    """Keeps the last steps; control acts at every one."""

    def __init__(self, context: HistoryContext) -> None:
        super().__init__(np.zeros(context.dim, dtype=np.float32), settled=False)
        self._context = context
        self._observations = np.zeros((1, context.steps, context.scaler.dim), dtype=np.float32)
        self._actions = np.zeros((1, context.steps), dtype=np.int64)
        self._seen = np.zeros((1, context.steps), dtype=bool)
        self._present: Array = EMPTY

    def step(self, observation: Array) -> int | None:
        """Control acts, with what came before `observation[d]` beside it."""
        self._present = observation
        features = self._context.features(self._observations, self._actions, self._seen)
        self.vector = features[0]
        return None

    def took(self, action: int) -> None:
        """The present becomes the newest of the past, the oldest is forgotten."""
        newest = ((self._observations, self._present), (self._actions, action), (self._seen, True))
        for past, value in newest:
            past[0, 1:] = past[0, :-1].copy()
            past[0, 0] = value


class _EncodedContext:
    """The latent of the episode's first steps, encoded once; who takes them is left open."""

    needs: frozenset[str] = frozenset()

    def __init__(
        self, encoder: SegmentEncoder, latent_scaler: Standardiser, novelty: Novelty | None
    ) -> None:
        self.encoder, self.latent_scaler, self.novelty = encoder, latent_scaler, novelty
        self.dim = encoder.latent_dim
        if latent_scaler.dim != self.dim:
            raise AgentError(
                f"The latent has {self.dim} columns, but its scaler {latent_scaler.dim}."
            )

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Encoder and decoder must be for these spaces, and the latent alike in both."""
        encoder, expected = self.encoder, (observation_dim, num_actions)
        _check_sizes("encoder", (encoder.observation_dim, encoder.num_actions), expected)
        if self.novelty is not None:
            decoder = self.novelty.decoder
            _check_sizes("decoder", (decoder.observation_dim, decoder.num_actions), expected)
            if decoder.latent_dim != self.dim:
                raise AgentError(
                    f"The decoder's latent has {decoder.latent_dim} columns, "
                    f"the encoder's {self.dim}."
                )

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        arrays = {
            **self.encoder.to_arrays(f"{prefix}.encoder"),
            **self.latent_scaler.to_arrays(f"{prefix}.latent"),
        }
        if self.novelty is not None:
            arrays |= self.novelty.to_arrays(f"{prefix}.novelty")
        return arrays

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        return {
            "latent_dim": self.dim,
            "encoder": self.encoder.describe(),
            "novelty": None if self.novelty is None else self.novelty.describe(),
        }


class SegmentContext(_EncodedContext):
    """Probe, encode once, keep the posterior mean: SEPT."""

    kind = "segment"

    def __init__(
        self,
        probe: Probe,
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty)
        self.probe, self.probe_steps = probe, encoder.steps

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker that probes first."""
        return _Probing(self, seed)

    def check(self, observation_dim: int, num_actions: int) -> None:
        """Probe, encoder and decoder must be for these spaces, and the latent alike in all."""
        super().check(observation_dim, num_actions)
        sizes = (observation_dim, self.probe.num_actions)
        _check_sizes("probe", sizes, (observation_dim, num_actions))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        return self.probe.to_arrays(f"{prefix}.probe") | super().to_arrays(prefix)

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        own = {"kind": self.kind, "probe_steps": self.probe_steps, "probe": self.probe.describe()}
        return own | super().describe()


class UnprobedContext(_EncodedContext):
    """Control acts from the first step, at first with `start[k]` for a latent: `sept-np`.

    `start` is what control reads, standardised: the mean of the latents it was trained with.
    """

    kind = "unprobed"
    probe_steps = 0

    def __init__(
        self,
        start: NDArray[Any],
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty)
        self.start: Array = np.ascontiguousarray(start, dtype=np.float32)
        if self.start.shape != (self.dim,):
            raise AgentError(
                f"The latent has {self.dim} columns, the one to start with the shape "
                f"{list(self.start.shape)}."
            )

    def begin(self, seed: int, hidden: Hidden | None) -> Tracker:
        """A tracker that watches control first."""
        return _Watching(self)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        return {f"{prefix}.start": self.start} | super().to_arrays(prefix)

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        return {"kind": self.kind} | super().describe()


class _Encoding(Tracker):
    """Gathers T steps; with the state they end in, it encodes them."""

    def __init__(self, context: SegmentContext | UnprobedContext, vector: Array) -> None:
        super().__init__(vector, settled=False)
        self._encoded = context
        self._time = 0
        steps, dim = context.encoder.steps, context.encoder.observation_dim
        self._observations = np.empty((1, steps + 1, dim), dtype=np.float32)
        self._actions = np.empty((1, steps), dtype=np.int64)

    def took(self, action: int) -> None:
        """One more step, whoever chose it."""
        self._actions[0, self._time] = action
        self._time += 1

    def _complete(self, observation: Array) -> bool:
        """Whether `observation[d]` completes the segment; the latent is then inferred, once."""
        if not self.settled:
            self._observations[0, self._time] = observation
            if self._time == self._encoded.encoder.steps:
                self._infer()
        return self.settled

    def _infer(self) -> None:
        context = self._encoded
        mean, log_var = context.encoder.encode(self._observations, self._actions)
        self.latent = mean[0]
        self.uncertainty = float(np.exp(0.5 * log_var[0]).mean())
        self.vector = context.latent_scaler(mean[0])
        if context.novelty is not None:
            share = context.novelty.quantile(self._observations, self._actions, mean, log_var)
            self.novelty = float(share[0])
            self.flagged = self.novelty < context.novelty.flagged_below
        self.settled = True


class _Probing(_Encoding):
    """The probe acts for T steps."""

    def __init__(self, context: SegmentContext, seed: int) -> None:
        super().__init__(context, EMPTY)
        self._probe = context.probe
        self._rng = generator(seed, "agent", "probe")

    def step(self, observation: Array) -> int | None:
        """A sampled action while the probe lasts."""
        if self._complete(observation):
            return None
        probabilities = self._probe.probabilities(observation, self._time)
        edges = np.cumsum(probabilities)
        place = int(np.searchsorted(edges, self._rng.random() * edges[-1], side="right"))
        # rounding may carry a draw past the last action that can be taken at all
        action = min(place, int(np.flatnonzero(probabilities)[-1]))
        self.took(action)
        return action


class _Watching(_Encoding):
    """Control acts for T steps, and on."""

    def __init__(self, context: UnprobedContext) -> None:
        super().__init__(context, context.start)

    def step(self, observation: Array) -> int | None:
        """Control acts, always."""
        self._complete(observation)
        return None


def _check_sizes(name: str, sizes: tuple[int, int], expected: tuple[int, int]) -> None:
    if sizes != expected:
        raise AgentError(
            f"The agent's {name} is for {sizes[0]} columns and {sizes[1]} actions, "
            f"its spaces have {expected[0]} and {expected[1]}."
        )


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """Whichever context `description` names."""
    kind = field(description, "kind", str)
    if kind == NoContext.kind:
        return NoContext()
    if kind == HiddenContext.kind:
        scaler = Standardiser.from_arrays(arrays, f"{prefix}.scaler")
        return HiddenContext(strings(description, "names"), scaler)
    if kind == HistoryContext.kind:
        return HistoryContext(
            field(description, "steps", int),
            field(description, "num_actions", int),
            Standardiser.from_arrays(arrays, f"{prefix}.scaler"),
        )
    if kind in (SegmentContext.kind, UnprobedContext.kind):
        encoder = field(description, "encoder", dict)
        novelty = description.get("novelty") if isinstance(description, Mapping) else None
        parts = (
            encoder_from_arrays(arrays, encoder, f"{prefix}.encoder"),
            Standardiser.from_arrays(arrays, f"{prefix}.latent"),
            None if novelty is None else Novelty.from_arrays(arrays, novelty, f"{prefix}.novelty"),
        )
        if kind == UnprobedContext.kind:
            return UnprobedContext(take(arrays, f"{prefix}.start", 1), *parts)
        probe = field(description, "probe", dict)
        return SegmentContext(probe_from_arrays(arrays, probe, f"{prefix}.probe"), *parts)
    raise AgentError(f"The agent names an unknown context {kind!r}; is it of a later version?")

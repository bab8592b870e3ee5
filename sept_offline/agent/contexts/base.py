"""The interface of contexts and trackers, and the contexts that infer nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..control import Control
from ..networks import Array, Standardiser
from ..records import Record, Value, Weights, action_count, count, number_or_none, strings

if TYPE_CHECKING:
    from ...family import Hidden

EMPTY = np.empty(0, dtype=np.float32)


class Tracker:
    """One episode's context. This one never changes; others override `step`.

    vector `[k]` is what control reads; settled means that neither it nor the control will change
    again in this episode.
    """

    control: Control | None = None
    """A control that replaces the agent's from now on, with the same inputs; or None."""
    latent: Array | None = None
    uncertainty: float | None = None
    novelty: float | None = None
    flagged = False
    steady = False
    """Whether control acts from now on, and `step_together` may be called instead of `step`."""

    def __init__(self, vector: Array, settled: bool = True) -> None:
        self.vector, self.settled = vector, settled

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The policy that acts in `observation[d]`, over encoded actions; None if control acts.

        `reward` is the last step's, if "reward" is among the context's needs and there was one.
        """
        return None

    @staticmethod
    def step_together(trackers: Sequence[Any], observations: Array) -> None:
        """A step of each of some steady trackers of one context, in `observations[n, d]`."""
        for tracker, observation in zip(trackers, observations, strict=True):
            tracker.step(observation)

    def took(self, taken: Array) -> None:
        """Called, until settled, with the encoded action `[w]` of a step of probe or control."""


class Context(Record, ABC):
    """The source of control's input besides the state."""

    dim: int
    needs: frozenset[str] = frozenset()
    """What a tracker needs besides observations: a subset of {"hidden", "reward"}."""
    learns = False
    """Whether gradient steps are taken during the episode."""
    probe_steps = 0

    @abstractmethod
    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """The tracker of a new episode, for an agent with this control.

        `hidden` is given exactly if it is among the needs. A tracker must not change `control`,
        which all episodes share.
        """

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the context's parts fit observations and encoded actions of these sizes.

        This one fits any.
        """


def check_sizes(name: str, sizes: tuple[int, int], expected: tuple[int, int]) -> None:
    """Raise unless the part `name` has the expected columns of observations and of actions."""
    if sizes != expected:
        raise AgentError(
            f"The agent's {name} expects {sizes[0]} observed and {sizes[1]} action columns, "
            f"its spaces have {expected[0]} and {expected[1]}."
        )


class NoContext(Context):
    """The state alone: the robust policy `avg`.

    `uncertainty` is reported by its episodes: 1 if a latent was tried and carried no
    information, None if no latent was tried.
    """

    kind = "none"
    stored = (Value("uncertainty", number_or_none),)
    dim = 0

    def __init__(self, uncertainty: float | None = None) -> None:
        self.uncertainty = uncertainty

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty vector."""
        tracker = Tracker(EMPTY)
        tracker.uncertainty = self.uncertainty
        return tracker

    def describe(self) -> dict[str, Any]:
        """Its kind, and the uncertainty if there is one."""
        return {name: value for name, value in super().describe().items() if value is not None}


class HiddenContext(Context):
    """The true hidden parameters, standardised: the privileged `oracle`."""

    kind = "hidden"
    stored = (Value("names", strings), Weights("scaler", Standardiser.from_arrays))
    needs = frozenset({"hidden"})

    def __init__(self, names: tuple[str, ...], scaler: Standardiser) -> None:
        if len(names) != scaler.dim:
            raise AgentError(f"{len(names)} hidden parameters, but a scaler of {scaler.dim}.")
        self.names, self.scaler, self.dim = tuple(names), scaler, scaler.dim

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that holds them."""
        return Tracker(self.scaler(hidden_row(self.names, hidden or {})))


def hidden_row(names: Sequence[str], hidden: Hidden) -> Array:
    """The hidden parameters `[k]` in the order of `names`, which must be theirs."""
    if not isinstance(hidden, Mapping):
        raise AgentError(f"hidden is {hidden!r:.60}; expected a dict of numbers by name.")
    if set(hidden) != set(names):
        raise AgentError(
            f"The agent needs the hidden parameters {', '.join(names)}, "
            f"found {', '.join(map(str, hidden)) or 'none'}."
        )
    try:
        values = [float(hidden[name]) for name in names]
    except (TypeError, ValueError) as error:
        raise AgentError(
            f"Hidden parameters must be numbers, found {dict(hidden)!r:.80}."
        ) from error
    with np.errstate(over="ignore"):
        row = np.array(values, dtype=np.float32)
    if not np.isfinite(row).all():
        raise AgentError(f"Hidden parameters must be finite float32 numbers, found {dict(hidden)}.")
    return row


class HistoryContext(Context):
    """The last `steps` observations and actions before the present one: `history`.

    From the newest to the oldest, each is the standardised observation, the encoded action taken in
    it and a 1; all zeros where the episode had not begun. `dim` is steps · (d + w + 1).
    """

    kind = "history"
    stored = (
        Value("steps", count),
        Value("action_width", action_count, key="num_actions"),
        Weights("scaler", Standardiser.from_arrays),
    )

    def __init__(self, steps: int, action_width: int, scaler: Standardiser) -> None:
        if steps < 1:
            raise AgentError(f"A history needs at least 1 step, found {steps}.")
        self.steps, self.action_width, self.scaler = steps, action_width, scaler
        self.dim = steps * (scaler.dim + action_width + 1)

    def features(
        self, observations: NDArray[Any], taken: NDArray[Any], seen: NDArray[np.bool_]
    ) -> Array:
        """`[n, dim]` of `observations[n, steps, d]`, `taken[n, steps, w]`, newest first.

        `seen[n, steps]` says which of them there were; the others may hold anything.
        """
        there = seen[..., None]
        columns = np.concatenate([self.scaler(observations), taken, there], axis=2)
        whole = np.where(there, columns, np.float32(0)).astype(np.float32)
        return whole.reshape(len(whole), self.dim)

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty history."""
        return _Remembering(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the history fits these spaces."""
        check_sizes(
            "history", (self.scaler.dim, self.action_width), (observation_dim, action_width)
        )


class _Remembering(Tracker):
    """Keeps the last steps; control acts at every one."""

    steady = True

    def __init__(self, context: HistoryContext) -> None:
        super().__init__(np.zeros(context.dim, dtype=np.float32), settled=False)
        self._context = context
        self._observations = np.zeros((1, context.steps, context.scaler.dim), dtype=np.float32)
        self._taken = np.zeros((1, context.steps, context.action_width), dtype=np.float32)
        self._seen = np.zeros((1, context.steps), dtype=bool)
        self._present: Array = EMPTY

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control acts, with the steps before `observation[d]` as context."""
        self._present = observation
        features = self._context.features(self._observations, self._taken, self._seen)
        self.vector = features[0]
        return None

    @staticmethod
    def step_together(trackers: Sequence[_Remembering], observations: Array) -> None:
        """See Tracker."""
        past = (
            np.concatenate([getattr(tracker, name) for tracker in trackers])
            for name in ("_observations", "_taken", "_seen")
        )
        features = trackers[0]._context.features(*past)
        for tracker, observation, row in zip(trackers, observations, features, strict=True):
            tracker._present, tracker.vector = observation, row

    def took(self, taken: Array) -> None:
        """Add the current step to the history and drop the oldest."""
        newest = ((self._observations, self._present), (self._taken, taken), (self._seen, True))
        for past, value in newest:
            past[0, 1:] = past[0, :-1].copy()
            past[0, 0] = value

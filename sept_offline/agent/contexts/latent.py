"""Contexts that infer a latent from the steps of the episode."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ...limits import LONGEST_REFINED
from ..control import Control
from ..encoders import SegmentEncoder, TransitionEncoder, encoder_from_arrays, posterior
from ..networks import Array, Standardiser, take
from ..novelty import Novelty
from ..probes import Probe, probe_from_arrays
from ..records import Part, Stored, Value, Weights, count, positive
from .base import EMPTY, Context, Tracker, check_sizes

if TYPE_CHECKING:
    from ...family import Hidden

UNKNOWN = np.float32(1)
"""η before the first window, and the prior's standard deviation, at which the maximum starts."""
ENCODED = (
    Part("encoder", encoder_from_arrays),
    Weights("latent_scaler", Standardiser.from_arrays, key="latent"),
)


def doubt(deviation: NDArray[Any], largest: NDArray[Any]) -> NDArray[Any]:
    """η `[...]`: the mean over columns of `deviation[..., k]` / `largest[..., k]`."""
    ratio: NDArray[Any] = (deviation / largest).mean(axis=-1)
    return ratio


class _LatentTracker(Tracker):
    """Room for T steps, and what was inferred from them."""

    def __init__(self, context: LatentContext) -> None:
        super().__init__(context.start, settled=False)
        self._context, self._time = context, 0
        encoder = context.encoder
        self._observations = np.zeros((1, encoder.steps + 1, encoder.observation_dim), np.float32)
        self._taken = np.zeros((1, encoder.steps, encoder.action_width), np.float32)

    def took(self, taken: Array) -> None:
        """Add one step, by probe or control; the first T are stored."""
        if self._time < self._context.encoder.steps:
            self._taken[0, self._time] = taken
        self._time += 1

    def _policy(self, observation: Array) -> Policy | None:
        """The probe's while it lasts."""
        probe = self._context.probe
        if probe is None or self._time >= self._context.probe_steps:
            return None
        return probe.policy(observation, self._time)

    def _infer(self, mean: Array, log_var: Array) -> Array:
        """Report the posterior of mean `[k]` and log-variance `[k]`; returns its deviation."""
        deviation: Array = np.exp(np.float32(0.5) * log_var)
        self.latent = mean
        self.uncertainty = self._context.uncertainty_scale * float(deviation.mean())
        self.vector = self._context.latent_scaler(mean)
        return deviation

    def _measure_novelty(self, mean: Array, log_var: Array) -> None:
        """Compare the first T steps, of posterior `[1, k]` each, with fresh segments."""
        novelty = self._context.novelty
        if novelty is not None:
            share = novelty.quantile(self._observations, self._taken, mean, log_var)
            self.novelty = float(share[0])
            self.flagged = self.novelty < novelty.flagged_below


class _Encoding(_LatentTracker):
    """Encodes the first T steps once their last state is known; probe or control acts in them."""

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The probe while it lasts."""
        self._observations[0, self._time] = observation
        if self._time == self._context.encoder.steps:
            mean, log_var = self._context.encoder.encode(self._observations, self._taken)
            self._infer(mean[0], log_var[0])
            self._measure_novelty(mean, log_var)
            self.settled = True
        return self._policy(observation)


class _Sliding(_LatentTracker):
    """Keeps the last T steps and encodes them at every one; control always acts."""

    def __init__(self, context: LatentContext) -> None:
        super().__init__(context)
        self._largest = np.full(context.encoder.latent_dim, UNKNOWN)

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control acts, with the latent of the window that ends in `observation[d]`."""
        self._observations[0, :-1] = self._observations[0, 1:].copy()
        self._observations[0, -1] = observation
        if self._time >= self._context.encoder.steps:
            mean, log_var = self._context.encoder.encode(self._observations, self._taken)
            deviation = self._infer(mean[0], log_var[0])
            self._largest = np.maximum(self._largest, deviation)
            self.vector = np.append(self.vector, np.float32(doubt(deviation, self._largest)))
        return None

    def took(self, taken: Array) -> None:
        """Add the newest step to the window."""
        self._taken[0, :-1] = self._taken[0, 1:].copy()
        self._taken[0, -1] = taken
        self._time += 1


class _Refining(_LatentTracker):
    """Adds up the evidence of every step; the probe acts first, if there is one."""

    _context: RefinedContext
    _together = True

    def __init__(self, context: LatentContext) -> None:
        super().__init__(context)
        self._weighted, self._precision = np.zeros((2, context.dim), dtype=np.float32)
        self._before: Array = np.zeros(context.encoder.observation_dim, dtype=np.float32)
        self._last: Array = EMPTY

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The probe while it lasts; control acts otherwise."""
        self._read(observation)
        return self._policy(observation)

    @staticmethod
    def step_together(trackers: Sequence[_Refining], observations: Array) -> None:
        """See Tracker."""
        context = trackers[0]._context
        before, last, weighted, precision = (
            np.array([getattr(tracker, name) for tracker in trackers])
            for name in ("_before", "_last", "_weighted", "_precision")
        )
        more = context.encoder.evidence(before, last, observations)
        weighted, precision = weighted + more[0], precision + more[1]
        mean, log_var = posterior(weighted, precision)
        deviation = np.exp(np.float32(0.5) * log_var).mean(axis=1).tolist()
        vectors = context.latent_scaler(mean)
        for row, tracker in enumerate(trackers):
            tracker._weighted, tracker._precision = weighted[row], precision[row]
            tracker._before = observations[row]
            tracker.latent, tracker.vector = mean[row], vectors[row]
            tracker.uncertainty = context.uncertainty_scale * deviation[row]
            tracker.settled = tracker._time >= context.refine_steps

    def took(self, taken: Array) -> None:
        """Add one step, by probe or control."""
        super().took(taken)
        self._last = taken
        # by then neither a probe nor novelty is to come
        self.steady = self._together and self._time > self._context.encoder.steps

    def _read(self, observation: Array) -> None:
        """Add the evidence of the step that ends in `observation[d]`."""
        context = self._context
        if self._time:
            weighted, precision = context.encoder.evidence_of_one(
                self._before, self._last, observation
            )
            self._weighted += weighted
            self._precision += precision
            self._infer(*posterior(self._weighted, self._precision))
        if self._time <= context.encoder.steps:
            self._observations[0, self._time] = observation
            if self._time == context.encoder.steps:
                self._measure_novelty(*posterior(self._weighted[None], self._precision[None]))
        self._before[:] = observation
        self.settled = self._time >= context.refine_steps


class _Rewarded(_Refining):
    """Shows the encoder each observation with the reward that came with it."""

    _together = False

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The probe, which sees no reward, while it lasts."""
        paid = np.float32(0.0 if reward is None else reward)
        self._read(np.append(observation, paid).astype(np.float32))
        # the next step sets out without a reward
        self._before[-1] = 0
        return self._policy(observation)


class LatentContext(Context):
    """The latent of some steps of the episode; subclasses choose the steps, and who acts in them.

    The probe, where there is one, takes the first T steps: those that the encoder reads.
    """

    stored: ClassVar[tuple[Stored, ...]] = (
        Value("dim", key="latent_dim"),
        *ENCODED,
        Part("novelty", Novelty.from_arrays, optional=True),
        Value("uncertainty_scale", positive),
    )
    # agents of earlier versions report the posterior's own uncertainty
    earlier: ClassVar = {"uncertainty_scale": 1.0}
    tracker: ClassVar[type[_LatentTracker]]
    probe: Probe | None = None
    start: Array = EMPTY
    """What control reads until something has been inferred."""

    def __init__(
        self,
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None,
        uncertainty_scale: float,
    ) -> None:
        self.encoder, self.latent_scaler, self.novelty = encoder, latent_scaler, novelty
        self.uncertainty_scale = uncertainty_scale
        self.dim = encoder.latent_dim
        if latent_scaler.dim != self.dim:
            raise AgentError(
                f"The latent has {self.dim} columns, but its scaler {latent_scaler.dim}."
            )

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that has seen nothing."""
        return self.tracker(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless probe, encoder and decoder fit these spaces and share a latent size."""
        encoder, expected = self.encoder, (observation_dim, action_width)
        check_sizes("encoder", (encoder.observation_dim, encoder.action_width), expected)
        if self.novelty is not None:
            decoder = self.novelty.decoder
            check_sizes("decoder", (decoder.observation_dim, decoder.action_width), expected)
            if decoder.latent_dim != encoder.latent_dim:
                raise AgentError(
                    f"The decoder's latent has {decoder.latent_dim} columns, "
                    f"the encoder's {encoder.latent_dim}."
                )
        if self.probe is not None:
            check_sizes("probe", (observation_dim, self.probe.action_width), expected)


class SegmentContext(LatentContext):
    """Probe, encode once, keep the posterior mean: SEPT."""

    kind = "segment"
    tracker = _Encoding
    stored = (Value("probe_steps"), Part("probe", probe_from_arrays), *LatentContext.stored)

    def __init__(
        self,
        probe: Probe,
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
        uncertainty_scale: float = 1.0,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty, uncertainty_scale)
        self.probe: Probe = probe
        self.probe_steps = encoder.steps


class UnprobedContext(LatentContext):
    """Control acts from the first step, with `start[k]` as the latent at first: `sept-np`.

    `start` is what control reads, standardised: the mean of the latents it was trained with.
    """

    kind = "unprobed"
    tracker = _Encoding
    stored = (Weights("start", partial(take, ndim=1)), *LatentContext.stored)

    def __init__(
        self,
        start: NDArray[Any],
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
        uncertainty_scale: float = 1.0,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty, uncertainty_scale)
        self.start = np.ascontiguousarray(start, dtype=np.float32)
        if self.start.shape != (self.dim,):
            raise AgentError(
                f"The latent has {self.dim} columns, but the initial latent has shape "
                f"{list(self.start.shape)}."
            )


class WindowContext(LatentContext):
    """[z, η]: the latent of the last T steps and its uncertainty: `dynasept`.

    z is standardised, and 0 until T steps have been seen. η is 1 until then, and afterwards the
    posterior's standard deviation over the largest of the episode, mean over columns.
    """

    kind = "window"
    tracker = _Sliding
    stored = ENCODED
    earlier: ClassVar = {}

    def __init__(self, encoder: SegmentEncoder, latent_scaler: Standardiser) -> None:
        super().__init__(encoder, latent_scaler, None, 1.0)
        self.dim = encoder.latent_dim + 1
        self.start = np.append(np.zeros(encoder.latent_dim, dtype=np.float32), UNKNOWN)


class RefinedContext(LatentContext):
    """The posterior mean of all steps so far, from the prior on; fixed after `refine_steps`.

    With a probe, the probe takes the first T steps (those of the encoder); without one, control
    acts from the first step. Novelty is measured once, after T steps.
    """

    kind = "refined"
    tracker = _Refining
    stored = (
        Value("probe_steps"),
        Part("probe", probe_from_arrays, optional=True),
        Value("refine_steps", partial(count, most=LONGEST_REFINED)),
        *LatentContext.stored,
    )
    encoder: TransitionEncoder

    def __init__(
        self,
        probe: Probe | None,
        encoder: TransitionEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
        uncertainty_scale: float = 1.0,
        refine_steps: int = 64,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty, uncertainty_scale)
        if encoder.kind != TransitionEncoder.kind:
            raise AgentError(f"A refined latent needs a transition encoder, found {encoder.kind}.")
        if refine_steps < encoder.steps:
            raise AgentError(
                f"The latent must be refined for at least the {encoder.steps} steps of a segment, "
                f"found {refine_steps}."
            )
        self.probe, self.refine_steps = probe, refine_steps
        self.start = latent_scaler(np.zeros(self.dim, dtype=np.float32))
        self.probe_steps = 0 if probe is None else encoder.steps

    def without_probe(self) -> RefinedContext:
        """The same, but control acts from the first step."""
        parts = self.encoder, self.latent_scaler, self.novelty, self.uncertainty_scale
        return type(self)(None, *parts, self.refine_steps)


class RewardedContext(RefinedContext):
    """A refined context whose encoder also reads the reward, as one more column.

    The column is 0 before a step and the reward of the step after it.
    """

    kind = "rewarded"
    tracker = _Rewarded
    needs = frozenset({"reward"})

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless probe and encoder fit these spaces and a reward."""
        super().check(observation_dim + 1, action_width)

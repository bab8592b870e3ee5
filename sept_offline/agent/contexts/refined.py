"""A latent that is refined with every step as context."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...actions import Policy
from ...errors import AgentError
from ...limits import LONGEST_REFINED
from ..encoders import TransitionEncoder, posterior
from ..fields import count
from ..networks import Array, Standardiser
from ..novelty import Novelty
from ..probes import Probe, probe_from_arrays
from ..records import Part, Value
from .base import Tracker, check_sizes
from .encoded import EncodedContext

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class RefinedContext(EncodedContext):
    """The posterior mean of all steps so far, from the prior on; fixed after `refine_steps`.

    With a probe, the probe takes the first T steps (those of the encoder); without one, control
    acts from the first step. Novelty is measured once, after T steps.
    """

    kind = "refined"
    stored = (
        Value("probe_steps"),
        Part("probe", probe_from_arrays, optional=True),
        Value("refine_steps", partial(count, most=LONGEST_REFINED)),
        *EncodedContext.stored,
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
        self.probe_steps = 0 if probe is None else encoder.steps

    def without_probe(self) -> RefinedContext:
        """The same, but control acts from the first step."""
        parts = self.encoder, self.latent_scaler, self.novelty, self.uncertainty_scale
        return type(self)(None, *parts, self.refine_steps)

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that starts from the prior."""
        return Refining(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless probe, encoder and decoder fit these spaces."""
        super().check(observation_dim, action_width)
        if self.probe is not None:
            sizes = (observation_dim, self.probe.action_width)
            check_sizes("probe", sizes, (observation_dim, action_width))


class Refining(Tracker):
    """Adds up the evidence of every step; the probe acts first, if there is one."""

    def __init__(self, context: RefinedContext) -> None:
        size = context.dim
        prior = context.latent_scaler(np.zeros(size, dtype=np.float32))
        super().__init__(prior, settled=False)
        self._context, self._time = context, 0
        self._weighted = np.zeros(size, dtype=np.float32)
        self._precision = np.zeros(size, dtype=np.float32)
        encoder = context.encoder
        self._observations = np.empty((1, encoder.steps + 1, encoder.observation_dim), np.float32)
        self._taken = np.empty((1, encoder.steps, encoder.action_width), dtype=np.float32)
        self._before: Array = np.zeros(encoder.observation_dim, dtype=np.float32)
        self._last: Array = self._taken[0, 0]

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The probe while it lasts; control acts otherwise."""
        context = self._context
        if self._time:
            self._add(observation)
        if self._time <= context.encoder.steps:
            self._observations[0, self._time] = observation
            if self._time == context.encoder.steps:
                self._measure_novelty()
        self._before[:] = observation
        self.settled = self._time >= context.refine_steps
        if context.probe is None or self._time >= context.probe_steps:
            return None
        return context.probe.policy(observation, self._time)

    def took(self, taken: Array) -> None:
        """One more step, whoever chose it."""
        if self._time < self._context.encoder.steps:
            self._taken[0, self._time] = taken
        self._last = taken
        self._time += 1

    def _add(self, observation: Array) -> None:
        """Add the evidence of the step that ends in `observation[d]`."""
        context = self._context
        found = context.encoder.evidence_of_one(self._before, self._last, observation)
        self._weighted += found[0]
        self._precision += found[1]
        self.latent, log_var = posterior(self._weighted, self._precision)
        self.uncertainty = context.uncertainty_scale * float(np.exp(0.5 * log_var).mean())
        self.vector = context.latent_scaler(self.latent)

    def _measure_novelty(self) -> None:
        context = self._context
        if context.novelty is None:
            return
        mean, log_var = posterior(self._weighted[None], self._precision[None])
        share = context.novelty.quantile(self._observations, self._taken, mean, log_var)
        self.novelty = float(share[0])
        self.flagged = self.novelty < context.novelty.flagged_below

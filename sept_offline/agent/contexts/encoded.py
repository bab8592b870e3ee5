"""Base of contexts that encode the first steps of an episode."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...errors import AgentError
from ..encoders import SegmentEncoder, encoder_from_arrays
from ..fields import positive
from ..networks import Array, Standardiser
from ..novelty import Novelty
from ..records import Part, Stored, Value, Weights
from .base import Context, Tracker, check_sizes


class EncodedContext(Context):
    """The latent of the episode's first steps, encoded once; subclasses choose who acts."""

    stored: ClassVar[tuple[Stored, ...]] = (
        Value("dim", key="latent_dim"),
        Part("encoder", encoder_from_arrays),
        Weights("latent_scaler", Standardiser.from_arrays, key="latent"),
        Part("novelty", Novelty.from_arrays, optional=True),
        Value("uncertainty_scale", positive),
    )
    # agents of earlier versions report the posterior's own uncertainty
    earlier: ClassVar = {"uncertainty_scale": 1.0}

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

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless encoder and decoder fit these spaces and share a latent size."""
        encoder, expected = self.encoder, (observation_dim, action_width)
        check_sizes("encoder", (encoder.observation_dim, encoder.action_width), expected)
        if self.novelty is not None:
            decoder = self.novelty.decoder
            check_sizes("decoder", (decoder.observation_dim, decoder.action_width), expected)
            if decoder.latent_dim != self.dim:
                raise AgentError(
                    f"The decoder's latent has {decoder.latent_dim} columns, "
                    f"the encoder's {self.dim}."
                )


class Encoding(Tracker):
    """Collects T steps and encodes them once their last state is known."""

    def __init__(self, context: EncodedContext, vector: Array) -> None:
        super().__init__(vector, settled=False)
        self._encoded = context
        self._time = 0
        steps, dim = context.encoder.steps, context.encoder.observation_dim
        self._observations = np.empty((1, steps + 1, dim), dtype=np.float32)
        self._taken = np.empty((1, steps, context.encoder.action_width), dtype=np.float32)

    def took(self, taken: Array) -> None:
        """One more step, whoever chose it."""
        self._taken[0, self._time] = taken
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
        mean, log_var = context.encoder.encode(self._observations, self._taken)
        self.latent = mean[0]
        self.uncertainty = context.uncertainty_scale * float(np.exp(0.5 * log_var[0]).mean())
        self.vector = context.latent_scaler(mean[0])
        if context.novelty is not None:
            share = context.novelty.quantile(self._observations, self._taken, mean, log_var)
            self.novelty = float(share[0])
            self.flagged = self.novelty < context.novelty.flagged_below
        self.settled = True

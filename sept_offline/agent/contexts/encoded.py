"""Base of contexts that encode the first steps of an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..encoders import SegmentEncoder, encoder_from_arrays
from ..fields import field
from ..networks import Array, Arrays, Standardiser
from ..novelty import Novelty
from .base import Tracker, check_sizes


class EncodedContext:
    """The latent of the episode's first steps, encoded once; subclasses choose who acts."""

    needs: frozenset[str] = frozenset()
    learns = False

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
            "uncertainty_scale": self.uncertainty_scale,
        }


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


def encoded_parts(
    arrays: Arrays, description: Any, prefix: str
) -> tuple[SegmentEncoder, Standardiser, Novelty | None, float]:
    """Encoder, scaler of the latent, novelty and scale of the uncertainty of an `EncodedContext`.

    Agents of earlier versions have no scale: their uncertainty is the posterior's own.
    """
    encoder = field(description, "encoder", dict)
    novelty = description.get("novelty") if isinstance(description, Mapping) else None
    scale = field({"uncertainty_scale": 1.0} | description, "uncertainty_scale", float)
    if not 0 < scale < math.inf:
        raise AgentError(f"The agent's uncertainty_scale is {scale}; the agent is damaged.")
    return (
        encoder_from_arrays(arrays, encoder, f"{prefix}.encoder"),
        Standardiser.from_arrays(arrays, f"{prefix}.latent"),
        None if novelty is None else Novelty.from_arrays(arrays, novelty, f"{prefix}.novelty"),
        scale,
    )

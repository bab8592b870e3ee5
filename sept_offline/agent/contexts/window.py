"""The latent of the last steps and its uncertainty as context: DynaSEPT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..encoders import SegmentEncoder, encoder_from_arrays
from ..networks import Array, Standardiser
from ..records import Part, Weights
from .base import Context, Tracker, check_sizes

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control

UNKNOWN = np.float32(1)
"""η before the first window, and the prior's standard deviation, at which the maximum starts."""


def doubt(deviation: NDArray[Any], largest: NDArray[Any]) -> NDArray[Any]:
    """η `[...]`: the mean over columns of `deviation[..., k]` / `largest[..., k]`."""
    ratio: NDArray[Any] = (deviation / largest).mean(axis=-1)
    return ratio


class WindowContext(Context):
    """[z, η]: the latent of the last T steps and its uncertainty: `dynasept`.

    z is standardised, and 0 until T steps have been seen. η is 1 until then, and afterwards the
    posterior's standard deviation over the largest of the episode, mean over columns.
    """

    kind = "window"
    stored = (
        Part("encoder", encoder_from_arrays),
        Weights("latent_scaler", Standardiser.from_arrays, key="latent"),
    )

    def __init__(self, encoder: SegmentEncoder, latent_scaler: Standardiser) -> None:
        if latent_scaler.dim != encoder.latent_dim:
            raise AgentError(
                f"The latent has {encoder.latent_dim} columns, but its scaler {latent_scaler.dim}."
            )
        self.encoder, self.latent_scaler = encoder, latent_scaler
        self.dim = encoder.latent_dim + 1

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker with an empty window."""
        return _Sliding(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the encoder fits these spaces."""
        sizes = (self.encoder.observation_dim, self.encoder.action_width)
        check_sizes("encoder", sizes, (observation_dim, action_width))


class _Sliding(Tracker):
    """Keeps the last T steps and encodes them at every one; control always acts."""

    def __init__(self, context: WindowContext) -> None:
        vector = np.zeros(context.dim, dtype=np.float32)
        vector[-1] = UNKNOWN
        super().__init__(vector, settled=False)
        self._context, self._time = context, 0
        encoder = context.encoder
        self._observations = np.zeros((1, encoder.steps + 1, encoder.observation_dim), np.float32)
        self._taken = np.zeros((1, encoder.steps, encoder.action_width), dtype=np.float32)
        self._largest = np.full(encoder.latent_dim, UNKNOWN)

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control acts, with the latent of the window that ends in `observation[d]`."""
        self._observations[0, :-1] = self._observations[0, 1:].copy()
        self._observations[0, -1] = observation
        if self._time >= self._context.encoder.steps:
            self._infer()
        return None

    def took(self, taken: Array) -> None:
        """Add the newest step to the window."""
        self._taken[0, :-1] = self._taken[0, 1:].copy()
        self._taken[0, -1] = taken
        self._time += 1

    def _infer(self) -> None:
        mean, log_var = self._context.encoder.encode(self._observations, self._taken)
        deviation = np.exp(np.float32(0.5) * log_var[0])
        self._largest = np.maximum(self._largest, deviation)
        self.latent, self.uncertainty = mean[0], float(deviation.mean())
        eta = doubt(deviation, self._largest)
        self.vector = np.append(self._context.latent_scaler(mean[0]), np.float32(eta))

"""The interface of segment encoders, and what several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import AgentError
from ..fields import action_count, count
from ..networks import Array, Standardiser
from ..records import Record, Value, Weights

SCALERS = (
    Weights("observation_scaler", Standardiser.from_arrays, key="observation"),
    Weights("delta_scaler", Standardiser.from_arrays, key="delta"),
)
SIZES = (Value("action_width", action_count, key="num_actions"), Value("steps", count))
"""What several encoders store."""


class SegmentEncoder(Record, ABC):
    """q(z | segment), a diagonal Gaussian."""

    steps: int
    """T, the number of steps a segment has."""
    latent_dim: int
    observation_dim: int
    action_width: int
    """w, the columns of an encoded action."""

    @abstractmethod
    def encode(self, observations: NDArray[Any], taken: NDArray[Any]) -> tuple[Array, Array]:
        """Mean and log-variance, `[n, k]` each, of `observations[n, T+1, d]`, `taken[n, T, w]`."""


def step_features(
    observations: NDArray[Any],
    taken: NDArray[Any],
    observation_scaler: Standardiser,
    delta_scaler: Standardiser,
) -> Array:
    """Each step as (s, a, Δs, a⊗Δs), `[n, T, 2d + w + w·d]`.

    s and Δs = s′ − s are standardised, a is the encoded action `taken[n, T, w]`, and a⊗Δs holds
    column i of the action times the change of column j at position i·d + j.
    """
    raw = np.asarray(observations, dtype=np.float32)
    state = observation_scaler(raw[:, :-1])
    delta = delta_scaler(raw[:, 1:] - raw[:, :-1])
    crossed = (taken[..., :, None] * delta[..., None, :]).reshape(*delta.shape[:2], -1)
    return np.concatenate([state, taken, delta, crossed], axis=2)


def check_segments(
    encoder: SegmentEncoder, observations: NDArray[Any], taken: NDArray[Any]
) -> None:
    """Raise unless segments have the shapes that `encoder` reads."""
    steps, dim, width = encoder.steps, encoder.observation_dim, encoder.action_width
    count = len(taken)
    if observations.shape != (count, steps + 1, dim) or taken.shape != (count, steps, width):
        raise AgentError(
            f"The encoder reads observations [n, {steps + 1}, {dim}] and encoded actions "
            f"[n, {steps}, {width}], found {list(observations.shape)} and {list(taken.shape)}."
        )


def halves(output: Array, log_var_range: tuple[float, float]) -> tuple[Array, Array]:
    """Mean and log-variance from a network's output `[n, 2k]`."""
    size = output.shape[1] // 2
    return output[:, :size].copy(), np.clip(output[:, size:], *log_var_range).astype(np.float32)

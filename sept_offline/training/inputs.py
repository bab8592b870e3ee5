"""Inputs of training stages: segments, steps, and their scaling."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser
from sept_offline.errors import DataError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


class SegmentsLike(Protocol):
    """The first n steps of episodes, as `Dataset.segments(n)` gives them."""

    @property
    def observations(self) -> Floats:
        """[N, n+1, d]."""
        ...

    @property
    def actions(self) -> NDArray[Any]:
        """[N, n], or [N, n, k] of a box."""
        ...

    @property
    def propensities(self) -> Doubles | None:
        """[N, n, A], or [N, n] log-densities of a box; None if the logs contain none."""
        ...

    @property
    def instance(self) -> Integers:
        """[N]."""
        ...


class StepsLike(Protocol):
    """All steps of a dataset in columns, as `Dataset.steps()` gives them."""

    @property
    def observations(self) -> Floats:
        """[N+E, d]."""
        ...

    @property
    def actions(self) -> NDArray[Any]:
        """[N], or [N, k] of a box."""
        ...

    @property
    def row(self) -> Integers:
        """[N], the row of a step's own observation; its next one is the row after."""
        ...

    @property
    def instance(self) -> Integers:
        """[N]."""
        ...


class TimedStepsLike(StepsLike, Protocol):
    """The same, with the place of each step in its episode."""

    @property
    def time(self) -> Integers:
        """[N], 0 at an episode's first step; the steps of an episode are consecutive."""
        ...


def standardised(scaler: Standardiser, values: Floats) -> Tensor:
    """`values[..., k]` as a network reads them in training: divided, as its own buffers divide."""
    return torch.from_numpy(((values - scaler.mean) / scaler.scale).astype(np.float32))


def check_segments(segments: SegmentsLike, space: ActionSpace, num_instances: int) -> None:
    """Refuse segments that cannot teach anything, in one sentence."""
    count, length = segments.actions.shape[:2]
    if count == 0:
        raise DataError(
            "There are no segments: every episode is shorter than the probe; lower probe_steps."
        )
    if length < 1:
        raise DataError("The segments have no steps; expected probe_steps of at least 1.")
    present = np.unique(segments.instance)
    if len(present) < 2:
        raise DataError(
            f"The segments come from {len(present)} instance(s) of {num_instances}; expected at "
            "least 2, because the latent describes differences between instances."
        )
    if space.outside(segments.actions).any():
        raise DataError(
            f"The segments contain an action outside {space.expected}; "
            "check the dataset's action space."
        )

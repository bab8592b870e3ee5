"""Inputs of training stages: checks, scaling, and draws that balance instances."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Segments
from sept_offline.elementary import Doubles as Doubles
from sept_offline.errors import DataError

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


def standardised(scaler: Standardiser, values: Floats) -> Tensor:
    """`values[..., k]` as a network reads them in training: divided, as its own buffers divide."""
    return torch.from_numpy(((values - scaler.mean) / scaler.scale).astype(np.float32))


def changes(before: Floats, after: Floats) -> Floats:
    """The changes of observed columns, `[n, k]`; 0 in a column that only rounding noise changes.

    The noise is small relative to the column, but not relative to changes that consist of it.
    """
    change: Floats = after - before
    change[:, ~(varying(before) | varying(after))] = 0.0
    return change


def check_segments(segments: Segments, space: ActionSpace, num_instances: int) -> None:
    """Raise if nothing can be learned from the segments."""
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


class Balanced:
    """Draws rows so that every instance has the same chance, however many rows it has.

    With weights[N], the rows of an instance are drawn in proportion to theirs.
    """

    def __init__(self, instance: Integers, weights: Doubles | None = None) -> None:
        self.order = torch.from_numpy(np.argsort(instance, kind="stable"))
        present, counts = np.unique(instance, return_counts=True)
        self.present = torch.from_numpy(present)
        self.counts = torch.from_numpy(counts)
        self.offsets = torch.from_numpy(np.cumsum(counts) - counts)
        self.place = torch.zeros(int(present.max()) + 1, dtype=torch.int64)
        self.place[self.present] = torch.arange(len(present))
        self.cumulative: Tensor | None = None
        if weights is not None:
            ordered = np.asarray(weights, dtype=np.float64)[self.order.numpy()]
            shares = np.empty_like(ordered)
            for index, (start, count) in enumerate(zip(self.offsets, counts, strict=True)):
                part = ordered[int(start) : int(start) + count]
                # Share i lies in (i, i + 1], so that one search serves all instances.
                shares[int(start) : int(start) + count] = index + np.cumsum(part) / part.sum()
            self.cumulative = torch.from_numpy(shares)

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """`count` rows, [count]."""
        chosen = torch.randint(len(self.present), (count,), generator=rng)
        return self._within(chosen, rng)

    def draw_like(self, instance: Tensor, rng: torch.Generator) -> Tensor:
        """One row of each of the given instances, [n]."""
        return self._within(self.place[instance], rng)

    def _within(self, chosen: Tensor, rng: torch.Generator) -> Tensor:
        position = torch.rand(len(chosen), generator=rng, dtype=torch.float64)
        first, counts = self.offsets[chosen], self.counts[chosen]
        if self.cumulative is None:
            rank = first + (position * counts).long()
        else:
            rank = torch.searchsorted(self.cumulative, chosen + position)
        return self.order[torch.minimum(rank, first + counts - 1)]

"""Observed columns that identify the instance: constant within each, different between them."""

from __future__ import annotations

import numpy as np

from sept_offline.data.dataset import Dataset
from sept_offline.data.records import Float32, Int64, Segments

BLOCK = 1 << 18
"""Steps that are read at once."""


def instance_columns(data: Dataset, segments: Segments) -> list[int]:
    """The columns that are constant in every instance and not the same in all of them.

    The segments rule out most columns, so that the rest of the file is seldom read.
    """
    starts = _Values(len(data.instances), data.observation_dim)
    # An episode that is shorter than a segment shows its columns only in the second pass.
    starts.add(
        segments.observations.reshape(-1, data.observation_dim),
        np.repeat(segments.instance, segments.observations.shape[1]),
    )
    if not starts.constant().any() or (not segments.skipped and not starts.found().any()):
        return []
    values = _Values(len(data.instances), data.observation_dim)
    length = data.episode_index.length
    block = (np.cumsum(length) - length) // BLOCK
    for number in np.unique(block):
        view = data.select(block == number)
        rows = np.repeat(view.episode_index.instance, view.episode_index.length + 1)
        values.add(view.steps().observations, rows)
        if not values.constant().any():
            return []
    return [int(column) for column in np.flatnonzero(values.found())]


class _Values:
    """The least and the greatest value of each column in each instance, [I, d]."""

    def __init__(self, instances: int, columns: int) -> None:
        self.least = np.full((instances, columns), np.inf, dtype=np.float32)
        self.greatest = np.full((instances, columns), -np.inf, dtype=np.float32)

    def add(self, observations: Float32, instance: Int64) -> None:
        """Take in observations [N, d] of the instances [N]."""
        np.minimum.at(self.least, instance, observations)
        np.maximum.at(self.greatest, instance, observations)

    def constant(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """[d], whether no instance seen so far shows two values; unseen ones show none."""
        return np.asarray((self.least >= self.greatest).all(axis=0))

    def found(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """[d], whether the column is constant and two instances differ in it."""
        seen = np.isfinite(self.least).all(axis=1)
        if not seen.any():
            return np.zeros(self.least.shape[1], dtype=np.bool_)
        values = self.least[seen]
        return np.asarray(self.constant() & (values != values[0]).any(axis=0))

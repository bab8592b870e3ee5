"""Columns whose observations are stacked with the last steps of their episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.filesystems import Place
from sept_offline.data.records import EpisodeIndex, Problem
from sept_offline.data.source import Header, Source
from sept_offline.stacking import Stack


class StackedSource:
    """The columns of `source`, with stacked observations; see `Stack`. Nothing is read ahead."""

    def __init__(self, source: Source, length: int) -> None:
        header = source.header
        self._source = source
        self.stack = Stack(length, header.observation_dim, header.action_space.width)

    @property
    def path(self) -> Place:
        """See Source."""
        return self._source.path

    @cached_property
    def header(self) -> Header:
        """See Source: the file's, with the stacked columns."""
        header = self._source.header
        metadata = header.metadata
        names = self.stack.names(metadata.observation_names, metadata.action_names)
        return replace(
            header,
            observation_dim=self.stack.width,
            metadata=replace(metadata, observation_names=names),
        )

    @property
    def index(self) -> EpisodeIndex:
        """See Source."""
        return self._source.index

    @property
    def columns(self) -> Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """See Source."""
        columns = dict(self._source.columns)
        kind, shape = columns["observations"]
        return columns | {"observations": (kind, (shape[0], self.stack.width))}

    @property
    def defects(self) -> Sequence[Problem]:
        """See Source."""
        return self._source.defects

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """See Source."""
        if name != "observations":
            return self._source.take(name, rows)
        stack, index = self.stack, self.index
        starts = index.offset + index.number
        episode = np.searchsorted(starts, rows, side="right") - 1
        first, time = starts[episode], rows - starts[episode]
        lag = np.arange(stack.length)
        seen = self._scattered("observations", np.maximum(rows[:, None] - lag, first[:, None]))
        stacked = stack.empty(len(rows))
        stacked[:, : stack.observed] = seen.reshape(len(rows), -1)
        # The action that led to an observation belongs to the step before it.
        there, place = np.nonzero(time[:, None] >= lag[1:])
        steps = index.offset[episode[there]] + time[there] - lag[1:][place]
        chosen = stacked[:, stack.observed :].reshape(len(rows), stack.length - 1, stack.actions)
        chosen[there, place] = self.header.action_space.encode(self._scattered("actions", steps))
        stacked[:, stack.observed :] = chosen.reshape(len(rows), -1)
        return stacked

    def _scattered(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """`rows[...]` of a column in any order, each of them as often as it is asked for."""
        ordered, back = np.unique(rows, return_inverse=True)
        values = self._source.take(name, ordered)
        found: NDArray[Any] = values[back.reshape(rows.shape)]
        return found

    @property
    def kept(self) -> bool:
        """See Source: the plain columns are; they are stacked when they are taken."""
        return self._source.kept

    def in_memory(self) -> StackedSource:
        """See Source."""
        return StackedSource(self._source.in_memory(), self.stack.length)

    def close(self) -> None:
        """See Source."""
        self._source.close()

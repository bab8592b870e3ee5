"""The records of a dataset; their docstrings state the shape of every field.

The T+1 alignment, drawn once. An episode of T steps has T+1 observations; observations of all
episodes lie end to end, so do steps, and episode k owns one observation row more than step rows:

    step t of an episode         0         1               T-1
    observations rows      o0 ──────▶ o1 ──────▶ o2  …  ──────▶ oT      T+1 rows
    actions, rewards          a0,r0      a1,r1        a(T-1),r(T-1)     T rows
    propensities              p0         p1           p(T-1)            T rows
    terminations,             F          F            one of the two    T rows
    truncations                                       is true here

    step row of (k, t)         offset[k] + t
    its observation's row      offset[k] + k + t        (k episodes before it, one extra row each)
    its next observation's     offset[k] + k + t + 1    (always within the same episode)
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import DataError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
Actions = NDArray[Any]
"""Of the action space's type: int64 numbers, or float32 vectors of a box."""

FORMAT_VERSIONS: Mapping[str, int] = {"finite": 1, "box": 2}
"""The version that a dataset is written in, by the kind of its action space."""
INDEX_FIELDS = ("number", "offset", "length", "instance", "behaviour", "seed")
"""The fields of an `EpisodeIndex`, in the order in which files store them."""


@dataclass(frozen=True)
class Episode:
    """One logged episode of T steps."""

    instance: str
    """The id of the instance it was logged in."""
    observations: Float32
    """[T+1, d]"""
    actions: Actions
    """[T] numbers, or [T, k] vectors of a box"""
    rewards: Float64
    """[T]"""
    propensities: Float64 | None
    """[T, A], the behaviour's probability of every action; NaN where unknown: in a whole row or in
    all of it but the logged action. For a box [T], the log-density of the logged action; NaN where
    unknown. None if all are"""
    terminated: bool
    """Whether the task ended at the last step; no other step ends an episode."""
    truncated: bool
    """Whether the recording stopped at the last step; never together with `terminated`."""
    behaviour: str
    """The name of the policy that acted."""
    seed: int
    """Seed of the episode, as passed to the writer."""
    index: int
    """The episode's number in the file, from 0."""

    @property
    def log_densities(self) -> Float64 | None:
        """[T], the behaviour's log-density of each action of a box; None for discrete actions."""
        return self.propensities if self.actions.ndim == 2 else None


@dataclass(frozen=True)
class Segments:
    """The first n steps of every episode that has them, with the state they end in."""

    observations: Float32
    """[N, n+1, d]"""
    actions: Actions
    """[N, n], or [N, n, k] of a box"""
    rewards: Float64
    """[N, n]"""
    propensities: Float64 | None
    """[N, n, A], or [N, n] log-densities of a box; None where nothing is known"""
    instance: Int64
    """[N], indices into `Dataset.instances`"""
    episode: Int64
    """[N], the episodes' numbers in the file"""
    skipped: int
    """How many episodes were shorter than n steps."""

    def select(self, rows: Bool) -> Segments:
        """The segments in `rows[N]`."""
        chosen: dict[str, Any] = {
            name: None if values is None else values[rows]
            for name, values in vars(self).items()
            if name != "skipped"
        }
        return Segments(**chosen, skipped=0)


@dataclass(frozen=True)
class Steps:
    """All steps of E episodes in columns; N steps, N+E observations."""

    observations: Float32
    """[N+E, d]"""
    actions: Actions
    """[N], or [N, k] of a box"""
    rewards: Float64
    """[N]"""
    propensities: Float64 | None
    """[N, A], or [N] log-densities of a box; None where nothing is known"""
    terminations: Bool
    """[N]"""
    truncations: Bool
    """[N]"""
    row: Int64
    """[N], the row of the step's own observation in `observations`; its next one is row + 1"""
    episode: Int64
    """[N], the episode's number in the file"""
    instance: Int64
    """[N], indices into `Dataset.instances`"""
    time: Int64
    """[N], 0 at an episode's first step"""


@dataclass(frozen=True)
class EpisodeIndex:
    """The position and origin of each of E episodes."""

    number: Int64
    """[E], the episode's number in the file"""
    offset: Int64
    """[E], the file's step row of its first step"""
    length: Int64
    """[E], its steps, T"""
    instance: Int64
    """[E], indices into `Dataset.instances`"""
    behaviour: Int64
    """[E], indices into `Metadata.behaviours`"""
    seed: Int64
    """[E]"""

    @classmethod
    def end_to_end(
        cls,
        length: Int64,
        instance: Int64,
        behaviour: Int64,
        seed: Int64,
        number: Int64 | None = None,
    ) -> EpisodeIndex:
        """Episodes that follow each other from row 0 on, numbered 0, 1, 2, … or as given."""
        numbers = np.arange(len(length), dtype=np.int64) if number is None else number
        return cls(numbers, np.cumsum(length) - length, length, instance, behaviour, seed)

    @property
    def first_row(self) -> Int64:
        """[E], the row of each episode's first observation."""
        return self.offset + self.number

    def __len__(self) -> int:
        return len(self.number)

    def take(self, keep: Int64) -> EpisodeIndex:
        """The index of the episodes at the positions `keep`, in that order."""
        return EpisodeIndex(*(getattr(self, f.name)[keep] for f in fields(self)))


@dataclass(frozen=True)
class HiddenTable:
    """The hidden parameters of each instance: privileged, for the Oracle and for analysis."""

    names: tuple[str, ...]
    """[h]"""
    values: Float64
    """[I, h], rows in the order of `Dataset.instances`; NaN where a parameter is unknown"""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> dict[str, float]:
        """The parameters of one instance by name."""
        return dict(zip(self.names, self.values[row].tolist(), strict=True))


@dataclass(frozen=True)
class Metadata:
    """The metadata of a dataset; every value is JSON-serialisable."""

    family: str | None = None
    family_arguments: Mapping[str, Any] = field(default_factory=dict)
    observation_names: tuple[str, ...] | None = None
    """[d]"""
    action_names: tuple[str, ...] | None = None
    """[A], or [k] of a box"""
    behaviours: tuple[str, ...] = ()
    root_seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that wrote it; the content hash does not depend on them."""
    probe_steps: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSIONS["finite"]
    plan: str | None = None
    """Digest of the arguments of `collect`; the content hash does not depend on it."""


@dataclass(frozen=True)
class Problem:
    """One kind of defect, counted."""

    kind: str
    where: str
    """The field, and the first place: instance, episode and step where they are known."""
    count: int
    message: str


def whole(value: Any, name: str) -> int:
    """A whole number of any kind as an int."""
    try:
        return int(operator.index(value))
    except TypeError as error:
        raise DataError(f"{name}: expected a whole number, found {value!r:.60}.") from error

"""Episodes held out from a fit, with a record of them, and those the latent is not fitted to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box
from sept_offline.data import Dataset
from sept_offline.errors import ConfigError, DataError
from sept_offline.seeding import generator

FEW_INSTANCES = 10
"""Minimum number of instances to hold out whole ones; below, episodes of each are held out."""


def choose_hold_out(
    data: Dataset, share: float, seed: int
) -> tuple[NDArray[np.bool_], dict[str, Any]]:
    """Which episodes `[E]` a fit must not see, and the record of it, JSON-ready.

    Whole instances if there are at least ten; otherwise a share of each instance's episodes.
    """
    if not 0 < share < 1:
        raise ConfigError(f"hold_out is {share}; expected above 0 and below 1.")
    index = data.episode_index
    present = np.unique(index.instance)
    rng = generator(seed, "hold out")
    held = np.zeros(len(index), dtype=bool)
    if len(present) >= FEW_INSTANCES:
        count = max(1, round(share * len(present)))
        if len(present) - count < 2:
            raise ConfigError(
                f"hold_out {share} of {len(present)} instances leaves {len(present) - count}; at "
                "least 2 are needed to learn what differs between them."
            )
        chosen = np.sort(rng.permutation(present)[:count])
        held = np.isin(index.instance, chosen)
        names = [data.instances[code] for code in chosen]
        record: dict[str, Any] = {"by": "instances", "instances": names}
    else:
        for code in present:
            rows = rng.permutation(np.flatnonzero(index.instance == code))
            if len(rows) < 2:
                raise DataError(
                    f"{data.path}: instance {data.instances[code]!r} has only one episode, so "
                    "none can be held out; log more, or omit --hold-out."
                )
            held[rows[: min(max(1, round(share * len(rows))), len(rows) - 1)]] = True
        record = {"by": "episodes"}
    numbers = np.sort(index.number[held])
    return held, record | {"share": share, "seed": seed, "episodes": to_ranges(numbers)}


def unfitted_episodes(data: Dataset, share: float, seed: int) -> NDArray[np.bool_]:
    """Episodes the latent is not fitted to: a share of each instance's, none of a single one."""
    rng = generator(seed, "held out")
    instance = data.episode_index.instance
    unfitted = np.zeros(len(instance), dtype=bool)
    for code in np.unique(instance):
        rows = rng.permutation(np.flatnonzero(instance == code))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        unfitted[rows[:count]] = True
    return unfitted


def fitted_on(data: Dataset) -> dict[str, Any]:
    """The record of an agent's training data: the content hash and the episodes."""
    numbers = np.sort(data.episode_index.number)
    return {"content_hash": data.content_hash, "episodes": to_ranges(numbers)}


def episode_digests(data: Dataset) -> NDArray[np.uint64]:
    """`[E]`: 64 bits of each episode's observations and actions, independent of the file."""
    steps = data.steps()
    starts = np.flatnonzero(steps.time == 0)
    ends = np.append(starts[1:], len(steps.time))
    observations = np.ascontiguousarray(steps.observations, dtype="<f4")
    kind = "<f4" if isinstance(data.action_space, Box) else "<i8"
    actions = np.ascontiguousarray(steps.actions, dtype=kind)
    digests = np.empty(len(starts), dtype=np.uint64)
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        first, last = steps.row[start], steps.row[end - 1] + 1
        digest = hashlib.blake2b(observations[first : last + 1].tobytes(), digest_size=8)
        digest.update(actions[start:end].tobytes())
        digests[number] = int.from_bytes(digest.digest(), "little")
    return digests


def to_ranges(numbers: NDArray[np.int64]) -> list[list[int]]:
    """Rising `numbers[n]` as [first, end) pairs: [0, 1, 2, 5] is [[0, 3], [5, 6]]."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [[int(run[0]), int(run[-1]) + 1] for run in np.split(numbers, breaks)]


def in_ranges(numbers: NDArray[np.int64], ranges: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Which of `numbers[n]` lie in one of the [first, end) pairs."""
    if not ranges:
        return np.zeros(len(numbers), dtype=bool)
    edges = np.array(ranges, dtype=np.int64)
    place = np.searchsorted(edges[:, 0], numbers, side="right") - 1
    inside: NDArray[np.bool_] = (place >= 0) & (numbers < edges[:, 1][np.maximum(place, 0)])
    return inside

"""Whole episodes out of rows in any order, in memory bounded by the longest episode.

Where the rows of an episode lie together, as in most logs, batches pass through and only the last
episode of each waits for the next. Where one comes back, its rows are spread over more than memory
may hold: they are dealt into buckets on disk by episode, and each bucket is read alone. A single
episode must fit in memory, two to three times over while it is put in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.importing.rows import Rows, joined, unpack
from sept_offline.data.records import Int64

GATHERED_ROWS = 1 << 16
BUCKET_BYTES = 1 << 25
MOST_BUCKETS = 200
"""Files open at once; a table of more than 200 buckets has larger ones."""


class Scattered(Exception):
    """The rows of an episode do not lie together."""


def gathered(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Small batches together: every one costs as much again as some thousand rows."""
    waiting: list[Rows] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= GATHERED_ROWS:
            yield joined(waiting)
    if waiting:
        yield joined(waiting)


def grouped(batches: Iterable[Rows]) -> Iterator[Rows]:
    """Batches of whole episodes, or Scattered once an episode comes back."""
    waiting: list[Rows] = []
    highest = -1
    for batch in batches:
        starts = np.flatnonzero(np.diff(batch.episode, prepend=-1) != 0)
        runs = batch.episode[starts]
        # Numbers are given in the order of first appearance, so a new episode has a higher one.
        fresh = int(runs[0]) != highest
        if (np.diff(runs) <= 0).any() or (fresh and runs[0] < highest):
            raise Scattered
        if fresh and waiting:
            yield joined(waiting)
        highest = int(runs[-1])
        if len(runs) > 1:
            waiting.append(batch.take(slice(0, starts[-1])))
            yield joined(waiting)
        waiting.append(batch.take(slice(starts[-1], None)))
    if waiting:
        yield joined(waiting)


def bucketed(
    batches: Iterable[Rows], folder: Path, size: float, counts: Counter[str]
) -> Iterator[Rows]:
    """The same from rows in any order; `size`: about how many bytes all of them take."""
    count = int(np.clip(np.ceil(size / BUCKET_BYTES), 1, MOST_BUCKETS))
    paths = [folder / f"bucket-{number}" for number in range(count)]
    kind = None
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb", buffering=1 << 18)) for path in paths]
        for batch in batches:
            bucket = (batch.episode % count).astype(np.uint8)
            order = np.argsort(bucket, kind="stable")
            records = batch.take(order).packed()
            kind = records.dtype
            edges = np.searchsorted(bucket[order], np.arange(count + 1))
            for number, file in enumerate(files):
                file.write(records[edges[number] : edges[number + 1]].tobytes())
    for path in paths:
        records = np.fromfile(path, dtype=kind or np.uint8)
        path.unlink()
        if len(records):
            # Whole records are sorted, each once, before they are taken apart into columns.
            by_time, back = order_of(records["episode"], records["time"])
            counts["unordered rows"] += back
            yield unpack(records if by_time is None else records[by_time])


def order_of(episode: Int64, time: NDArray[Any]) -> tuple[Int64 | None, int]:
    """How to sort rows by episode and time, None if they are, and how often one goes back.

    Rows of one time stay in the order they came in.
    """
    step = np.diff(episode)
    forward = np.diff(time) > 0
    if ((step > 0) | ((step == 0) & forward)).all():
        return None, 0
    back = (step < 0) | ((step == 0) & (np.diff(time) < 0))
    return np.lexsort((time, episode)), int(back.sum())

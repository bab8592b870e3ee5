"""Order of episodes, and problems, from the ids of Parquet rows in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.checks import number_problems
from sept_offline.data.records import Bool, EpisodeIndex, Int64, Problem
from sept_offline.data.source import INDEX_FIELDS, Header


class RowScan:
    """The ids of all R rows as they lie in the files."""

    def __init__(self, rows: int) -> None:
        self.episode = np.zeros(rows, dtype=np.int64)
        self.time = np.zeros(rows, dtype=np.int64)
        self.seed = np.zeros(rows, dtype=np.int64)
        self.instance = np.zeros(rows, dtype=np.int32)
        self.behaviour = np.zeros(rows, dtype=np.int32)
        self.final = np.zeros(rows, dtype=np.bool_)
        """[R], where the action is null: an episode's last row."""
        self.names: dict[str, dict[str, int]] = {"instance": {}, "behaviour": {}}

    def code(self, kind: str, word: str) -> int:
        """The number of an instance or behaviour, in order of first appearance."""
        return self.names[kind].setdefault(word, len(self.names[kind]))


@dataclass(frozen=True)
class RowOrder:
    """The order of R observation rows in E episodes."""

    order: Int64 | None
    """[R], the physical row of each row in episode order; None where they are the same"""
    index: EpisodeIndex
    instances: list[str]
    behaviours: list[str]
    defects: list[Problem]


def order_rows(scan: RowScan, header: Header | None, *, ordered: bool) -> RowOrder:
    """Sort rows by episode and time (within instances first, where no header numbers them).

    Files of other tools may number the episodes of each instance from 0, or by any ids of their
    own; with a header the numbers are the file's own, and gaps or duplicates are defects. Where
    the rows should lie `ordered` already (one file of ours), disorder is a defect too.
    """
    names = [list(scan.names[kind]) for kind in ("instance", "behaviour")]
    instance, behaviour = scan.instance.astype(np.int64), scan.behaviour.astype(np.int64)
    if header is not None:
        instance = _positions(names[0], header.instances)[instance]
        behaviour = _positions(names[1], header.metadata.behaviours)[behaviour]
    keys = [scan.time, scan.episode] + ([] if header is not None else [instance])
    order = None if _ascending(keys) else np.lexsort(keys).astype(np.int64)
    defects: list[Problem] = []
    if order is not None and ordered:
        backwards = (np.diff(scan.episode) < 0) | (
            (np.diff(scan.episode) == 0) & (np.diff(scan.time) < 0)
        )
        at = int(np.argmax(backwards)) + 1
        where = f"episode {scan.episode[at]}, row {at}"
        message = "rows are not in the order of episode and time"
        defects.append(Problem("disorder", where, int(backwards.sum()), message))

    def arranged(values: NDArray[Any]) -> NDArray[Any]:
        return values if order is None else values[order]

    episode, time = arranged(scan.episode), arranged(scan.time)
    instance = arranged(instance)
    new = (np.diff(episode) != 0) | (np.diff(instance) != 0)
    starts = np.flatnonzero(np.concatenate([[True], new])) if len(episode) else np.zeros(0, int)
    rows = np.diff(np.append(starts, len(episode)))
    defects.extend(_time_problems(time, episode, starts, rows))
    defects.extend(_final_problems(arranged(scan.final), episode, starts, rows))
    if header is not None:
        defects.extend(number_problems(episode[starts]))
    length = (rows - 1).astype(np.int64)
    index = EpisodeIndex(
        number=np.arange(len(starts), dtype=np.int64),
        offset=(np.cumsum(length) - length).astype(np.int64),
        length=length,
        instance=instance[starts],
        behaviour=arranged(behaviour)[starts],
        seed=arranged(scan.seed)[starts],
    )
    return RowOrder(order, index, names[0], names[1], defects)


def disagreements(stored: EpisodeIndex, found: EpisodeIndex) -> list[Problem]:
    """Differences between the stored index and the rows."""
    if len(stored) != len(found):
        message = f"the stored index has {len(stored)} episodes and the rows make {len(found)}"
        return [Problem("index", "episodes", abs(len(stored) - len(found)), message)]
    problems = []
    for name in INDEX_FIELDS:
        bad = getattr(stored, name) != getattr(found, name)
        if bad.any():
            where = f"episodes/{name}, episode {int(np.argmax(bad))}"
            message = f"the stored index says another {name} than the rows"
            problems.append(Problem("index", where, int(bad.sum()), message))
    return problems


def _positions(names: Sequence[str], known: Sequence[str]) -> Int64:
    """[len(names)+1], the position of each name in `known`; -1 if it is missing."""
    place = {name: position for position, name in enumerate(known)}
    return np.asarray([place.get(name, -1) for name in names] + [-1], dtype=np.int64)


def _ascending(keys: Sequence[NDArray[Any]]) -> bool:
    """Whether rows are sorted by the keys, the last one first."""
    if not len(keys[0]):
        return True
    sorted_so_far = np.ones(len(keys[0]) - 1, dtype=np.bool_)
    for key in keys:
        step = np.diff(key)
        sorted_so_far = (step > 0) | ((step == 0) & sorted_so_far)
    return bool(sorted_so_far.all())


def _time_problems(time: Int64, episode: Int64, starts: Int64, rows: Int64) -> list[Problem]:
    """Rows missing from an episode, or there twice."""
    if not len(starts):
        return []
    step = np.diff(time, prepend=0)
    step[starts] = time[starts] + 1
    found: list[Problem] = []
    for kind, bad, message in (
        ("duplicate", step < 1, "a step of an episode occurs twice"),
        ("gap", step > 1, "steps of an episode are missing"),
    ):
        if bad.any():
            first = int(np.argmax(bad))
            where = f"time, episode {episode[first]}, step {time[first]}"
            found.append(Problem(kind, where, int(bad.sum()), message))
    return found


def _final_problems(final: Bool, episode: Int64, starts: Int64, rows: Int64) -> list[Problem]:
    """Episodes without the row of their final observation, and actions missing before it."""
    if not len(starts):
        return [Problem("empty", "episodes", 1, "the dataset holds no episode")]
    last = starts + rows - 1
    found: list[Problem] = []
    without = ~final[last]
    if without.any():
        where = f"observations, episode {episode[last[np.argmax(without)]]}"
        message = "an episode has T observations instead of T+1: its last row must hold the final "
        message += "observation and null for the action"
        found.append(Problem("final observation", where, int(without.sum()), message))
    inside = final.copy()
    inside[last] = False
    if inside.any():
        first = int(np.argmax(inside))
        where = f"actions, episode {episode[first]}"
        message = "an action is null before the episode's last row"
        found.append(Problem("gap", where, int(inside.sum()), message))
    short = rows < 2
    if short.any():
        where = f"episode {episode[starts[np.argmax(short)]]}"
        found.append(Problem("length", where, int(short.sum()), "an episode has no step"))
    return found

"""Problems of a dataset: in its structure, in the order of its rows, and in its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.records import INDEX_FIELDS, Bool, EpisodeIndex, Int64, Problem
from sept_offline.data.source import BLOCK_ROWS, Header, RowCounter, Source
from sept_offline.errors import DataError

MOST_STEPS = 1 << 40
NUMBER = "episodes/number"
EMPTY = Problem("empty", "episodes", 1, "the dataset holds no episode")
UNKNOWN = "the behaviour's probabilities are unknown"


def check_structure(source: Source) -> None:
    """Raise on the first structural problem."""
    for problem in structural_problems(source):
        raise DataError(
            f"{source.path}: {problem.message} ({problem.where}); run `sept-offline validate` "
            "for the full list, then restore the file or write it again."
        )


def structural_problems(source: Source) -> list[Problem]:
    """All that would make reads wrong; cheap: it looks at shapes, types and the index only."""
    header, index = source.header, source.index
    steps = int(index.length.sum())
    problems: list[Problem] = list(source.defects)
    for name, (dtype, shape) in header.columns_of(index).items():
        if name not in source.columns:
            if name != "propensities":
                problems.append(
                    Problem("missing column", name, 1, f"the column {name!r} is missing")
                )
            continue
        stored_dtype, stored = source.columns[name]
        if name == "observations" and stored == (steps, header.observation_dim):
            message = f"{steps} observations for {steps} steps; each episode needs T+1, its final"
            problems.append(
                Problem("final observation", name, len(index), f"{message} one included")
            )
        elif stored != shape:
            message = f"{name!r} has shape {stored}, expected {shape}"
            problems.append(Problem("shape", name, 1, message))
        if stored_dtype != dtype:
            message = f"{name!r} holds {stored_dtype}, expected {dtype}; cast it before writing"
            problems.append(Problem("dtype", name, 1, message))
    return problems + (_index_problems(header, index) if len(index) else [EMPTY])


def _counted(
    kind: str, bad: NDArray[np.bool_], message: str, where: Callable[[int], str]
) -> list[Problem]:
    """A problem if any of `bad` is true; `where` names the place of the first."""
    return [Problem(kind, where(int(np.argmax(bad))), int(bad.sum()), message)] if bad.any() else []


def _index_problems(header: Header, index: EpisodeIndex) -> list[Problem]:
    def report(kind: str, field: str, bad: NDArray[np.bool_], message: str) -> list[Problem]:
        return _counted(kind, bad, message, lambda first: f"episodes/{field}, episode {first}")

    # Before they are added up: a sum that wraps around may look plausible.
    huge = index.length >= MOST_STEPS
    end = np.concatenate([[0], (index.offset + index.length)[:-1]])
    problems = [
        *report("length", "length", index.length < 1, "an episode has no step"),
        *report("length", "length", huge, "an episode claims more steps than any file holds"),
        *report("gap", "offset", index.offset > end, "steps between episodes belong to none"),
        *report("overlap", "offset", index.offset < end, "steps belong to two episodes"),
        *_number_problems(index.number),
    ]
    for name, values, known in (
        ("instance", index.instance, len(header.instances)),
        ("behaviour", index.behaviour, len(header.metadata.behaviours)),
    ):
        bad = (values < 0) | (values >= known)
        problems += report("unknown id", name, bad, f"an episode names an unknown {name}")
    back = np.diff(index.instance, prepend=index.instance[:1]) < 0
    message = "the episodes are not grouped by instance in the order of the instances"
    return problems + report("disorder", "instance", back, message)


def _number_problems(number: Int64) -> list[Problem]:
    """Gaps, duplicates and disorder in what should be 0, 1, 2, …"""
    problems: list[Problem] = []
    distinct, counts = np.unique(number, return_counts=True)
    if len(distinct) < len(number):
        first = int(distinct[counts > 1][0])
        message = f"an episode number occurs twice, first {first}"
        extra = len(number) - len(distinct)
        problems.append(Problem("duplicate", f"{NUMBER}, episode {first}", extra, message))
    missing = int(distinct[-1]) + 1 - len(distinct) if len(distinct) else 0
    if missing or (len(distinct) and distinct[0] < 0):
        wrong = np.flatnonzero(distinct != np.arange(len(distinct)))
        first = int(wrong[0]) if len(wrong) else 0
        message = f"the episodes are not numbered 0, 1, 2, …: {first} is missing"
        problems.append(Problem("gap", f"{NUMBER}, episode {first}", abs(missing), message))
    return problems + _counted(
        "disorder",
        np.diff(number) < 0,
        "the episode numbers do not ascend",
        lambda first: f"{NUMBER}, episode {first + 1}",
    )


class RowScan:
    """The ids of all R rows in the order of the Parquet files."""

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

    Files of other tools may number the episodes of each instance from 0, or by any ids; with a
    header the numbers are the file's own, and gaps or duplicates are defects. Where the rows should
    lie `ordered` already (one file of ours), disorder is a defect too.
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
        step = np.diff(scan.episode)
        defects += _counted(
            "disorder",
            (step < 0) | ((step == 0) & (np.diff(scan.time) < 0)),
            "rows are not in the order of episode and time",
            lambda first: f"episode {scan.episode[first + 1]}, row {first + 1}",
        )

    def arranged(values: NDArray[Any]) -> NDArray[Any]:
        return values if order is None else values[order]

    episode, instance = arranged(scan.episode), arranged(instance)
    if not len(episode):
        starts = rows = np.zeros(0, dtype=np.int64)
        defects.append(EMPTY)
    else:
        new = (np.diff(episode) != 0) | (np.diff(instance) != 0)
        starts = np.flatnonzero(np.concatenate([[True], new]))
        rows = np.diff(np.append(starts, len(episode)))
        defects += _time_problems(arranged(scan.time), episode, starts)
        defects += _final_problems(arranged(scan.final), episode, starts, rows)
    if header is not None:
        defects += _number_problems(episode[starts])
    index = EpisodeIndex.end_to_end(
        length=(rows - 1).astype(np.int64),
        instance=instance[starts],
        behaviour=arranged(behaviour)[starts],
        seed=arranged(scan.seed)[starts],
    )
    return RowOrder(order, index, names[0], names[1], defects)


def disagreements(stored: EpisodeIndex, scanned: EpisodeIndex) -> list[Problem]:
    """Differences between the stored index and the rows."""
    if len(stored) != len(scanned):
        message = f"the stored index has {len(stored)} episodes and the rows make {len(scanned)}"
        return [Problem("index", "episodes", abs(len(stored) - len(scanned)), message)]
    problems = []
    for name in INDEX_FIELDS:
        bad = getattr(stored, name) != getattr(scanned, name)
        if bad.any():
            where = f"episodes/{name}, episode {int(np.argmax(bad))}"
            message = f"the stored index and the rows differ in {name}"
            problems.append(Problem("index", where, int(bad.sum()), message))
    return problems


def _positions(names: Sequence[str], known: Sequence[str]) -> Int64:
    """[len(names)+1], the position of each name in `known`; -1 if it is missing."""
    place = {name: position for position, name in enumerate(known)}
    return np.asarray([place.get(name, -1) for name in names] + [-1], dtype=np.int64)


def _ascending(keys: Sequence[NDArray[Any]]) -> bool:
    """Whether rows are sorted by the keys, the last one first."""
    sorted_so_far = np.ones(max(len(keys[0]) - 1, 0), dtype=np.bool_)
    for key in keys:
        step = np.diff(key)
        sorted_so_far = (step > 0) | ((step == 0) & sorted_so_far)
    return bool(sorted_so_far.all())


def _time_problems(time: Int64, episode: Int64, starts: Int64) -> Iterator[Problem]:
    """Rows missing from an episode, or there twice."""
    step = np.diff(time, prepend=0)
    step[starts] = time[starts] + 1

    def where(first: int) -> str:
        return f"time, episode {episode[first]}, step {time[first]}"

    yield from _counted("duplicate", step < 1, "a step of an episode occurs twice", where)
    yield from _counted("gap", step > 1, "steps of an episode are missing", where)


def _final_problems(final: Bool, episode: Int64, starts: Int64, rows: Int64) -> Iterator[Problem]:
    """Episodes without the row of their final observation, and actions missing before it."""
    last = starts + rows - 1
    inside = final.copy()
    inside[last] = False
    yield from _counted(
        "final observation",
        ~final[last],
        "an episode has T observations instead of T+1: its last row must hold the final "
        "observation and null for the action",
        lambda first: f"observations, episode {episode[last[first]]}",
    )
    yield from _counted(
        "gap",
        inside,
        "an action is null before the episode's last row",
        lambda first: f"actions, episode {episode[first]}",
    )
    yield from _counted(
        "length",
        rows < 2,
        "an episode has no step",
        lambda first: f"episode {episode[starts[first]]}",
    )


def value_problems(source: Source, progress: RowCounter | None = None) -> list[Problem]:
    """Bad values of each kind, counted in one pass over the columns, block by block."""
    check = _ValueCheck(source, progress)
    # Without a usable column the index alone says how many steps there are.
    if check.usable:
        check.run()
    return [Problem(kind, *entry) for (kind, _), entry in check.problems.items()]


class _ValueCheck:
    """Counts each kind of bad value in the columns whose rows can be paired with steps."""

    def __init__(self, source: Source, progress: RowCounter | None) -> None:
        self._source, self._progress = source, progress
        self._space = source.header.action_space
        expected = source.header.columns_of(source.index)
        self.usable = {name for name, kind in source.columns.items() if kind == expected[name]}
        self.problems: dict[tuple[str, str], tuple[str, int, str]] = {}
        """Place of the first, count and message, by kind and column."""

    def run(self) -> None:
        index = self._source.index
        steps = int(index.length.sum())
        last = np.zeros(steps, dtype=np.bool_)
        ends = index.offset + index.length - 1
        last[ends[(ends >= 0) & (ends < steps)]] = True
        for name in ("observations", "rewards", "actions"):
            for start, values in self._blocks(name):
                self._numbers(name, values[name], start)
        for start, values in self._blocks("terminations", "truncations"):
            self._end_flags(values["terminations"], values["truncations"], last[start:], start)
        for start, values in self._blocks("propensities", "actions"):
            self._propensities(values["propensities"], values["actions"], start)
        if "propensities" not in self._source.columns:
            everywhere = np.ones(steps, dtype=np.bool_)
            self._note("missing propensities", "propensities", everywhere, 0, UNKNOWN)

    def _blocks(self, *names: str) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        if not self.usable.issuperset(names):
            return
        count = self._source.columns[names[0]][1][0]
        for start in range(0, count, BLOCK_ROWS):
            rows = np.arange(start, min(start + BLOCK_ROWS, count), dtype=np.int64)
            if self._progress is not None:
                for name in names:
                    self._progress(name, len(rows))
            try:
                values = {name: self._source.take(name, rows) for name in names}
            except DataError as error:
                self._add("unreadable", names[0], names[0], 1, str(error))
            else:
                yield start, values

    def _note(self, kind: str, name: str, bad: NDArray[np.bool_], start: int, message: str) -> None:
        """Count the bad rows of a block that begins at row `start`."""
        if bad.any():
            first = start + int(np.argmax(bad))
            self._add(kind, name, self._place(name, first), int(bad.sum()), message)

    def _add(self, kind: str, name: str, where: str, count: int, message: str) -> None:
        where, before, message = self.problems.get((kind, name), (where, 0, message))
        self.problems[kind, name] = (where, before + count, message)

    def _place(self, name: str, row: int) -> str:
        index, instances = self._source.index, self._source.header.instances
        starts = index.offset
        if name == "observations":
            starts = index.offset + np.arange(len(index))
        episode = int(np.searchsorted(starts, row, side="right")) - 1
        if episode < 0:
            return f"{name}, row {row}"
        code = int(index.instance[episode])
        instance = instances[code] if 0 <= code < len(instances) else "?"
        return f"{name}, instance {instance!r}, episode {episode}, step {row - starts[episode]}"

    def _numbers(self, name: str, values: NDArray[Any], start: int) -> None:
        flat = values.reshape(len(values), -1)
        self._note("NaN", name, np.isnan(flat).any(axis=1), start, f"{name} hold NaN")
        self._note("infinite", name, np.isinf(flat).any(axis=1), start, f"{name} hold inf")
        if name == "actions":
            outside = self._space.outside(values) & np.isfinite(flat).all(axis=1)
            message = f"an action is not in the action space: expected {self._space.expected}"
            self._note("action range", name, outside, start, message)

    def _end_flags(self, terminated: Bool, truncated: Bool, last: Bool, start: int) -> None:
        last = last[: len(terminated)]
        either = terminated | truncated
        for kind, bad, message in (
            ("both end flags", terminated & truncated, "a step is both terminated and truncated"),
            ("early end flag", either & ~last, "an end flag is set before an episode's last step"),
            ("no end flag", last & ~either, "the last step of an episode has no end flag"),
        ):
            self._note(kind, "terminations", bad, start, message)

    def _propensities(self, propensities: NDArray[Any], actions: NDArray[Any], start: int) -> None:
        space = self._space
        # one that is out of range is counted as another kind
        actions = np.where(space.outside(actions), 0, actions) if not space.shape else actions
        partial = space.partly_known(propensities, actions)
        only = "only the logged action's probability is known"
        for kind, bad, message in (
            ("missing propensities", space.unknown(propensities), UNKNOWN),
            ("partial propensities", partial, only),
            *((f.kind, f.bad, f.message) for f in space.propensity_faults(propensities, actions)),
        ):
            self._note(kind, "propensities", bad, start, message)

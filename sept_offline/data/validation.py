"""Finding, naming and counting what is wrong with a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data.checks import structural_problems
from sept_offline.data.dataset import Dataset, bytes_intact, load_in_memory, open_source
from sept_offline.data.filesystems import Place, check_place
from sept_offline.data.hashing import content_hash
from sept_offline.data.records import HiddenTable, Problem
from sept_offline.data.source import BLOCK_ROWS, Source
from sept_offline.errors import DataError

WARNINGS = ("missing propensities", "partial propensities", "short episode", "single episode")
"""Kinds of problems that a valid dataset may have; all others are errors."""
GENERAL = ("changed bytes", "content hash")
"""Kinds that say something is wrong but not where: they are named last."""
UNKNOWN = "the behaviour's probabilities are unknown"


@dataclass(frozen=True)
class ValidationReport:
    """The result of `validate`, errors first."""

    path: str
    content_hash: str | None
    episodes: int
    steps: int
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make the dataset bad."""
        return tuple(p for p in self.problems if p.kind not in WARNINGS)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that a valid dataset may have."""
        return tuple(p for p in self.problems if p.kind in WARNINGS)

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used as it is."""
        return not self.errors

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {"ok": self.ok, **asdict(self), "problems": [asdict(p) for p in self.problems]}

    def raise_if_bad(self) -> None:
        """A DataError with the first error, if there is one."""
        for problem in self.errors:
            if problem.kind == "unreadable":
                # already a sentence that names the file
                raise DataError(problem.message)
            more = len(self.errors) - 1
            rest = f"; {more} more kinds of problem" if more else ""
            raise DataError(
                f"{self.path}: {problem.message} ({problem.where}; {problem.count} in all){rest}."
            )


def validate(
    path: str | Place,
    probe_steps: int | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> ValidationReport:
    """Check every byte and every step of a dataset; returns a report of all problems.

    `probe_steps`: warn about episodes shorter than this (default: the probe length stored in the
    dataset). A path that does not exist or is not a dataset raises an error; a damaged file is
    reported as a problem. `report.raise_if_bad()` raises a DataError for the first problem.
    """
    path = check_place(path)
    problems: list[Problem] = []
    if not bytes_intact(path):
        message = "the file's bytes are not those that were written"
        problems.append(Problem("changed bytes", "file", 1, message))
    try:
        source, hidden = open_source(path, scan=True)
    except DataError as error:
        problems.insert(0, Problem("unreadable", "file", 1, str(error)))
        return ValidationReport(str(path), None, 0, 0, tuple(problems))
    try:
        structure = structural_problems(source)
        values = list(_ValueCheck(source).run(progress))
        problems += [*structure, *values, *_episode_problems(source, probe_steps)]
        stored = source.header.content_hash
        readable = not structure and all(problem.kind != "unreadable" for problem in values)
        if readable:
            problems += _hash_problems(source, hidden)
        problems.sort(key=lambda p: (p.kind in WARNINGS, p.kind in GENERAL))
        episodes, steps = len(source.index), int(source.index.length.sum())
        return ValidationReport(str(path), stored, episodes, steps, tuple(problems))
    finally:
        source.close()


def read_dataset(path: str | Place) -> Dataset:
    """A whole, valid dataset in memory; every stored byte is read once.

    A DataError names the first thing that `validate` would call an error.
    """
    data = load_in_memory(path)
    source, hidden = data._source, data.hidden
    problems = [*_ValueCheck(source).run(None), *_hash_problems(source, hidden)]
    problems.sort(key=lambda p: (p.kind in WARNINGS, p.kind in GENERAL))
    stored = source.header.content_hash
    ValidationReport(
        str(path), stored, data.num_episodes, data.num_steps, tuple(problems)
    ).raise_if_bad()
    return data


def _hash_problems(source: Source, hidden: HiddenTable | None) -> Iterator[Problem]:
    stored = source.header.content_hash
    found = stored if stored is None else content_hash(source, hidden)
    if found is not None and stored is not None and found != stored:
        message = f"the content hashes to {found[:12]}…, the header says {stored[:12]}…"
        yield Problem("content hash", "header", 1, message)


class _ValueCheck:
    """One pass over the steps in blocks of whole rows, counting each kind of bad value."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._progress: Callable[[str, int], None] | None = None
        self._found: dict[tuple[str, str], list[Any]] = {}
        index = source.index
        self._starts = {"step": index.offset, "row": index.offset + np.arange(len(index))}

    def run(self, progress: Callable[[str, int], None] | None) -> Iterator[Problem]:
        usable = self._usable()
        self._progress = progress
        index = self._source.index
        if not usable:  # the index alone says how many steps there are, and nothing bears it out
            return
        steps = int(index.length.sum())
        last = np.zeros(steps, dtype=np.bool_)
        ends = index.offset + index.length - 1
        last[ends[(ends >= 0) & (ends < steps)]] = True
        space = self._source.header.action_space
        for name in ("observations", "rewards", "actions"):
            for start, values in self._blocks(usable, name):
                self._finite(name, values[name], start)
                if name == "actions":
                    outside = space.outside(values[name]) & _rows_finite(values[name])
                    message = f"an action is not in the action space: expected {space.expected}"
                    self._note("action range", name, outside, start, message)
        for start, values in self._blocks(usable, "terminations", "truncations"):
            self._end_flags(values, last[start:], start)
        for start, values in self._blocks(usable, "propensities", "actions"):
            self._propensities(values, start)
        if "propensities" not in self._source.columns:
            self._note(
                "missing propensities",
                "propensities",
                np.ones(steps, dtype=np.bool_),
                0,
                UNKNOWN,
            )
        for (kind, _), (where, count, message) in self._found.items():
            yield Problem(kind, where, count, message)

    def _usable(self) -> set[str]:
        """Columns whose rows can be paired with steps."""
        expected = self._source.header.columns_of(self._source.index)
        return {name for name, kind in self._source.columns.items() if kind == expected[name]}

    def _blocks(
        self, usable: set[str], *names: str
    ) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        if not usable.issuperset(names):
            return
        count = self._source.columns[names[0]][1][0]
        for start in range(0, count, BLOCK_ROWS):
            rows = np.arange(start, min(start + BLOCK_ROWS, count), dtype=np.int64)
            if self._progress is not None:
                for name in names:
                    self._progress(name, len(rows))
            try:
                yield start, {name: self._source.take(name, rows) for name in names}
            except DataError as error:
                self._found.setdefault(("unreadable", names[0]), [names[0], 0, str(error)])[1] += 1

    def _note(self, kind: str, name: str, bad: NDArray[np.bool_], start: int, message: str) -> None:
        if not bad.any():
            return
        entry = self._found.setdefault((kind, name), ["", 0, message])
        if not entry[1]:
            entry[0] = self._place(name, start + int(np.argmax(bad)))
        entry[1] += int(bad.sum())

    def _place(self, name: str, row: int) -> str:
        starts = self._starts["row" if name == "observations" else "step"]
        episode = int(np.searchsorted(starts, row, side="right")) - 1
        if episode < 0:
            return f"{name}, row {row}"
        code = int(self._source.index.instance[episode])
        instances = self._source.header.instances
        instance = instances[code] if 0 <= code < len(instances) else "?"
        return f"{name}, instance {instance!r}, episode {episode}, step {row - starts[episode]}"

    def _finite(self, name: str, values: NDArray[Any], start: int) -> None:
        flat = values.reshape(len(values), -1)
        self._note("NaN", name, np.isnan(flat).any(axis=1), start, f"{name} hold NaN")
        self._note("infinite", name, np.isinf(flat).any(axis=1), start, f"{name} hold inf")

    def _end_flags(
        self, values: dict[str, NDArray[Any]], last: NDArray[np.bool_], start: int
    ) -> None:
        terminated, truncated = values["terminations"], values["truncations"]
        last = last[: len(terminated)]
        either = terminated | truncated
        for kind, bad, message in (
            ("both end flags", terminated & truncated, "a step is both terminated and truncated"),
            ("early end flag", either & ~last, "an end flag is set before an episode's last step"),
            ("no end flag", last & ~either, "the last step of an episode has no end flag"),
        ):
            self._note(kind, "terminations", bad, start, message)

    def _propensities(self, values: dict[str, NDArray[Any]], start: int) -> None:
        space = self._source.header.action_space
        propensities, actions = values["propensities"], values["actions"]
        # one that is out of range is a finding of its own
        actions = np.where(space.outside(actions), 0, actions) if not space.shape else actions
        unknown, partly = space.unknown(propensities), space.partly_known(propensities, actions)
        self._note("missing propensities", "propensities", unknown, start, UNKNOWN)
        message = "only the logged action's probability is known"
        self._note("partial propensities", "propensities", partly, start, message)
        for fault in space.propensity_faults(propensities, actions):
            self._note(fault.kind, "propensities", fault.bad, start, fault.message)


def _rows_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    """[N], of values [N, …]"""
    return np.asarray(np.isfinite(values.reshape(len(values), -1)).all(axis=1))


def _episode_problems(source: Source, probe_steps: int | None) -> Iterator[Problem]:
    index, header = source.index, source.header
    probe = header.metadata.probe_steps if probe_steps is None else probe_steps
    short = index.length < (probe or 0)
    if short.any():
        message = f"an episode is shorter than the probe's {probe} steps"
        where = f"episode {int(np.argmax(short))}"
        yield Problem("short episode", where, int(short.sum()), message)
    known = index.instance[(index.instance >= 0) & (index.instance < len(header.instances))]
    single = np.bincount(known, minlength=len(header.instances)) < 2
    if single.any():
        first = header.instances[int(np.argmax(single))]
        message = "an instance has fewer than two episodes, too few to hold one out"
        yield Problem("single episode", f"instance {first!r}", int(single.sum()), message)

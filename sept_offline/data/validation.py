"""Finding, naming and counting what is wrong with a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sept_offline.data.dataset import Dataset, bytes_intact, load_in_memory, open_source
from sept_offline.data.filesystems import Place, check_place
from sept_offline.data.problems import Progress, structural_problems, value_problems
from sept_offline.data.records import HiddenTable, Problem
from sept_offline.data.source import Source, content_hash
from sept_offline.errors import DataError

WARNINGS = ("missing propensities", "partial propensities", "short episode", "single episode")
"""Kinds of problems that a valid dataset may have; all others are errors."""
GENERAL = ("changed bytes", "content hash")
"""Kinds that say something is wrong but not where: they are named last."""


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
    progress: Progress | None = None,
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
        structure, values = structural_problems(source), value_problems(source, progress)
        problems += [*structure, *values, *_episode_problems(source, probe_steps)]
        if not structure and all(problem.kind != "unreadable" for problem in values):
            problems += _hash_problems(source, hidden)
        return _report(path, source, problems)
    finally:
        source.close()


def read_dataset(path: str | Place) -> Dataset:
    """A whole, valid dataset in memory; every stored byte is read once.

    A DataError names the first thing that `validate` would call an error.
    """
    data = load_in_memory(path)
    source = data._source
    problems = [*value_problems(source), *_hash_problems(source, data.hidden)]
    _report(path, source, problems).raise_if_bad()
    return data


def _report(path: str | Place, source: Source, problems: list[Problem]) -> ValidationReport:
    ordered = sorted(problems, key=lambda p: (p.kind in WARNINGS, p.kind in GENERAL))
    episodes, steps = len(source.index), int(source.index.length.sum())
    return ValidationReport(str(path), source.header.content_hash, episodes, steps, tuple(ordered))


def _hash_problems(source: Source, hidden: HiddenTable | None) -> Iterator[Problem]:
    stored = source.header.content_hash
    if stored is not None and (found := content_hash(source, hidden)) != stored:
        message = f"the content hashes to {found[:12]}…, the header says {stored[:12]}…"
        yield Problem("content hash", "header", 1, message)


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

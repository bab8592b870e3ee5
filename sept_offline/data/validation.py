"""What is wrong with a dataset, and with an episode before it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.dataset import Dataset, bytes_intact, load_in_memory, open_source
from sept_offline.data.filesystems import Place, check_place
from sept_offline.data.problems import structural_problems, value_problems
from sept_offline.data.records import HiddenTable, Problem, whole
from sept_offline.data.source import RowCounter, Source, canonical_json, content_hash
from sept_offline.errors import DataError

WARNINGS = ("missing propensities", "partial propensities", "short episode", "single episode")
"""Kinds of problems that a valid dataset may have; all others are errors."""
GENERAL = ("changed bytes", "content hash")
"""Kinds of problems without a known position: they are named last."""


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
    progress: RowCounter | None = None,
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
    if stored is not None and (actual := content_hash(source, hidden)) != stored:
        message = f"the content hashes to {actual[:12]}…, the header says {stored[:12]}…"
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


def check_episode(
    *,
    place: str,
    space: ActionSpace,
    dim: int | None,
    observations: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    terminated: bool,
    truncated: bool,
    propensities: ArrayLike | None,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """The columns of an episode in canonical types, or a DataError that names field and step.

    observations [T+1, d], actions [T, *shape], rewards and both end flags [T], propensities
    [T, *propensity_shape].
    """
    act = _actions(actions, space, place)
    steps = len(act)
    obs = _numbers(observations, "observations", place, np.float32)
    if obs.ndim != 2 or len(obs) != steps + 1 or (dim is not None and obs.shape[1] != dim):
        hint = ""
        if obs.ndim == 2 and len(obs) == steps:
            hint = "; pass the observation after the last step too"
        raise DataError(
            f"observations of {place}: expected shape ({steps + 1}, {dim or 'd'}) for {steps} "
            f"steps, found {obs.shape}{hint}."
        )
    if obs.shape[1] < 1:
        raise DataError(
            f"observations of {place}: expected at least one number per row, found none."
        )
    reward = _numbers(rewards, "rewards", place, np.float64)
    if reward.shape != (steps,):
        raise DataError(f"rewards of {place}: expected shape ({steps},), found {reward.shape}.")
    terminated, truncated = (
        _flag(value, f"{name} of {place}")
        for name, value in (("terminated", terminated), ("truncated", truncated))
    )
    if not (terminated or truncated):
        raise DataError(
            f"The end of {place}: neither terminated nor truncated; pass terminated=True if its "
            "last state ends the task, else truncated=True."
        )
    if not 0 <= whole(seed, f"seed of {place}") < 1 << 63:
        raise DataError(f"seed of {place}: expected 0 ≤ seed < 2**63, found {seed}.")
    last = np.arange(steps) == steps - 1
    return {
        "observations": obs,
        "actions": act,
        "rewards": reward,
        "terminations": last & terminated,
        "truncations": last & (truncated and not terminated),
        "propensities": _propensities(propensities, act, space, place),
    }


def _flag(value: Any, name: str) -> bool:
    """An end flag; None is false. The truth of a word or of a list says nothing about the end."""
    flag = np.asarray(False if value is None else value)
    if flag.size != 1 or flag.dtype.kind not in "biuf" or not np.isin(flag, (0, 1)).all():
        raise DataError(f"{name}: expected True or False, for the last step, found {value!r:.60}.")
    return bool(flag.any())


def _actions(values: ArrayLike, space: ActionSpace, place: str) -> NDArray[Any]:
    """[T, *shape] in the space's type."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"actions of {place}: expected one array; {error}.") from error
    if not space.shape and (array.ndim != 1 or not np.issubdtype(array.dtype, np.integer)):
        raise DataError(
            f"actions of {place}: expected a vector of integers, found {array.dtype} {array.shape}."
        )
    if len(array.shape) < 1 or not len(array):
        raise DataError(f"actions of {place}: the episode has no steps; drop it.")
    if array.shape[1:] != space.shape:
        shape = (len(array), *space.shape)
        raise DataError(f"actions of {place}: expected shape {shape}, found {array.shape}.")
    if space.shape:
        array = _numbers(array, "actions", place, np.float32)
    outside = space.outside(array)
    if outside.any():
        step = int(np.argmax(outside))
        raise DataError(
            f"actions of {place}, step {step}: expected {space.expected}, found "
            f"{array[step].tolist()}."
        )
    return array.astype(space.dtype)


def _numbers(values: ArrayLike, name: str, place: str, dtype: type[np.floating[Any]]) -> Any:
    try:
        given = np.asarray(values)
        if given.dtype.kind == "c":
            raise TypeError("found complex numbers")
        with np.errstate(over="ignore"):
            array = given.astype(dtype)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} of {place}: expected an array of numbers; {error}.") from error
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(np.argwhere(bad)[0].tolist())
        raise DataError(
            f"{name} of {place}, step {where[0] if where else 0}: expected finite numbers, found "
            f"{array[where]}."
        )
    return array


def _propensities(
    values: ArrayLike | None, actions: NDArray[Any], space: ActionSpace, place: str
) -> NDArray[np.float64]:
    shape = (len(actions), *space.propensity_shape)
    if values is None:
        return np.full(shape, np.nan)
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"propensities of {place}: expected numbers; {error}.") from error
    if array.shape != shape:
        raise DataError(f"propensities of {place}: expected shape {shape}, found {array.shape}.")
    for fault in space.propensity_faults(array, actions):
        if fault.bad.any():
            step = int(np.argmax(fault.bad))
            rule = "in the whole row, or for all but the logged action"
            unknown = f"NaN where unknown: {rule}" if space.propensity_shape else "NaN if unknown"
            raise DataError(
                f"propensities of {place}, step {step}: expected {fault.expected} ({unknown}), "
                f"found {array[step].tolist()} for action {actions[step].tolist()}."
            )
    # One NaN and not another: a payload would show in the content hash.
    return np.where(np.isnan(array), np.nan, array)


def hidden_table(
    hidden: Mapping[str, Mapping[str, float]] | None, instances: Sequence[str]
) -> HiddenTable | None:
    """The rows of the instances that have episodes, the names in order of first appearance."""
    if not hidden:
        return None
    rows = [hidden_row(hidden, instance) for instance in instances]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    values = [[row.get(name, np.nan) for name in names] for row in rows]
    array = np.asarray(values, dtype=np.float64).reshape(len(instances), len(names))
    return HiddenTable(names, np.where(np.isnan(array), np.nan, array))


def hidden_row(hidden: Mapping[str, Mapping[str, float]], instance: str) -> dict[str, float]:
    """The hidden parameters of an instance; NaN where one is unknown."""
    if instance not in hidden:
        raise DataError(
            f"hidden has no entry for the instance {instance!r}; pass one for every instance, "
            "or none."
        )
    entry = hidden[instance]
    if not isinstance(entry, Mapping):
        raise DataError(
            f"hidden[{instance!r}] is {entry!r:.60}; expected a dict of numbers by name."
        )
    row: dict[str, float] = {}
    for name, value in entry.items():
        where = f"hidden[{instance!r}][{name!r}]"
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"{where} is {value!r:.60}; expected a number.") from error
        if np.isinf(number):
            raise DataError(f"{where} is infinite; expected a finite number.")
        row[storable(name, "The hidden parameter")] = number
    return row


def storable(value: Any, name: str) -> str:
    """A name as text; a DataError if it cannot be encoded, as the names of some files cannot."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} {text!r:.80} contains characters that are not valid Unicode; replace them."
        ) from error
    return text


def json_ready(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping after a JSON round trip, so that metadata compare equal when read."""
    try:
        loaded: dict[str, Any] = json.loads(canonical_json(dict(value)))
        json.dumps(loaded, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must contain JSON-serialisable values: {error}.") from error
    return loaded

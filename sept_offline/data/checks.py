"""Checks of what a writer receives and of the structure that a reader finds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.records import EpisodeIndex, HiddenTable, Problem
from sept_offline.data.source import Header, Source, canonical_json
from sept_offline.errors import DataError

MOST_STEPS = 1 << 40


@dataclass(frozen=True)
class CheckedEpisode:
    """An episode's columns in canonical types."""

    columns: Mapping[str, NDArray[Any]]
    """observations [T+1, d], actions [T, *shape], rewards and both end flags [T], propensities
    [T, *propensity_shape]"""
    knows_propensities: bool


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
) -> CheckedEpisode:
    """The episode in canonical types, or a DataError that names the field and the step."""
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
    if not (terminated or truncated):
        raise DataError(
            f"The end of {place}: neither terminated nor truncated; pass terminated=True if its "
            "last state ends the task, else truncated=True."
        )
    if not 0 <= whole(seed, f"seed of {place}") < 1 << 63:
        raise DataError(f"seed of {place}: expected 0 ≤ seed < 2**63, found {seed}.")
    logged = _propensities(propensities, act, space, place)
    last = np.arange(steps) == steps - 1
    return CheckedEpisode(
        columns={
            "observations": obs,
            "actions": act,
            "rewards": reward,
            "terminations": last & bool(terminated),
            "truncations": last & (bool(truncated) and not terminated),
            "propensities": logged,
        },
        knows_propensities=not bool(np.isnan(logged).all()),
    )


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
        with np.errstate(over="ignore"):
            array = np.asarray(values).astype(dtype)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} of {place}: expected an array of numbers; {error}.") from error
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        step = where[0] if where else 0
        found = array[where]
        raise DataError(f"{name} of {place}, step {step}: expected finite numbers, found {found}.")
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
    missing = [instance for instance in instances if instance not in hidden]
    if missing:
        raise DataError(
            f"hidden has no entry for the instance {missing[0]!r}; pass one for every instance, "
            "or none."
        )
    hidden = {row: {str(name): value for name, value in hidden[row].items()} for row in instances}
    names = tuple(dict.fromkeys(name for row in instances for name in hidden[row]))
    values = [[float(hidden[row].get(name, np.nan)) for name in names] for row in instances]
    array = np.asarray(values, dtype=np.float64).reshape(len(instances), len(names))
    if np.isinf(array).any():
        row, column = np.argwhere(np.isinf(array))[0]
        raise DataError(
            f"hidden[{instances[row]!r}][{names[column]!r}] is infinite; expected a finite number."
        )
    return HiddenTable(names, np.where(np.isnan(array), np.nan, array))


def whole(value: Any, name: str) -> int:
    """A whole number of any kind as an int."""
    try:
        return index(value)
    except TypeError as error:
        raise DataError(f"{name}: expected a whole number, found {value!r:.60}.") from error


def json_ready(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping after a JSON round trip, so that metadata compare equal when read."""
    try:
        loaded: dict[str, Any] = json.loads(canonical_json(dict(value)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must contain JSON-serialisable values: {error}.") from error
    return loaded


def structural_problems(source: Source) -> list[Problem]:
    """All that would make reads wrong; cheap: it looks at shapes, types and the index only."""
    header, index = source.header, source.index
    steps = int(index.length.sum())
    found: list[Problem] = list(source.defects)
    for name, (dtype, shape) in header.columns_of(index).items():
        if name not in source.columns:
            if name != "propensities":
                found.append(Problem("missing column", name, 1, f"the column {name!r} is missing"))
            continue
        stored_dtype, stored = source.columns[name]
        if name == "observations" and stored == (steps, header.observation_dim):
            message = f"{steps} observations for {steps} steps; each episode needs T+1, its final"
            found.append(Problem("final observation", name, len(index), f"{message} one included"))
        elif stored != shape:
            message = f"{name!r} has shape {stored}, expected {shape}"
            found.append(Problem("shape", name, 1, message))
        if stored_dtype != dtype:
            message = f"{name!r} holds {stored_dtype}, expected {dtype}; cast it before writing"
            found.append(Problem("dtype", name, 1, message))
    found.extend(_index_problems(header, index))
    return found


def _index_problems(header: Header, index: EpisodeIndex) -> list[Problem]:
    found: list[Problem] = []

    def report(kind: str, where: str, bad: NDArray[np.bool_], message: str) -> None:
        if bad.any():
            first = int(np.argmax(bad))
            found.append(Problem(kind, f"{where}, episode {first}", int(bad.sum()), message))

    count = len(index)
    if not count:
        return [Problem("empty", "episodes", 1, "the dataset holds no episode")]
    report("length", "episodes/length", index.length < 1, "an episode has no step")
    # Before they are added up: a sum that wraps around may look plausible.
    huge = index.length >= MOST_STEPS
    report("length", "episodes/length", huge, "an episode claims more steps than any file holds")
    end = np.concatenate([[0], (index.offset + index.length)[:-1]])
    report("gap", "episodes/offset", index.offset > end, "steps between episodes belong to none")
    report("overlap", "episodes/offset", index.offset < end, "steps belong to two episodes")
    found.extend(number_problems(index.number))
    for name, values, known in (
        ("instance", index.instance, len(header.instances)),
        ("behaviour", index.behaviour, len(header.metadata.behaviours)),
    ):
        bad = (values < 0) | (values >= known)
        report("unknown id", f"episodes/{name}", bad, f"an episode names an unknown {name}")
    changes = np.flatnonzero(np.diff(index.instance, prepend=-1) != 0)
    starts = index.instance[changes]
    again = np.zeros(count, dtype=np.bool_)
    again[changes] = np.concatenate([[False], np.diff(starts) < 0])
    report(
        "disorder",
        "episodes/instance",
        again,
        "the episodes of an instance do not lie together in the order of the instances",
    )
    return found


def number_problems(number: NDArray[np.int64]) -> list[Problem]:
    """Gaps, duplicates and disorder in what should be 0, 1, 2, …"""
    found: list[Problem] = []
    distinct = np.unique(number)
    where = "episodes/number"
    if len(distinct) < len(number):
        count = len(number) - len(distinct)
        values, counts = np.unique(number, return_counts=True)
        first = int(values[counts > 1][0])
        message = f"an episode number occurs twice, first {first}"
        found.append(Problem("duplicate", f"{where}, episode {first}", count, message))
    missing = int(distinct[-1]) + 1 - len(distinct) if len(distinct) else 0
    if missing or (len(distinct) and distinct[0] < 0):
        wrong = np.flatnonzero(distinct != np.arange(len(distinct)))
        first = int(wrong[0]) if len(wrong) else 0
        message = f"the episodes are not numbered 0, 1, 2, …: {first} is missing"
        found.append(Problem("gap", f"{where}, episode {first}", abs(missing), message))
    backwards = np.diff(number) < 0
    if backwards.any():
        first = int(np.argmax(backwards)) + 1
        message = "the episode numbers do not ascend"
        found.append(
            Problem("disorder", f"{where}, episode {first}", int(backwards.sum()), message)
        )
    return found


def check_structure(source: Source) -> None:
    """Raise on the first structural problem."""
    for problem in structural_problems(source):
        raise DataError(
            f"{source.path}: {problem.message} ({problem.where}); run `sept-offline validate` "
            "for the full list, then restore the file or write it again."
        )

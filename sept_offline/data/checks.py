"""Checks of what a writer receives: episodes, hidden parameters, metadata."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sept_offline.actions import ActionSpace
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import canonical_json
from sept_offline.errors import DataError


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
        "terminations": last & bool(terminated),
        "truncations": last & (bool(truncated) and not terminated),
        "propensities": _propensities(propensities, act, space, place),
    }


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
        return operator.index(value)
    except TypeError as error:
        raise DataError(f"{name}: expected a whole number, found {value!r:.60}.") from error


def json_ready(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping after a JSON round trip, so that metadata compare equal when read."""
    try:
        loaded: dict[str, Any] = json.loads(canonical_json(dict(value)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must contain JSON-serialisable values: {error}.") from error
    return loaded

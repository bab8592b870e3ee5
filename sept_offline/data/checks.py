"""Checks of the arrays that a writer receives; errors name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sept_offline.data.records import HiddenTable
from sept_offline.data.source import canonical_json
from sept_offline.errors import DataError

SUM_TOLERANCE = 1e-5
"""Tolerance for sums of probabilities: the rounding of a float32 softmax."""


@dataclass(frozen=True)
class CheckedEpisode:
    """An episode's columns in canonical types."""

    columns: Mapping[str, NDArray[Any]]
    """observations [T+1, d]; actions, rewards and both end flags [T]; propensities [T, A]"""
    knows_propensities: bool


def check_episode(
    *,
    place: str,
    num_actions: int,
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
    act = np.asarray(actions)
    if act.ndim != 1 or not np.issubdtype(act.dtype, np.integer):
        raise DataError(
            f"actions of {place}: expected a vector of integers, found {act.dtype} {act.shape}."
        )
    steps = len(act)
    if steps < 1:
        raise DataError(f"actions of {place}: the episode has no steps; drop it.")
    outside = (act < 0) | (act >= num_actions)
    if outside.any():
        step = int(np.argmax(outside))
        raise DataError(
            f"actions of {place}, step {step}: expected 0 … {num_actions - 1}, found {act[step]}."
        )
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
    if not 0 <= int(seed) < 1 << 63:
        raise DataError(f"seed of {place}: expected 0 ≤ seed < 2**63, found {seed}.")
    probabilities = _propensities(propensities, act, num_actions, place)
    last = np.arange(steps) == steps - 1
    return CheckedEpisode(
        columns={
            "observations": obs,
            "actions": act.astype(np.int64),
            "rewards": reward,
            "terminations": last & bool(terminated),
            "truncations": last & (bool(truncated) and not terminated),
            "propensities": probabilities,
        },
        knows_propensities=not bool(np.isnan(probabilities).all()),
    )


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
    values: ArrayLike | None, actions: NDArray[Any], num_actions: int, place: str
) -> NDArray[np.float64]:
    shape = (len(actions), num_actions)
    if values is None:
        return np.full(shape, np.nan)
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise DataError(f"propensities of {place}: expected shape {shape}, found {array.shape}.")
    missing = np.isnan(array)
    unknown = missing.all(axis=1)
    logged = array[np.arange(len(actions)), actions]
    alone = only_logged(array, actions)
    with np.errstate(invalid="ignore"):
        whole = np.abs(array.sum(axis=1) - 1) <= SUM_TOLERANCE
        for bad, expected in (
            (~(whole | (alone & (logged <= 1))), "probabilities that sum to 1"),
            (~((array >= 0) | missing).all(axis=1), "probabilities of at least 0"),
            (~(logged > 0), "a probability above 0 for the logged action"),
        ):
            bad = bad & ~unknown
            if bad.any():
                step = int(np.argmax(bad))
                raise DataError(
                    f"propensities of {place}, step {step}: expected {expected} (NaN where "
                    "unknown: in the whole row, or for all but the logged action), found "
                    f"{array[step].tolist()} for action {actions[step]}."
                )
    # One NaN and not another: a payload would show in the content hash.
    return np.where(np.isnan(array), np.nan, array)


def only_logged(propensities: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
    """[T], where the logged action's probability is known and no other's; of [T, A] and [T]."""
    known = ~np.isnan(propensities)
    logged = known[np.arange(len(actions)), actions]
    return np.asarray(logged & (known.sum(axis=1) == 1) & (propensities.shape[1] > 1))


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
    names = tuple(dict.fromkeys(name for row in instances for name in hidden[row]))
    values = [[float(hidden[row].get(name, np.nan)) for name in names] for row in instances]
    array = np.asarray(values, dtype=np.float64).reshape(len(instances), len(names))
    if np.isinf(array).any():
        row, column = np.argwhere(np.isinf(array))[0]
        raise DataError(
            f"hidden[{instances[row]!r}][{names[column]!r}] is infinite; expected a finite number."
        )
    return HiddenTable(names, np.where(np.isnan(array), np.nan, array))


def json_ready(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping after a JSON round trip, so that metadata compare equal when read."""
    try:
        loaded: dict[str, Any] = json.loads(canonical_json(dict(value)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must contain JSON-serialisable values: {error}.") from error
    return loaded

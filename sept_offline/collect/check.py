"""Contract checks for a user's own family."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace
from sept_offline.collect.behaviour import Uniform
from sept_offline.collect.rollout import Start, run_shard
from sept_offline.environments import open_environment, spaces
from sept_offline.errors import FamilyError, one_line
from sept_offline.family import SPLITS, Family, Hidden, load_family
from sept_offline.seeding import generator

FEW = 4
"""Instances that are stepped in turn, and whose columns are compared."""


class FamilyWarning(UserWarning):
    """A family meets its contract, but part of it may be a mistake."""


@dataclass(frozen=True)
class Trace:
    """One episode of T steps: observations [T + 1, d], rewards [T], terminations [T]."""

    observations: NDArray[Any]
    rewards: NDArray[Any]
    terminations: NDArray[Any]

    def first_difference(self, other: Trace) -> tuple[int, str] | None:
        """The first step, and the field, in which two traces differ."""
        differences = []
        for name in ("rewards", "terminations", "observations"):
            mine, theirs = getattr(self, name), getattr(other, name)
            both = min(len(mine), len(theirs))
            same = (mine[:both] == theirs[:both]).reshape(both, -1).all(axis=1)
            if not same.all():
                # Observation t + 1 comes out of step t.
                step = int(np.argmin(same)) - (name == "observations")
                differences.append((max(step, 0), name))
            elif len(mine) != len(theirs):
                differences.append((both - (name == "observations"), "terminations"))
        return min(differences, default=None)


Instance = tuple[str, Hidden]
"""An id and its hidden parameters."""


def check_family(family: str | Family, *, seed: int = 0, episodes: int = 3) -> None:
    """Raise a FamilyError that names the probable cause if `family` breaks its contract.

    Checked: the record's numbers and splits; Gymnasium's own environment checker; that a seed
    fixes an episode; that observations and rewards are finite; that no limit shorter than the
    family's ends an episode; that hidden parameters change the dynamics and are shown neither in
    `info` nor in an observed column; that environments stepped in turn, or the batch from
    `make_vec`, give the numbers of single environments. An observed column that identifies the
    instance without being a hidden parameter gives a FamilyWarning. Call it before anything is
    logged: each of these would otherwise show as an agent that learns nothing.
    """
    record = load_family(family)
    _check_record(record)
    _, space = spaces(record)
    instances = _distinct(record)
    if len([name for name, _ in instances if name.startswith("train-")]) < 2:
        raise FamilyError(
            f"Family {record.name!r}: all training instances have the same hidden parameters."
        )
    _check_limit(record, *instances[0])
    rng = generator(seed, "check", record.name)
    played = [
        space.uniform(record.train_steps).draw(rng.random((record.train_steps, space.draws)))
        for _ in range(episodes)
    ]
    traces = []
    for index, actions in enumerate(played):
        first, again = (_trace(record, instances[0], seed + index, actions) for _ in range(2))
        if first.first_difference(again) is not None:
            raise FamilyError(
                f"Family {record.name!r}: the same seed and actions gave two different episodes; "
                "the environment probably draws from a generator other than self.np_random."
            )
        traces.append(first)
    _check_gymnasium(record, *instances[0])
    _check_hidden(record, instances, seed, played, traces)
    _check_columns(record, instances, seed, played)
    draws = rng.random((record.train_steps, FEW, space.draws))
    _check_batch(record, space, instances, seed, draws)


def _distinct(family: Family) -> list[Instance]:
    """The first instance with each combination of hidden parameters, training instances first."""
    distinct: dict[Any, Instance] = {}
    for split in SPLITS:
        for name, hidden in zip(family.instance_ids(split), family.instances(split), strict=True):
            distinct.setdefault(tuple(sorted(hidden.items())), (name, hidden))
    return list(distinct.values())


def _few(instances: Sequence[Instance]) -> list[Instance]:
    """At most FEW of them, from the first to the last."""
    places = np.linspace(0, len(instances) - 1, min(FEW, len(instances)))
    return [instances[int(place)] for place in places]


def _check_record(family: Family) -> None:
    def refuse(text: str) -> None:
        raise FamilyError(f"Family {family.name!r}: {text}")

    for split in SPLITS:
        if not family.splits.get(split):
            refuse(f"split {split!r} is missing or empty; give at least one hidden dict.")
    if len(family.splits["train"]) < 2:
        refuse("split 'train' has one instance; at least two must differ to learn from.")
    names = {tuple(sorted(hidden)) for hidden in family.instances("train")}
    if len(names) > 1:
        refuse(f"the training instances name different parameters: {sorted(names)}.")
    if family.probe_steps >= min(family.train_steps, family.test_steps):
        refuse(
            f"probe_steps is {family.probe_steps}, which leaves no step for control in episodes "
            f"of {min(family.train_steps, family.test_steps)}."
        )


class _Finite(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Names a column that is not finite; Gymnasium only says that the space does not hold it."""

    def __init__(self, env: gymnasium.Env[Any, Any], family: Family, where: str) -> None:
        super().__init__(env)
        self._family, self._where = family, where

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        _check_finite(f"{self._where}: reset()", self._family, observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *others = self.env.step(action)
        _check_finite(f"{self._where}: a step", self._family, observation)
        return observation, *others


def _check_gymnasium(family: Family, instance: str, hidden: Hidden) -> None:
    from gymnasium.utils.env_checker import check_env

    env = open_environment(family, hidden, instance)
    where = f"Family {family.name!r}, instance {instance}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_env(_Finite(env.env, family, where), skip_render_check=True)
    except FamilyError:
        raise
    except SystemExit as error:
        raise FamilyError(f"{where}: the environment ended the program (SystemExit).") from error
    except Exception as error:
        raise FamilyError(
            f"{where}: Gymnasium's environment checker says: {one_line(error)}"
        ) from error
    finally:
        env.close()


def _check_limit(family: Family, instance: str, hidden: Hidden) -> None:
    """A limit that random actions may never reach can still truncate a better policy."""
    from gymnasium.wrappers import TimeLimit

    needed = max(family.train_steps, family.test_steps)
    env = open_environment(family, hidden, instance)
    env.close()
    layer: Any = env
    while hasattr(layer, "env"):
        if isinstance(layer, TimeLimit) and layer._max_episode_steps < needed:
            raise FamilyError(
                f"Family {family.name!r}: make() returned an environment with a time limit of "
                f"{layer._max_episode_steps} steps, fewer than the {needed} of train_steps and "
                "test_steps; leave the time limit to the library."
            )
        layer = layer.env


def _trace(family: Family, instance: Instance, seed: int, actions: NDArray[Any]) -> Trace:
    name, hidden = instance
    env = open_environment(family, hidden, name)
    where = f"Family {family.name!r}, instance {name}"
    try:
        observation, info = env.reset(seed=seed)
        _check_info(where, hidden, info)
        observations, rewards, ends = [_numbers(where, observation)], [], []
        _check_finite(f"{where}: reset()", family, observation)
        for step, action in enumerate(actions):
            observation, reward, terminated, truncated, info = env.step(action)
            _check_info(where, hidden, info)
            observations.append(_numbers(where, observation))
            _check_finite(f"{where}: step {step}", family, observation)
            if not np.isfinite(float(reward)):
                raise FamilyError(
                    f"{where}: step {step} gave the reward {reward} under hidden {dict(hidden)}; "
                    "it must be finite."
                )
            rewards.append(float(reward))
            ends.append(bool(terminated))
            if truncated and not terminated and step + 1 < family.train_steps:
                raise FamilyError(
                    f"{where}: make() returned an environment that truncates after {step + 1} "
                    f"steps, before train_steps = {family.train_steps}; leave the time limit to "
                    "the library."
                )
            if terminated:
                break
    finally:
        env.close()
    return Trace(np.array(observations), np.array(rewards), np.array(ends))


def _numbers(where: str, observation: Any) -> NDArray[np.float32]:
    """A copy of an observation, because an environment may return its internal array."""
    try:
        numbers = np.array(observation, dtype=np.float32)
    except (TypeError, ValueError):
        numbers = np.empty((), dtype=np.float32)
    if numbers.ndim != 1:
        raise FamilyError(
            f"{where}: the observation must be a 1-D numeric array, found {observation!r:.120}."
        )
    return numbers


def _check_finite(where: str, family: Family, observation: Any) -> None:
    """Refuse an observation that is not finite, and name its first such column."""
    numbers = _numbers(where, observation)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise FamilyError(
            f"{where} gave {numbers[bad[0]]} in {_column(family, int(bad[0]))} of the observation; "
            "observations must be finite."
        )


def _column(family: Family, column: int) -> str:
    """The number of an observed column, and its name if it has one."""
    names = family.observation_names
    return f"column {column}" + ("" if names is None else f" ({names[column]!r})")


def _check_info(where: str, hidden: Hidden, info: dict[str, Any]) -> None:
    leaked = sorted(set(hidden) & set(info))
    if leaked:
        raise FamilyError(
            f"{where}: info contains the hidden parameter {leaked[0]!r}; remove it, because an "
            "agent must not be able to read it."
        )


def _check_hidden(
    family: Family,
    instances: Sequence[Instance],
    seed: int,
    played: list[NDArray[Any]],
    traces: list[Trace],
) -> None:
    """Hidden parameters must change what the same actions do in some training instance."""
    for other in instances[1:]:
        if not other[0].startswith("train-"):
            break
        for index, actions in enumerate(played):
            trace = _trace(family, other, seed + index, actions)
            if trace.first_difference(traces[index]) is not None:
                return
    raise FamilyError(
        f"Family {family.name!r}: hidden parameters have no effect: the same actions gave the same "
        "episodes in every training instance; make() probably does not pass them to the dynamics."
    )


def _check_columns(
    family: Family, instances: Sequence[Instance], seed: int, played: list[NDArray[Any]]
) -> None:
    """No observed column may show a hidden parameter; warn if one identifies the instance."""
    training = _few([entry for entry in instances if entry[0].startswith("train-")])
    constant: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    for instance in training:
        seen = np.concatenate(
            [
                _trace(family, instance, seed + index, actions).observations
                for index, actions in enumerate(played)
            ]
        )
        constant.append((seen == seen[0]).all(axis=0))
        values.append(seen[0])
    table = np.array(values)
    for column in np.flatnonzero(np.all(constant, axis=0) & (table != table[0]).any(axis=0)):
        name = _column(family, int(column))
        for parameter in training[0][1]:
            hidden = np.array([values[parameter] for _, values in training], dtype=np.float64)
            if np.allclose(table[:, column], hidden, rtol=1e-6, atol=0):
                raise FamilyError(
                    f"Family {family.name!r}: {name} of the observation equals the hidden "
                    f"parameter {parameter!r}; remove it from the observation."
                )
        warnings.warn(
            f"Family {family.name!r}: {name} of the observation is constant within an instance "
            "and differs between instances, so it identifies the instance without a probe; leave "
            "it out unless it is measured in the real system too.",
            FamilyWarning,
            stacklevel=3,
        )


def _check_batch(
    family: Family,
    space: ActionSpace,
    instances: Sequence[Instance],
    seed: int,
    draws: NDArray[np.float64],
) -> None:
    """Instances stepped in turn must act as they do alone; uniform numbers [T, FEW, space.draws].

    Where the family has no make_vec these are copies of its environments, as `collect` steps them:
    what they share, such as globals of their module, shows here.
    """
    uniform, rows = Uniform(space), _few(instances)
    starts = [
        Start(hidden, uniform, 0.0, seed + row, draws[:, row], name)
        for row, (name, hidden) in enumerate(rows)
    ]
    logged = run_shard(family, space, starts, family.train_steps, probe_steps=0)
    for row, (instance, episode) in enumerate(zip(rows, logged, strict=True)):
        actions = space.uniform(len(draws)).draw(draws[:, row])
        single = _trace(family, instance, seed + row, actions)
        ends = np.zeros(len(episode.rewards), dtype=bool)
        ends[-1] = episode.terminated
        batch = Trace(episode.observations, episode.rewards, ends)
        difference = single.first_difference(batch)
        if difference is None:
            continue
        step, field = difference
        if family.make_vec is not None:
            raise FamilyError(
                f"Family {family.name!r}: the {field} of row {row} of make_vec differ at step "
                f"{step} from those of make({dict(instance[1])}) under the same seed and actions; "
                "both must share one dynamics."
            )
        raise FamilyError(
            f"Family {family.name!r}: instance {instance[0]} gives different {field} at step "
            f"{step} when other instances are stepped in turn; environments probably share "
            "state, such as module globals, class attributes, or one object that make() returns "
            "again: keep state on self."
        )

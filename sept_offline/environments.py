"""A family's environments, opened so that an error in one names its instance and step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces as gym
from gymnasium.vector import SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.errors import ConfigError, FamilyError, SeptError, SimulatorError, one_line
from sept_offline.family import Family, Hidden

Environment = gymnasium.Env[Any, Any]
Step = tuple[Any, float, bool, bool, dict[str, Any]]
Result = TypeVar("Result")


class NamedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose errors say where they happened."""

    def __init__(self, env: Environment, where: str) -> None:
        super().__init__(env)
        self._where = where
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._step = 0
        where = f"{self._where}: reset()"
        result = called(where, lambda: self.env.reset(seed=seed, options=options))
        observation, info = _unpacked(where, result, "(observation, info)", with_info=True)
        self._check_observation(where, observation)
        return observation, info

    def step(self, action: Any) -> Step:
        """Take one step with a plain number or a vector.

        The observation must be as long as its space, the reward and each end flag one value.
        """
        where = f"{self._where}: step {self._step}"
        result: Any = called(where, lambda: self.env.step(self._plain(action)))
        wanted = "(observation, reward, terminated, truncated, info)"
        step: Step = _unpacked(where, result, wanted, with_info=True)
        reward: Any = step[1]
        shape = np.shape(reward)
        if shape:
            raise FamilyError(
                f"{where} returned a reward of shape {shape}; return one number, "
                "for example float(reward[0])."
            )
        if not hasattr(reward, "__float__"):
            raise FamilyError(f"{where} returned the reward {reward!r:.80}; return one number.")
        self._check_observation(where, step[0])
        for name, flag in (("terminated", step[2]), ("truncated", step[3])):
            if _array(flag).ndim:
                raise FamilyError(
                    f"{where} returned {name} of shape {np.shape(flag)}; return True or False, "
                    f"for example bool({name}[0])."
                )
        self._step += 1
        return step

    def close(self) -> None:
        """Close the environment."""
        called(f"{self._where}: close()", self.env.close)

    def _check_observation(self, where: str, observation: Any) -> None:
        values, space = _array(observation), self.observation_space
        if values.ndim != 1 or values.dtype.kind not in "biufO":
            raise FamilyError(
                f"{where} returned the observation {observation!r:.80}; it must be a 1-D numeric "
                "array."
            )
        if isinstance(space, gym.Box) and values.shape != space.shape:
            raise FamilyError(
                f"{where} returned an observation of {len(values)} numbers, but observation_space "
                f"has the shape {space.shape}; return that many at every step."
            )

    def _plain(self, action: Any) -> Any:
        if not isinstance(self.action_space, gym.Box):
            return plain(action)
        # Rounded to float32, an action on a bound may lie a hair beyond one of float64.
        bounds = self.action_space.low, self.action_space.high
        return np.clip(np.asarray(action, dtype=self.action_space.dtype), *bounds)


def open_environment(family: Family, hidden: Hidden, instance: str) -> NamedEnvironment:
    """The environment of one instance; its errors become a SimulatorError."""
    where = f"Family {family.name!r}, instance {instance}"
    env: Any = called(f"{where}: make()", lambda: family.make(hidden))
    if not isinstance(env, gymnasium.Env):
        raise FamilyError(
            f"{where}: make() returned a {type(env).__name__}; return a gymnasium.Env."
        )
    return NamedEnvironment(env, where)


def make_vector(
    family: Family, hiddens: Sequence[Hidden], max_steps: int, instances: Sequence[str] = ()
) -> VectorEnv[Any, Any, Any]:
    """A batch of the family's environments: its true one, or copies stepped in turn.

    `instances` are the ids of the rows, for error messages.
    """
    vectorise = family.make_vec
    if vectorise is not None:
        where = f"Family {family.name!r}: make_vec()"
        batch: Any = called(where, lambda: vectorise(list(hiddens), max_steps))
        if not isinstance(batch, VectorEnv) or batch.num_envs != len(hiddens):
            raise FamilyError(
                f"{where} returned {_kind(batch)}; return a gymnasium.vector.VectorEnv of "
                f"{len(hiddens)} environments."
            )
        return batch
    ids = list(instances) or [str(dict(hidden)) for hidden in hiddens]

    envs = [
        TimeLimit(open_environment(family, hidden, instance), max_steps)
        for hidden, instance in zip(hiddens, ids, strict=True)
    ]
    for instance, env in zip(ids, envs, strict=True):
        _check_same_spaces(f"Family {family.name!r}", ids[0], envs[0], instance, env)

    def maker(env: Environment) -> Callable[[], Environment]:
        return lambda: env

    # "different": the bounds of observations may depend on the hidden parameters
    return called(
        f"Family {family.name!r}: stepping copies",
        lambda: SyncVectorEnv([maker(env) for env in envs], observation_mode="different"),
    )


def _check_same_spaces(
    where: str, first: str, env: Environment, second: str, other: Environment
) -> None:
    """Refuse two instances that take other actions, or observe other things than their bounds."""
    seen, also = env.observation_space, other.observation_space
    for verb, mine, theirs, same in (
        ("takes", env.action_space, other.action_space, env.action_space == other.action_space),
        ("observes", seen, also, (seen.shape, seen.dtype) == (also.shape, also.dtype)),
    ):
        if not same:
            raise FamilyError(
                f"{where}: instance {first} {verb} {mine}, but instance {second} {theirs}; all "
                "instances must share the actions and the observed columns."
            )


def reset_rows(
    family: Family, env: VectorEnv[Any, Any, Any], seeds: Sequence[int]
) -> NDArray[np.float32]:
    """Start every row from its own seed; [n, d]."""
    where = f"Family {family.name!r}: reset() of the batch"
    # Gymnasium takes a list here, though its signature says otherwise.
    result = called(where, lambda: env.reset(seed=list(seeds)))  # type: ignore[arg-type]
    observation, _ = _unpacked(where, result, "(observations, info)")
    return _observed(where, env, observation, len(seeds))


def step_rows(
    family: Family, env: VectorEnv[Any, Any, Any], action: NDArray[Any], step: int
) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Step every row: observations [n, d], rewards, terminated and truncated [n]."""
    where, count = f"Family {family.name!r}: step {step} of the batch", len(action)
    # Copies on both sides: an environment may change its input, or return the same array again.
    result = called(where, lambda: env.step(action.copy()))
    wanted = "(observations, rewards, terminations, truncations, info)"
    observation, reward, terminated, truncated, _ = _unpacked(where, result, wanted)
    return (
        _observed(where, env, observation, count),
        _per_row(where, "rewards", reward, count, np.float64),
        _per_row(where, "terminations", terminated, count, np.bool_),
        _per_row(where, "truncations", truncated, count, np.bool_),
    )


def _observed(
    where: str, env: VectorEnv[Any, Any, Any], observation: Any, count: int
) -> NDArray[np.float32]:
    """A copy of the observations [n, d] of all rows."""
    rows = called(f"{where}, observations", lambda: np.array(observation, dtype=np.float32))
    if rows.ndim != 2 or len(rows) != count:
        raise FamilyError(
            f"{where} returned observations of shape {rows.shape}; return one row per environment, "
            f"shape ({count}, columns)."
        )
    space = getattr(env, "single_observation_space", None)
    if isinstance(space, gym.Box) and rows.shape[1:] != space.shape:
        raise FamilyError(
            f"{where} returned observations of {rows.shape[1]} numbers each, but "
            f"single_observation_space has the shape {space.shape}; return that many at every step."
        )
    return rows


def _per_row(where: str, what: str, values: Any, count: int, dtype: Any) -> NDArray[Any]:
    """A copy of one value per row, [n]."""
    if np.shape(values) != (count,):
        raise FamilyError(
            f"{where} returned {what} of shape {np.shape(values)}; return one value per row, "
            f"shape {(count,)}."
        )
    return called(f"{where}, {what}", lambda: np.array(values, dtype=dtype))


def spaces(family: Family) -> tuple[int, ActionSpace]:
    """The size of an observation and the actions, as the first instance declares them."""
    split = next(iter(family.splits))
    hiddens = family.instances(split)
    if not hiddens:
        raise FamilyError(f"Family {family.name!r} has a split without instances.")
    env = open_environment(family, hiddens[0], f"{split}-0")
    try:
        return check_spaces(family, env)
    finally:
        env.close()


def check_spaces(family: Family, env: Environment) -> tuple[int, ActionSpace]:
    """The size of an observation and the actions of `env`.

    Spaces that the library cannot log are refused, and the refusal says how to change them.
    """
    seen = env.observation_space
    if isinstance(seen, gym.Dict):
        raise FamilyError(
            f"Family {family.name!r} observes a Dict of {', '.join(map(str, seen))}; return one "
            "flat Box of the measured quantities alone (gymnasium.wrappers.TransformObservation), "
            "without entries that contain hidden parameters."
        )
    if not isinstance(seen, gym.Box) or len(seen.shape) != 1 or not seen.shape[0]:
        raise FamilyError(
            f"Family {family.name!r} observes {seen}; only a flat Box is supported: return the "
            "measured quantities, without hidden parameters, as one vector."
        )
    names = family.observation_names
    if names is not None and len(names) != seen.shape[0]:
        raise FamilyError(
            f"Family {family.name!r} names {len(names)} observed columns but observes "
            f"{seen.shape[0]}; give one name per column in observation_names."
        )
    return seen.shape[0], _action_space(family, env.action_space)


def _action_space(family: Family, actions: gymnasium.Space[Any]) -> ActionSpace:
    try:
        if isinstance(actions, gym.Discrete):
            if actions.start != 0:
                raise FamilyError(
                    f"Family {family.name!r} numbers its actions from {actions.start}; declare "
                    f"Discrete({actions.n}), which starts at 0, and add {actions.start} in step()."
                )
            return Finite.of(int(actions.n), family.action_names)
        floats = isinstance(actions, gym.Box) and np.issubdtype(actions.dtype, np.floating)
        if isinstance(actions, gym.Box) and floats and len(actions.shape) == 1:
            return Box.of(actions.low, actions.high, family.action_names)
    except ConfigError as error:
        raise FamilyError(f"Family {family.name!r}: {error}") from error
    raise FamilyError(
        f"Family {family.name!r} has actions {actions}; only Discrete and a flat Box of "
        "floats are supported."
    )


def plain(action: Any) -> Any:
    """A discrete action as an int; a vector unchanged."""
    return int(action) if np.ndim(action) == 0 else action


def called(
    where: str, function: Callable[[], Result], kind: type[SeptError] = SimulatorError
) -> Result:
    """Call a user's code; any error becomes one sentence of `kind`."""
    try:
        return function()
    except (SeptError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        words = one_line(error)
        raise kind(f"{where} raised {type(error).__name__}: {words}".rstrip(": ")) from error


def _unpacked(where: str, result: Any, wanted: str, with_info: bool = False) -> Any:
    """The tuple that a user's code returned, if it has the values that `wanted` names.

    With `with_info` the last of them must be a dict.
    """
    right = isinstance(result, tuple) and len(result) == len(wanted.split(","))
    if not right or (with_info and not isinstance(result[-1], dict)):
        note = ", where info is a dict" if with_info else ""
        raise FamilyError(f"{where} returned {_kind(result)}; return {wanted}{note}.")
    return result


def _array(values: Any) -> NDArray[Any]:
    """An array or nested lists as an array; ragged ones as a single object."""
    try:
        return np.asarray(values)
    except ValueError:
        single = np.empty((), dtype=object)
        single[()] = values
        return single


def _kind(result: object) -> str:
    return f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"

"""One shard of episodes, stepped together: the only loop that touches the environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.collect.behaviour import Behaviour
from sept_offline.errors import FamilyError
from sept_offline.family import Family, Hidden

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


@dataclass(frozen=True)
class Start:
    """Everything that decides one episode before it begins."""

    hidden: Hidden
    behaviour: Behaviour
    progress: float
    """The episode's place among its instance's, from 0 to 1."""
    reset_seed: int
    draws: NDArray[np.float64]
    """[max_steps] uniform numbers, one an action."""


@dataclass(frozen=True)
class Logged:
    """One finished episode of T steps.

    observations [T + 1, d] f32, actions [T] i64, rewards [T] f64, propensities [T, A] f64.
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    propensities: NDArray[np.float64]
    terminated: bool


def make_vector(
    family: Family, hiddens: Sequence[Hidden], max_steps: int
) -> VectorEnv[Any, Any, Any]:
    """A batch of the family's environments: its true one, or copies stepped in turn."""
    if family.make_vec is not None:
        return family.make_vec(hiddens, max_steps)
    from gymnasium.vector import SyncVectorEnv
    from gymnasium.wrappers import TimeLimit

    def maker(hidden: Hidden) -> Callable[[], Any]:
        return lambda: TimeLimit(family.make(hidden), max_steps)

    return SyncVectorEnv([maker(hidden) for hidden in hiddens])


def reset_rows(env: VectorEnv[Any, Any, Any], seeds: Sequence[int]) -> NDArray[np.float32]:
    """Start every row from its own seed; [n, d]."""
    # Gymnasium takes a list here, though its signature says otherwise.
    observation, _ = env.reset(seed=list(seeds))  # type: ignore[arg-type]
    return np.asarray(observation, dtype=np.float32)


def hidden_rows(hiddens: Sequence[Hidden]) -> NDArray[np.float64]:
    """[n, h], one column a name that any of them gives, missing ones 0."""
    names = sorted({name for hidden in hiddens for name in hidden})
    return np.array([[hidden.get(name, 0.0) for name in names] for hidden in hiddens]).reshape(
        len(hiddens), len(names)
    )


def spaces(family: Family) -> tuple[int, int]:
    """The size of an observation and the number of actions; anything but these is refused."""
    import gymnasium

    hiddens = family.instances(next(iter(family.splits)))
    if not hiddens:
        raise FamilyError(f"Family {family.name!r} has a split without instances.")
    env = family.make(hiddens[0])
    try:
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise FamilyError(
                f"Family {family.name!r} has actions {env.action_space}; "
                "only Discrete is supported."
            )
        if not isinstance(env.observation_space, gymnasium.spaces.Box) or (
            len(env.observation_space.shape) != 1
        ):
            raise FamilyError(
                f"Family {family.name!r} observes {env.observation_space}; only a flat Box is "
                "supported (wrap it in gymnasium.wrappers.FlattenObservation)."
            )
        return env.observation_space.shape[0], int(env.action_space.n)
    finally:
        env.close()  # type: ignore[no-untyped-call]


def run_shard(
    family: Family, starts: Sequence[Start], max_steps: int, probe_steps: int
) -> list[Logged]:
    """The episodes that `starts` decide; the first `probe_steps` actions are uniform.

    A row's numbers do not depend on the other rows: each has its own reset seed and draws, and a
    row that has ended is ignored until the last one ends.
    """
    n = len(starts)
    env = make_vector(family, [start.hidden for start in starts], max_steps)
    hidden = hidden_rows([start.hidden for start in starts])
    progress = np.array([start.progress for start in starts])
    draws = np.stack([start.draws for start in starts])
    groups: dict[int, list[int]] = {}
    for row, start in enumerate(starts):
        groups.setdefault(id(start.behaviour), []).append(row)
    members = [(starts[rows[0]].behaviour, np.array(rows)) for rows in groups.values()]

    try:
        observation = reset_rows(env, [start.reset_seed for start in starts])
        num_actions = int(env.single_action_space.n)  # type: ignore[attr-defined]
        observations = np.empty((max_steps + 1, n, observation.shape[1]), dtype=np.float32)
        actions = np.empty((max_steps, n), dtype=np.int64)
        rewards = np.empty((max_steps, n))
        propensities = np.empty((max_steps, n, num_actions))
        observations[0] = observation
        active = np.ones(n, dtype=bool)
        lengths = np.zeros(n, dtype=np.int64)
        ended = np.zeros(n, dtype=bool)
        for step in range(max_steps):
            chances = np.full((n, num_actions), 1.0 / num_actions)
            if step >= probe_steps:
                for behaviour, rows in members:
                    mine = rows[active[rows]]
                    if len(mine):
                        chances[mine] = behaviour.probabilities(
                            observation[mine], hidden[mine], progress[mine]
                        )
            action = (chances.cumsum(axis=1) <= draws[:, step, None]).sum(axis=1)
            # Rounding in the sum may leave the last probability a hair below 1; an action that
            # cannot be taken must never be logged.
            last = num_actions - 1 - (chances[:, ::-1] > 0).argmax(axis=1)
            action = np.minimum(action, last)
            observation, reward, terminated, truncated, _ = env.step(action)
            observation = np.asarray(observation, dtype=np.float32)
            actions[step], rewards[step], propensities[step] = action, reward, chances
            observations[step + 1] = observation
            done = active & (terminated | truncated)
            lengths[done] = step + 1
            ended[done] = np.asarray(terminated)[done]
            active &= ~done
            if not active.any():
                break
        if active.any():
            raise FamilyError(
                f"Family {family.name!r}: an episode went on after its limit of {max_steps} steps; "
                "make_vec must apply the limit it is given."
            )
    finally:
        env.close()
    return [
        Logged(
            observations=observations[: length + 1, row].copy(),
            actions=actions[:length, row].copy(),
            rewards=rewards[:length, row].copy(),
            propensities=propensities[:length, row].copy(),
            terminated=bool(ended[row]),
        )
        for row, length in enumerate(lengths)
    ]

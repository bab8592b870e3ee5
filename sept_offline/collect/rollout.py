"""One shard of episodes, stepped together: the only loop that touches the environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Policy
from sept_offline.collect.behaviour import Behaviour, RememberingPolicy
from sept_offline.environments import make_vector, reset_rows, step_rows
from sept_offline.errors import FamilyError
from sept_offline.family import Family, Hidden


@dataclass(frozen=True)
class Start:
    """Everything that decides one episode before it begins."""

    hidden: Hidden
    behaviour: Behaviour | RememberingPolicy
    progress: float
    """The episode's place among its instance's, from 0 to 1."""
    reset_seed: int
    draws: NDArray[np.float64]
    """[max_steps, space.draws] uniform numbers, a row for each action."""
    instance: str = "unnamed"
    """The id of the instance, for error messages."""


@dataclass(frozen=True)
class Logged:
    """One finished episode of T steps.

    observations [T + 1, d] f32, actions [T] i64 or [T, k] f32, rewards [T] f64, propensities [T, A]
    or log-densities [T] f64.
    """

    observations: NDArray[np.float32]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    propensities: NDArray[np.float64]
    terminated: bool


def hidden_rows(hiddens: Sequence[Hidden], names: Sequence[str]) -> NDArray[np.float64]:
    """[n, h], a column for each of `names`, missing ones 0."""
    return np.array([[hidden.get(name, 0.0) for name in names] for hidden in hiddens]).reshape(
        len(hiddens), len(names)
    )


def run_shard(
    family: Family,
    space: ActionSpace,
    starts: Sequence[Start],
    max_steps: int,
    probe_steps: int,
    heard: Callable[[float, int], None] | None = None,
) -> list[Logged]:
    """The episodes that `starts` decide; the first `probe_steps` actions are uniform.

    A row's numbers do not depend on the other rows: each has its own reset seed and draws, and a
    row that has ended is ignored until the last one ends. After every step `heard` receives the
    number of finished episodes, with running ones counted by their share of `max_steps`, and the
    total number of steps.
    """
    n = len(starts)
    ids = [start.instance for start in starts]
    env = make_vector(family, [start.hidden for start in starts], max_steps, ids)
    hidden = hidden_rows([start.hidden for start in starts], family.hidden_names)
    progress = np.array([start.progress for start in starts])
    draws = np.stack([start.draws for start in starts])
    groups: dict[int, list[int]] = {}
    for row, start in enumerate(starts):
        groups.setdefault(id(start.behaviour), []).append(row)
    members = [(starts[rows[0]].behaviour, np.array(rows)) for rows in groups.values()]
    memories = {
        row: start.behaviour.begin()
        for row, start in enumerate(starts)
        if isinstance(start.behaviour, RememberingPolicy)
    }
    taken = 0

    try:
        observation = reset_rows(family, env, [start.reset_seed for start in starts])
        observations = np.empty((max_steps + 1, n, observation.shape[1]), dtype=np.float32)
        actions = space.empty(max_steps, n)
        rewards = np.empty((max_steps, n))
        propensities = np.empty((max_steps, n, *space.propensity_shape))
        observations[0] = observation
        active = np.ones(n, dtype=bool)
        lengths = np.zeros(n, dtype=np.int64)
        ended = np.zeros(n, dtype=bool)
        for step in range(max_steps):
            # A row that has ended repeats its last action, which resets it and is not logged.
            actions[step] = actions[step - 1]
            for behaviour, rows in members:
                mine = rows[active[rows]]
                if not len(mine):
                    continue
                policy: Policy = space.uniform(len(mine))
                if isinstance(behaviour, RememberingPolicy):
                    # It sees the probe too, and remembers it.
                    own = behaviour.act(
                        [memories[row] for row in mine],
                        observation[mine],
                        actions[step - 1, mine] if step else None,
                        rewards[step - 1, mine] if step else None,
                    )
                    policy = own if step >= probe_steps else policy
                elif step >= probe_steps:
                    policy = behaviour.policy(observation[mine], hidden[mine], progress[mine])
                actions[step, mine] = policy.draw(draws[mine, step])
                propensities[step, mine] = policy.logged(actions[step, mine])
            observation, reward, terminated, truncated = step_rows(family, env, actions[step], step)
            rewards[step] = reward
            observations[step + 1] = observation
            done = active & (terminated | truncated)
            lengths[done] = step + 1
            ended[done] = np.asarray(terminated)[done]
            taken += int(active.sum())
            active &= ~done
            if heard is not None:
                going = int(active.sum())
                heard(n - going * (1 - (step + 1) / max_steps), taken)
            if not active.any():
                break
        if active.any():
            raise FamilyError(
                f"Family {family.name!r}: an episode continued after its limit of {max_steps} "
                "steps; make_vec must apply max_episode_steps."
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

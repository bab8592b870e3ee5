"""One shard of a collection: its episodes, stepped together in the only loop, and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Policy
from sept_offline.collect.behaviour import Behaviour, RememberingPolicy, Uniform, user_policy
from sept_offline.collect.expert_files import fetch_expert
from sept_offline.collect.partition import check_collection
from sept_offline.collect.recipe import Recipe
from sept_offline.data.filesystems import Folder, Place
from sept_offline.data.parquet import WrittenPart, write_part
from sept_offline.data.source import Header
from sept_offline.data.validation import check_episode
from sept_offline.environments import make_vector, reset_rows, step_rows
from sept_offline.errors import ConfigError, FamilyError
from sept_offline.family import Family, Hidden, load_family, load_object
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

SHARD = 256
"""Episodes stepped together; part of the definition of a dataset, not a tuning knob."""
INTERVAL = 0.1
"""Seconds between two progress reports of a shard."""


@dataclass(frozen=True)
class Start:
    """All inputs that determine one episode."""

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
                    chosen = behaviour.act(
                        [memories[row] for row in mine],
                        observation[mine],
                        actions[step - 1, mine] if step else None,
                        rewards[step - 1, mine] if step else None,
                    )
                    policy = chosen if step >= probe_steps else policy
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


@dataclass(frozen=True)
class Planned:
    """One episode to be: instance and place, and the behaviour that acts in it."""

    instance: int
    index: int
    count: int
    """Episodes of this behaviour in this instance, and `position` this one's place among them."""
    position: int
    behaviour: str


@dataclass(frozen=True)
class Job:
    """Everything a worker needs to run and write one shard."""

    shard: int
    family: str | Family
    seed: int
    max_steps: int
    probe_steps: int
    episodes: tuple[Planned, ...]
    policy: str | None
    recipe: Recipe
    behaviours: tuple[str, ...]
    """Planned names in the order of the header's, which may show a policy under its own."""
    header: Header
    """Names the plan that the shard belongs to."""
    place: Place
    part: str
    """The name of the file to write."""


def run_job(
    job: Job,
    function: Callable[..., Any] | None = None,
    tell: Callable[[tuple[float, int]], None] | None = None,
) -> WrittenPart:
    """Run and write one shard; `tell` periodically receives the episodes and steps done."""
    family, split = load_family(job.family), job.recipe.instances
    hiddens = family.instances(split)
    space = job.header.action_space
    behaviours = _behaviours(space, job, function)
    starts = []
    for episode in job.episodes:
        name = f"{split}-{episode.instance}"
        rng = generator(job.seed, "collect", family.name, name, episode.index, "actions")
        starts.append(
            Start(
                hidden=hiddens[episode.instance],
                behaviour=behaviours[episode.behaviour],
                progress=(episode.position + 0.5) / episode.count,
                reset_seed=reset_seed(job.seed, split, episode),
                draws=rng.random((job.max_steps, space.draws)),
                instance=name,
            )
        )
    with one_thread():
        heard = None if tell is None else _periodically(tell)
        logged = run_shard(family, space, starts, job.max_steps, job.probe_steps, heard)
    return _write(job, logged, [start.reset_seed for start in starts])


def _write(job: Job, logged: Sequence[Logged], seeds: Sequence[int]) -> WrittenPart:
    """Check a shard's episodes and write them; the plan they belong to must be there.

    A worker that outlives its collection must not bring it back nor meddle with the next one, and
    one that cannot see it must not write elsewhere.
    """
    folder, header = Folder(job.place), job.header
    check_collection(folder, header.metadata.plan)
    numbers = range(job.shard * SHARD, job.shard * SHARD + len(logged))
    episodes = [
        check_episode(
            place=f"episode {number} of {header.instances[planned.instance]!r}",
            space=header.action_space,
            dim=header.observation_dim,
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards,
            terminated=episode.terminated,
            truncated=not episode.terminated,
            propensities=episode.propensities,
            seed=seed,
        )
        for number, planned, episode, seed in zip(numbers, job.episodes, logged, seeds, strict=True)
    ]
    behaviours = [job.behaviours.index(episode.behaviour) for episode in job.episodes]
    return write_part(
        folder,
        job.part,
        header,
        episodes,
        number=np.array(numbers, dtype=np.int64),
        instance=np.array([episode.instance for episode in job.episodes], dtype=np.int64),
        behaviour=np.array(behaviours, dtype=np.int64),
        seed=np.array(seeds, dtype=np.int64),
    )


def _periodically(tell: Callable[[tuple[float, int]], None]) -> Callable[[float, int], None]:
    """A listener that forwards progress reports, but not every step of a fast simulator."""
    last = time.monotonic()

    def heard(episodes: float, steps: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= INTERVAL:
            last = now
            tell((episodes, steps))

    return heard


def load_policy(name: str) -> Callable[..., Any]:
    """The function that `package.module:object` names."""
    policy: Callable[..., Any] = load_object(name, "policy")
    if not callable(policy):
        raise ConfigError(f"The policy {name!r} is not callable.")
    return policy


def _behaviours(
    space: ActionSpace, job: Job, function: Callable[..., Any] | None
) -> dict[str, Behaviour | RememberingPolicy]:
    names = {episode.behaviour for episode in job.episodes}
    behaviours: dict[str, Behaviour | RememberingPolicy] = {}
    if "random" in names:
        behaviours["random"] = Uniform(space)
    if "policy" in names:
        policy = function if job.policy is None else load_policy(job.policy)
        if policy is None:
            raise ConfigError("The plan contains episodes of a policy, but no policy was given.")
        behaviours["policy"] = user_policy(policy, job.policy or "policy", space)
    if names & {"replay", "medium", "expert"}:
        expert, config = fetch_expert(job.place), job.recipe.expert
        behaviours["replay"] = expert.replay(space, config.noise)
        behaviours["medium"] = expert.medium(space, config.behaviour_epsilon, config.noise)
        behaviours["expert"] = expert.final(space, config.behaviour_epsilon, config.noise)
    return behaviours


def reset_seed(seed: int, split: str, episode: Planned) -> int:
    """The reset seed of an episode's environment."""
    return integer(seed, "collect", f"{split}-{episode.instance}", episode.index, "reset")

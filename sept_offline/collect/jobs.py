"""One shard of a collection: plan, run and write its episodes, in any process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sept_offline.actions import ActionSpace
from sept_offline.collect.behaviour import Behaviour, RememberingPolicy, Uniform, user_policy
from sept_offline.collect.expert_files import fetch_expert
from sept_offline.collect.partition import PartTarget, save_part
from sept_offline.collect.recipe import Recipe
from sept_offline.collect.rollout import Start, run_shard
from sept_offline.data.parquet import WrittenPart
from sept_offline.errors import ConfigError
from sept_offline.family import Family, load_family, load_object
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

INTERVAL = 0.1
"""Seconds between two signs of life of a shard."""


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
    """Everything a worker needs to run one shard."""

    shard: int
    family: str | Family
    seed: int
    max_steps: int
    probe_steps: int
    episodes: tuple[Planned, ...]
    policy: str | None
    recipe: Recipe
    target: PartTarget


def run_job(
    job: Job,
    function: Callable[..., Any] | None = None,
    tell: Callable[[tuple[float, int]], None] | None = None,
) -> WrittenPart:
    """Run and write one shard; `tell` periodically receives the episodes and steps done."""
    family, split = load_family(job.family), job.recipe.instances
    hiddens = family.instances(split)
    space = job.target.header.action_space
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
    instance = np.array([episode.instance for episode in job.episodes], dtype=np.int64)
    names = [episode.behaviour for episode in job.episodes]
    seed = np.array([start.reset_seed for start in starts], dtype=np.int64)
    return save_part(job.target, logged, instance, names, seed)


def _periodically(tell: Callable[[tuple[float, int]], None]) -> Callable[[float, int], None]:
    """A listener that passes on what it hears, but not every step of a fast simulator."""
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
    policy = load_object(name, "policy")
    if not callable(policy):
        raise ConfigError(f"The policy {name!r} is not callable.")
    found: Callable[..., Any] = policy
    return found


def _behaviours(
    space: ActionSpace, job: Job, function: Callable[..., Any] | None
) -> dict[str, Behaviour | RememberingPolicy]:
    names = {episode.behaviour for episode in job.episodes}
    found: dict[str, Behaviour | RememberingPolicy] = {}
    if "random" in names:
        found["random"] = Uniform(space)
    if "policy" in names:
        policy = function if job.policy is None else load_policy(job.policy)
        if policy is None:
            raise ConfigError("The plan contains episodes of a policy, but no policy was given.")
        found["policy"] = user_policy(policy, job.policy or "policy", space)
    if names & {"replay", "medium", "expert"}:
        expert, config = fetch_expert(job.target.place), job.recipe.expert
        found["replay"] = expert.replay(space, config.noise)
        found["medium"] = expert.medium(space, config.behaviour_epsilon, config.noise)
        found["expert"] = expert.final(space, config.behaviour_epsilon, config.noise)
    return found


def reset_seed(seed: int, split: str, episode: Planned) -> int:
    """The reset seed of an episode's environment."""
    return integer(seed, "collect", f"{split}-{episode.instance}", episode.index, "reset")

"""From a family and a recipe to a dataset: plan, shards, assembly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sept_offline.collect.behaviour import Behaviour, Uniform, UserPolicy
from sept_offline.collect.recipe import (
    EPISODES_PER_INSTANCE,
    Recipe,
    interleave,
    load_recipe,
    parse_behaviour,
)
from sept_offline.collect.rollout import Start, run_shard, spaces
from sept_offline.collect.staging import Staging, load_shard, save_shard
from sept_offline.config import to_plain
from sept_offline.data import Dataset, DatasetWriter, load_dataset
from sept_offline.engines import run_tasks
from sept_offline.errors import ConfigError, DataError, FamilyError
from sept_offline.family import Family, load_family, load_object
from sept_offline.files import load_state, save_state
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import generator, integer
from sept_offline.threads import one_thread

if TYPE_CHECKING:
    from sept_offline.collect.expert import Expert

SHARD = 256
"""Episodes stepped together; part of the definition of a dataset, not a tuning knob."""


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

    family: str | Family
    instances: str
    seed: int
    max_steps: int
    probe_steps: int
    episodes: tuple[Planned, ...]
    policy: str | None
    expert: Path | None
    recipe: Recipe
    target: Path


def plan_episodes(num_instances: int, episodes: int, shares: Mapping[str, float]) -> list[Planned]:
    """All episodes, instance by instance; every instance gets the behaviours in equal shares."""
    planned = []
    for instance in range(num_instances):
        share, rest = divmod(episodes, num_instances)
        names = interleave(shares, share + (instance < rest))
        counts = {name: names.count(name) for name in shares}
        seen = dict.fromkeys(shares, 0)
        for index, name in enumerate(names):
            planned.append(Planned(instance, index, counts[name], seen[name], name))
            seen[name] += 1
    return planned


def collect_dataset(
    family: str | Family,
    out: str | Path,
    *,
    recipe: Recipe | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    policy: str | Callable[..., Any] | None = None,
    seed: int = 0,
    workers: int = 1,
    resume: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Log episodes of `family` into `out` (`.h5` or `.parquet`) and return the dataset.

    The result depends on the family, the recipe and the seed alone: not on the number of workers,
    nor on how often the process was killed and resumed.
    """
    progress = progress or Silent()
    record = load_family(family)
    target = Path(out)
    if target.suffix not in (".h5", ".parquet"):
        raise ConfigError(f"{target} must end in .h5 or .parquet.")
    if seed < 0:
        raise ConfigError(f"The seed is {seed}; expected 0 or more.")
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(record, Path(recipe) if recipe else None, overrides)
    policy_name = policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")
    shares = {"policy": 1.0} if policy is not None else parse_behaviour(recipe.behaviour)
    hiddens = record.instances(recipe.instances)
    episodes = recipe.episodes or EPISODES_PER_INSTANCE * len(hiddens)
    max_steps = recipe.max_steps or record.train_steps
    probe_steps = record.probe_steps if recipe.probe_steps is None else recipe.probe_steps
    if episodes < len(hiddens):
        raise ConfigError(
            f"{episodes} episodes cannot cover the {len(hiddens)} instances of split "
            f"{recipe.instances!r}; ask for at least one each."
        )
    if isinstance(family, Family) and _is_registered(family):
        family = family.name
    if workers > 1 and isinstance(family, Family):
        raise ConfigError(
            "Several workers need a family by name: register it, or name it package.module:object."
        )

    if isinstance(policy, str):
        load_policy(policy)  # here, so that a wrong name leaves nothing behind
    observation_dim, num_actions = spaces(record)
    planned = plan_episodes(len(hiddens), episodes, shares)
    shards = [tuple(planned[i : i + SHARD]) for i in range(0, len(planned), SHARD)]
    plan = {
        "family": record.name,
        "seed": seed,
        "policy": policy_name if policy is not None else None,
        "recipe": to_plain(recipe),
        "instances": [dict(hidden) for hidden in hiddens],
        "max_steps": max_steps,
        "probe_steps": probe_steps,
        "shard": SHARD,
    }
    staging = Staging(target)
    if resume and target.exists() and not staging.path.exists():
        finished = load_dataset(target)
        wanted = (record.name, seed, len(planned), max_steps, probe_steps)
        metadata = finished.metadata
        found = (
            metadata.family,
            metadata.root_seed,
            finished.num_episodes,
            metadata.family_arguments.get("max_episode_steps"),
            metadata.probe_steps,
        )
        names = {policy_name if name == "policy" else name for name in shares}
        same = finished.instances == _instance_ids(recipe.instances, len(hiddens))
        if wanted != found or not same or names != set(metadata.behaviours):
            raise DataError(
                f"{target} is a finished dataset of another kind ({found[0]}, seed {found[1]}, "
                f"{found[2]:,} episodes); choose another name, or leave out --resume to replace it."
            )
        progress.message(f"{target} is complete; nothing to resume.")
        return finished
    staging.open(plan, resume, restart)
    try:
        expert_file = None
        if any(name in ("replay", "medium", "expert") for name in shares):
            expert_file = train_expert(record, recipe, seed, staging.path, progress)
        missing = sorted(set(range(len(shards))) - staging.finished(len(shards)))
        make_job = functools.partial(
            Job,
            family=family,
            instances=recipe.instances,
            seed=seed,
            max_steps=max_steps,
            probe_steps=probe_steps,
            policy=policy if isinstance(policy, str) else None,
            expert=expert_file,
            recipe=recipe,
        )
        jobs = [make_job(episodes=shards[i], target=staging.shard(i)) for i in missing]
        run = run_job
        if policy is not None and not isinstance(policy, str):
            if workers > 1:
                raise ConfigError("Several workers need a policy named as package.module:object.")
            run = functools.partial(run_job, function=policy)
        progress.start("episodes", len(planned), "steps")
        complete = len(planned) - sum(len(job.episodes) for job in jobs)
        steps = 0
        for outcome in run_tasks(run, jobs, workers=workers):
            steps += outcome.result()
            complete += len(outcome.task.episodes)
            progress.update(complete, steps=steps)
        progress.finish()
        behaviours = {name: policy_name if name == "policy" else name for name in shares}
        ids = _instance_ids(recipe.instances, len(hiddens))
        extra: dict[str, Any] = {"latent_dim": record.latent_dim}
        if isinstance(family, str) and ":" in family:
            extra["family_object"] = family
        with DatasetWriter(
            target,
            num_actions=num_actions,
            observation_dim=observation_dim,
            family=record.name,
            family_arguments={"max_episode_steps": max_steps},
            observation_names=record.observation_names,
            action_names=record.action_names,
            root_seed=seed,
            probe_steps=probe_steps,
            extra=extra,
            instances=ids,
            hidden=dict(zip(ids, hiddens, strict=True)),
        ) as writer:
            for index, shard in enumerate(shards):
                for planned_episode, logged in zip(
                    shard, load_shard(staging.shard(index)), strict=True
                ):
                    writer.append(
                        instance=f"{recipe.instances}-{planned_episode.instance}",
                        observations=logged.observations,
                        actions=logged.actions,
                        rewards=logged.rewards,
                        propensities=logged.propensities,
                        terminated=logged.terminated,
                        truncated=not logged.terminated,
                        behaviour=behaviours[planned_episode.behaviour],
                        seed=_reset_seed(seed, recipe.instances, planned_episode),
                    )
        staging.discard()
    finally:
        staging.release()
    return load_dataset(target)


def train_expert(
    family: Family, recipe: Recipe, seed: int, folder: Path, progress: Progress
) -> Path:
    """The file of the trained expert in `folder`; training continues where it was interrupted."""
    from sept_offline.collect.expert import ExpertStage

    finished, unfinished = folder / "expert.safetensors", folder / "expert-training.safetensors"
    if finished.exists():
        return finished
    stage = ExpertStage(
        family, recipe.expert, family.train_steps, integer(seed, "collect", family.name, "expert")
    )
    if unfinished.exists():
        stage.restore(load_state(unfinished, DataError))
    progress.start("expert", stage.total, "rounds")
    progress.update(stage.done)
    while stage.done < stage.total:
        metrics = stage.advance(1)
        save_state(unfinished, stage.state())
        progress.update(stage.done, **metrics)
    progress.finish()
    save_state(finished, stage.result().state())
    unfinished.unlink()
    return finished


def load_expert(path: Path) -> Expert:
    """The expert in a file that `train_expert` returned."""
    from sept_offline.collect.expert import Expert

    return Expert.restore(load_state(path, DataError))


def run_job(job: Job, function: Callable[..., Any] | None = None) -> int:
    """Run one shard, write it, and return its number of steps."""
    family = load_family(job.family)
    hiddens = family.instances(job.instances)
    behaviours = _behaviours(family, job, function)
    starts = []
    for episode in job.episodes:
        name = f"{job.instances}-{episode.instance}"
        rng = generator(job.seed, "collect", family.name, name, episode.index, "actions")
        starts.append(
            Start(
                hidden=hiddens[episode.instance],
                behaviour=behaviours[episode.behaviour],
                progress=(episode.position + 0.5) / episode.count,
                reset_seed=_reset_seed(job.seed, job.instances, episode),
                draws=rng.random(job.max_steps),
            )
        )
    with one_thread():
        logged = run_shard(family, starts, job.max_steps, job.probe_steps)
    save_shard(job.target, logged)
    return sum(len(episode.actions) for episode in logged)


def load_policy(name: str) -> Callable[..., Any]:
    """The function that `package.module:object` names."""
    policy = load_object(name, "policy")
    if not callable(policy):
        raise ConfigError(f"The policy {name!r} cannot be called.")
    found: Callable[..., Any] = policy
    return found


def _behaviours(
    family: Family, job: Job, function: Callable[..., Any] | None
) -> dict[str, Behaviour]:
    names = {episode.behaviour for episode in job.episodes}
    _, num_actions = spaces(family)
    found: dict[str, Behaviour] = {}
    if "random" in names:
        found["random"] = Uniform(num_actions)
    if "policy" in names:
        policy = function if job.policy is None else load_policy(job.policy)
        if policy is None:
            raise ConfigError("An episode is planned for a policy, but none was given.")
        found["policy"] = UserPolicy(policy, job.policy or "policy", num_actions)
    if job.expert is not None and names & {"replay", "medium", "expert"}:
        expert = load_expert(job.expert)
        epsilon = job.recipe.expert.behaviour_epsilon
        found["replay"] = expert.replay()
        found["medium"] = expert.medium(epsilon)
        found["expert"] = expert.final(epsilon)
    return found


def _instance_ids(split: str, count: int) -> list[str]:
    return [f"{split}-{index}" for index in range(count)]


def _reset_seed(seed: int, split: str, episode: Planned) -> int:
    return integer(seed, "collect", f"{split}-{episode.instance}", episode.index, "reset")


def _is_registered(family: Family) -> bool:
    try:
        return load_family(family.name) is family
    except FamilyError:
        return False

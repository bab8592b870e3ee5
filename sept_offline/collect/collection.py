"""From a family and a recipe to a dataset: plan, shards, assembly."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.actions import Finite
from sept_offline.collect.jobs import (
    Job,
    Made,
    Planned,
    load_expert,
    load_policy,
    plan_episodes,
    reset_seed,
    run_job,
)
from sept_offline.collect.partition import EXPERT, Partition, PartTarget
from sept_offline.collect.plans import plan_digest
from sept_offline.collect.recipe import (
    EPISODES_PER_INSTANCE,
    Recipe,
    load_recipe,
    parse_behaviour,
    plain_recipe,
)
from sept_offline.collect.staging import Staging, load_shard
from sept_offline.data import Dataset, DatasetWriter, load_dataset
from sept_offline.data.checks import hidden_table
from sept_offline.data.filesystems import Place, Remote, locate
from sept_offline.data.records import Metadata
from sept_offline.data.source import Header
from sept_offline.data.writer import written_by
from sept_offline.engines import check_engine, run_tasks
from sept_offline.environments import spaces
from sept_offline.errors import ConfigError, DataError, FamilyError
from sept_offline.family import Family, Hidden, load_family, registered_family
from sept_offline.files import write_atomically
from sept_offline.progress import Progress, Silent
from sept_offline.seals import load_state, save_state
from sept_offline.seeding import integer

__all__ = ["collect_dataset", "load_expert", "train_expert"]

SHARD = 256
"""Episodes stepped together; part of the definition of a dataset, not a tuning knob."""


@dataclass(frozen=True)
class Collection:
    """All that is decided before the first episode is run."""

    record: Family
    family: str | Family
    """The name by which workers load it."""
    recipe: Recipe
    hiddens: tuple[Hidden, ...]
    seed: int
    max_steps: int
    probe_steps: int
    policy: str | Callable[..., Any] | None
    planned: tuple[Planned, ...]
    behaviours: dict[str, str]
    """Planned name to logged name, in the order of planning."""
    engine: str
    workers: int
    progress: Progress

    @property
    def shards(self) -> list[tuple[Planned, ...]]:
        """The episodes in the pieces that tasks run."""
        return [self.planned[i : i + SHARD] for i in range(0, len(self.planned), SHARD)]

    @property
    def instances(self) -> list[str]:
        """The ids of the instances, in order."""
        return [f"{self.recipe.instances}-{index}" for index in range(len(self.hiddens))]

    @property
    def extra(self) -> dict[str, Any]:
        """Additional entries of the header."""
        extra: dict[str, Any] = {"latent_dim": self.record.latent_dim}
        if isinstance(self.family, str) and ":" in self.family:
            extra["family_object"] = self.family
        if self.needs_expert:
            extra["expert"] = "shipped" if self.is_portable else "trained here"
        return extra

    @property
    def needs_expert(self) -> bool:
        """Whether an expert must be trained first."""
        return any(name in ("replay", "medium", "expert") for name in self.behaviours)

    @cached_property
    def is_portable(self) -> bool:
        """Whether nothing is trained here, so that the bits depend on no processor.

        That holds for the shipped families; what a user's own environment computes is theirs.
        """
        from sept_offline.collect.shipped_experts import shipped_expert

        if not self.needs_expert:
            return True
        return shipped_expert(self.record, self.recipe.expert, self.seed) is not None

    def plan(self) -> dict[str, Any]:
        """The values that a resumed collection must match."""
        return {
            "family": self.record.name,
            "seed": self.seed,
            "policy": self.behaviours["policy"] if self.policy is not None else None,
            "recipe": plain_recipe(self.recipe),
            "instances": [dict(hidden) for hidden in self.hiddens],
            "max_steps": self.max_steps,
            "probe_steps": self.probe_steps,
            "shard": SHARD,
        }


def collect_dataset(
    family: str | Family,
    out: str | Place,
    *,
    recipe: Recipe | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    policy: str | Callable[..., Any] | None = None,
    seed: int = 0,
    engine: str = "local",
    workers: int = 1,
    resume: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Log episodes of `family` into `out` and return the dataset.

    `out` is a file (`.h5` or `.parquet`), or a directory, which workers fill with one Parquet file
    a shard: a path without a suffix, or a URI of any filesystem that pyarrow knows. The content
    depends on the family, the recipe and the seed alone: not on the place or its format, nor on
    the engine, the number of workers, or how often the process was killed and resumed.
    """
    check_engine(engine)
    record = load_family(family)
    target = _absolute(locate(out))
    directory = _is_directory(target)
    if seed < 0:
        raise ConfigError(f"The seed is {seed}; expected 0 or more.")
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(record, Path(recipe) if recipe else None, overrides)
    policy_name = policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")
    shares = parse_behaviour(recipe.behaviour, with_policy=True)
    if policy is None and "policy" in shares:
        raise ConfigError(
            f"The behaviour {recipe.behaviour!r} includes your own policy; pass it with --policy "
            "package.module:object."
        )
    if policy is not None and "policy" not in shares:
        shares = {"policy": 1.0}
    hiddens = record.instances(recipe.instances)
    episodes = recipe.episodes or EPISODES_PER_INSTANCE * len(hiddens)
    if episodes < len(hiddens):
        raise ConfigError(
            f"{episodes} episodes cannot cover the {len(hiddens)} instances of split "
            f"{recipe.instances!r}; collect at least one per instance."
        )
    if isinstance(family, Family) and _is_registered(family):
        family = family.name
    elsewhere = workers > 1 or engine != "local"
    if elsewhere and isinstance(family, Family):
        raise ConfigError(
            "Several workers need a family by name; register it, or pass it as "
            "package.module:object."
        )
    if elsewhere and policy is not None and not isinstance(policy, str):
        raise ConfigError("Several workers need a policy as package.module:object.")
    if isinstance(policy, str):
        load_policy(policy)  # here, so that a wrong name leaves nothing behind
    collection = Collection(
        record=record,
        family=family,
        recipe=recipe,
        hiddens=tuple(hiddens),
        seed=seed,
        max_steps=recipe.max_steps or record.train_steps,
        probe_steps=record.probe_steps if recipe.probe_steps is None else recipe.probe_steps,
        policy=policy,
        planned=tuple(plan_episodes(len(hiddens), episodes, shares)),
        behaviours={name: policy_name if name == "policy" else name for name in shares},
        engine=engine,
        workers=workers,
        progress=progress or Silent(),
    )
    if not collection.is_portable:
        collection.progress.message(
            "No trained expert comes with this recipe and seed, so one is trained here: on another "
            "processor the same command gives other episodes."
        )
    if directory:
        return _collect_parts(collection, target, resume, restart)
    return _collect_file(collection, Path(str(target)), resume, restart)


def _absolute(target: Place) -> Place:
    """A path that workers on other machines can resolve too."""
    return target.absolute() if isinstance(target, Path) else target


def _is_directory(target: Place) -> bool:
    """Whether a target becomes a directory of parts, by its name."""
    if isinstance(target, Remote) and target.suffix in (".h5", ".hdf5", ".parquet"):
        raise ConfigError(
            f"A dataset at {target} is a directory of Parquet files; remove {target.suffix}."
        )
    if isinstance(target, Path) and target.suffix not in (".h5", ".parquet", ""):
        raise ConfigError(
            f"{target} must end in .h5 or .parquet, or have no suffix for a directory."
        )
    return isinstance(target, Remote) or not target.suffix


def _collect_file(collection: Collection, target: Path, resume: bool, restart: bool) -> Dataset:
    """Write shards to a directory next to the file, then copy them in order into the file."""
    staging = Staging(target)
    if resume and target.exists() and not staging.path.exists():
        return _finished_file(collection, target)
    staging.open(collection.plan(), resume, restart)
    shards = collection.shards
    try:
        expert = None
        if collection.needs_expert:
            expert = train_expert(
                collection.record,
                collection.recipe,
                collection.seed,
                staging.path,
                collection.progress,
            )
        missing = sorted(set(range(len(shards))) - staging.finished(len(shards)))
        _run(collection, {number: staging.shard(number) for number in missing}, expert)
        record, ids = collection.record, collection.instances
        _, num_actions = dimensions = spaces(record)
        with DatasetWriter(
            target,
            num_actions=num_actions,
            observation_dim=dimensions[0],
            family=record.name,
            family_arguments={"max_episode_steps": collection.max_steps},
            observation_names=record.observation_names,
            action_names=record.action_names,
            root_seed=collection.seed,
            probe_steps=collection.probe_steps,
            extra=collection.extra,
            plan=plan_digest(collection.plan()),
            instances=ids,
            hidden=dict(zip(ids, collection.hiddens, strict=True)),
        ) as writer:
            for index, shard in enumerate(shards):
                for episode, logged in zip(shard, load_shard(staging.shard(index)), strict=True):
                    writer.append(
                        instance=ids[episode.instance],
                        observations=logged.observations,
                        actions=logged.actions,
                        rewards=logged.rewards,
                        propensities=logged.propensities,
                        terminated=logged.terminated,
                        truncated=not logged.terminated,
                        behaviour=collection.behaviours[episode.behaviour],
                        seed=reset_seed(collection.seed, collection.recipe.instances, episode),
                    )
        staging.discard()
    finally:
        staging.release()
    return load_dataset(target)


def _finished_file(collection: Collection, target: Path) -> Dataset:
    """What there is to resume where the file is whole: nothing, if it is the one asked for."""
    finished = load_dataset(target)
    metadata = finished.metadata
    wanted = (
        collection.record.name,
        collection.seed,
        len(collection.planned),
        collection.max_steps,
        collection.probe_steps,
    )
    found = (
        metadata.family,
        metadata.root_seed,
        finished.num_episodes,
        metadata.family_arguments.get("max_episode_steps"),
        metadata.probe_steps,
    )
    if metadata.plan is not None:
        same = metadata.plan == plan_digest(collection.plan())
    else:
        # Written before files named their plan: compare everything that the file records.
        same = (
            wanted == found
            and finished.instances == collection.instances
            and set(metadata.behaviours) == set(collection.behaviours.values())
        )
    if not same:
        finished.close()
        kind = "recipe" if wanted == found else "kind"
        raise DataError(
            f"{target} is a finished dataset of another {kind} ({found[0]}, seed {found[1]}, "
            f"{found[2]:,} episodes); choose another name, or omit --resume to replace it."
        )
    collection.progress.message(f"{target} is complete; nothing to resume.")
    return finished


def _collect_parts(collection: Collection, place: Place, resume: bool, restart: bool) -> Dataset:
    """Shards as parts of the dataset itself, and a manifest that makes them one."""
    observation_dim, num_actions = spaces(collection.record)
    used = tuple(dict.fromkeys(episode.behaviour for episode in collection.planned))
    record = collection.record
    header = Header(
        action_space=Finite.of(num_actions),
        observation_dim=observation_dim,
        instances=tuple(collection.instances),
        metadata=Metadata(
            family=record.name,
            family_arguments={"max_episode_steps": collection.max_steps},
            observation_names=record.observation_names,
            action_names=record.action_names,
            behaviours=tuple(collection.behaviours[name] for name in used),
            root_seed=collection.seed,
            versions=written_by(),
            probe_steps=collection.probe_steps,
            extra=collection.extra,
            plan=plan_digest(collection.plan()),
        ),
        content_hash=None,
    )
    partition = Partition(place)
    if partition.open(collection.plan(), resume, restart):
        partition.release()
        collection.progress.message(f"{place} is complete; nothing to resume.")
        return load_dataset(place)
    try:
        expert = _place_expert(collection, partition) if collection.needs_expert else None
        shards = collection.shards
        parts = partition.finished(len(shards))
        targets: dict[int, Path | PartTarget] = {
            number: PartTarget(place, partition.part(number), header, number * SHARD, used)
            for number in range(len(shards))
            if number not in parts
        }
        for number, made in _run(collection, targets, expert).items():
            if made.part is not None:
                parts[number] = made.part
        hidden = dict(zip(collection.instances, collection.hiddens, strict=True))
        planned = collection.planned
        partition.publish(
            header,
            [parts[number] for number in range(len(shards))],
            hidden_table(hidden, header.instances),
            instance=np.array([one.instance for one in planned], dtype=np.int64),
            behaviour=np.array([used.index(one.behaviour) for one in planned], dtype=np.int64),
            seed=np.array(
                [reset_seed(collection.seed, collection.recipe.instances, one) for one in planned],
                dtype=np.int64,
            ),
        )
    finally:
        partition.release()
    return load_dataset(place)


def _place_expert(collection: Collection, partition: Partition) -> Place:
    """The expert where every worker finds it; its training resumes where the place is local."""
    record, recipe, seed = collection.record, collection.recipe, collection.seed
    if isinstance(partition.place, Path):
        return train_expert(record, recipe, seed, partition.place, collection.progress)
    if EXPERT not in partition.folder.sizes():
        with tempfile.TemporaryDirectory() as scratch:
            made = train_expert(record, recipe, seed, Path(scratch), collection.progress)
            partition.folder.write(EXPERT, lambda path: path.write_bytes(made.read_bytes()))
    return partition.place


def _run(
    collection: Collection, targets: Mapping[int, Path | PartTarget], expert: Place | None
) -> dict[int, Made]:
    """Run the shards that have a target; what was made, by shard."""
    shards, policy = collection.shards, collection.policy
    make_job = functools.partial(
        Job,
        family=collection.family,
        instances=collection.recipe.instances,
        seed=collection.seed,
        max_steps=collection.max_steps,
        probe_steps=collection.probe_steps,
        policy=policy if isinstance(policy, str) else None,
        expert=expert,
        recipe=collection.recipe,
    )
    jobs = [
        make_job(shard=number, episodes=shards[number], target=target)
        for number, target in targets.items()
    ]
    run = run_job
    if policy is not None and not isinstance(policy, str):
        run = functools.partial(run_job, function=policy)
    progress = collection.progress
    progress.start("episodes", len(collection.planned), "steps")
    complete = len(collection.planned) - sum(len(job.episodes) for job in jobs)
    steps = 0
    found: dict[int, Made] = {}
    under_way: dict[int, tuple[float, int]] = {}

    def update() -> None:
        episodes = complete + sum(one for one, _ in under_way.values())
        progress.update(episodes, steps=steps + sum(more for _, more in under_way.values()))

    def heard(job: Job, done: tuple[float, int]) -> None:
        under_way[job.shard] = done
        update()

    for outcome in run_tasks(
        run, jobs, engine=collection.engine, workers=collection.workers, heard=heard
    ):
        under_way.pop(outcome.task.shard, None)
        made = found[outcome.task.shard] = outcome.result()
        steps += made.steps
        complete += len(outcome.task.episodes)
        update()
    progress.finish()
    return found


def train_expert(
    family: Family, recipe: Recipe, seed: int, folder: Path, progress: Progress
) -> Path:
    """The file of the trained expert in `folder`; training continues where it was interrupted.

    An expert that comes with the family is copied there instead of trained.
    """
    from sept_offline.collect.expert import ExpertStage
    from sept_offline.collect.shipped_experts import shipped_expert

    finished, unfinished = folder / EXPERT, folder / "expert-training.safetensors"
    if finished.exists():
        return finished
    shipped = shipped_expert(family, recipe.expert, seed)
    if shipped is not None:
        write_atomically(finished, lambda path: shutil.copyfile(shipped, path))
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


def _is_registered(family: Family) -> bool:
    try:
        return registered_family(family.name) is family
    except FamilyError:
        return False

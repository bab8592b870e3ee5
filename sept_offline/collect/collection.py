"""From a family and a recipe to a dataset: shards become parts, and parts a directory or a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.collect.expert_files import place_expert, shipped_expert
from sept_offline.collect.partition import Partition, plan_digest
from sept_offline.collect.recipe import (
    EPISODES_PER_INSTANCE,
    Recipe,
    interleave,
    load_recipe,
    parse_behaviour,
    plain_recipe,
)
from sept_offline.collect.rollout import SHARD, Job, Planned, load_policy, reset_seed, run_job
from sept_offline.data import Dataset, load_dataset
from sept_offline.data.filesystems import Place, Remote, locate
from sept_offline.data.parquet import Manifest, WrittenPart, join_parts
from sept_offline.data.records import Metadata
from sept_offline.data.source import Header
from sept_offline.data.validation import hidden_table
from sept_offline.data.writer import written_by
from sept_offline.engines import check_engine, run_tasks
from sept_offline.environments import spaces
from sept_offline.errors import ConfigError, DataError, FamilyError
from sept_offline.family import Family, Hidden, load_family, registered_family
from sept_offline.files import refuse_links
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import root_seed


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

    `out` is a file (`.h5` or `.parquet`), or a directory that the workers fill with one Parquet
    file per shard: a path without a suffix, or a URI of any filesystem that pyarrow supports.
    `overrides` replaces values of the recipe, by default the family's: `behaviour`, `episodes`,
    `instances`, `max_steps`. `policy` is your own behaviour. The content depends only on the
    family, the recipe and the seed, not on the format, the engine, the number of workers, or how
    often the process was killed and resumed.
    """
    check_engine(engine)
    seed = root_seed(seed)
    progress = progress or Silent()
    elsewhere = workers > 1 or engine != "local"
    target = locate(out)
    if isinstance(target, Path):
        target = target.absolute()  # workers on other machines can resolve it too
    file = _file(target)
    collection = decide(family, recipe, overrides, policy, seed, elsewhere)
    if not collection.is_portable:
        progress.message(
            "No trained expert comes with this recipe and seed, so one is trained here; on another "
            "processor the same command can log different episodes."
        )
    place = target
    if file is not None:
        place = file.with_name(f"{file.name}.partial")
        refuse_links(place.parent, [place.name])
        if resume and file.exists() and not place.exists():
            return _finished_file(collection, file, progress)
    partition = Partition(place, file)
    if partition.open(collection.plan, resume, restart):
        partition.release()
        progress.message(f"{place} is complete; nothing to resume.")
        return load_dataset(place)
    try:
        if collection.needs_expert:
            place_expert(collection.record, collection.recipe, seed, partition.folder, progress)
        parts = partition.finished(len(collection.shards))
        parts |= _run(collection, partition, set(parts), engine, workers, progress)
        manifest = _manifest(collection, [parts[number] for number in sorted(parts)])
        hidden = dict(zip(collection.instances, collection.hiddens, strict=True))
        partition.publish(manifest, hidden_table(hidden, collection.instances))
    finally:
        partition.release()
    return load_dataset(target)


def _file(target: Place) -> Path | None:
    """The target if it is a file; None if its name makes it a directory of parts."""
    if isinstance(target, Remote):
        if target.suffix in (".h5", ".hdf5", ".parquet"):
            raise ConfigError(
                f"A dataset at {target} is a directory of Parquet files; remove {target.suffix}."
            )
        return None
    if target.suffix not in (".h5", ".parquet", ""):
        raise ConfigError(
            f"{target} must end in .h5 or .parquet, or have no suffix for a directory."
        )
    return target if target.suffix else None


def _manifest(collection: Collection, parts: list[WrittenPart]) -> Manifest:
    planned, names = collection.planned, collection.behaviours
    return join_parts(
        collection.header,
        parts,
        instance=np.array([episode.instance for episode in planned], dtype=np.int64),
        behaviour=np.array([names.index(episode.behaviour) for episode in planned], dtype=np.int64),
        seed=np.array(collection.reset_seeds(), dtype=np.int64),
    )


def _run(
    collection: Collection,
    partition: Partition,
    finished: set[int],
    engine: str,
    workers: int,
    progress: Progress,
) -> dict[int, WrittenPart]:
    """Run the shards that are not finished; their parts, by number."""
    policy = collection.policy
    jobs = [
        Job(
            shard=number,
            family=collection.family,
            seed=collection.seed,
            max_steps=collection.max_steps,
            probe_steps=collection.probe_steps,
            episodes=episodes,
            policy=policy if isinstance(policy, str) else None,
            recipe=collection.recipe,
            behaviours=collection.behaviours,
            header=collection.header,
            place=partition.place,
            part=partition.part(number),
        )
        for number, episodes in enumerate(collection.shards)
        if number not in finished
    ]
    run = run_job
    if policy is not None and not isinstance(policy, str):
        run = functools.partial(run_job, function=policy)
    progress.start("episodes", len(collection.planned), "steps")
    complete = len(collection.planned) - sum(len(job.episodes) for job in jobs)
    steps = 0
    made: dict[int, WrittenPart] = {}
    under_way: dict[int, tuple[float, int]] = {}

    def update() -> None:
        episodes = complete + sum(done for done, _ in under_way.values())
        progress.update(episodes, steps=steps + sum(more for _, more in under_way.values()))

    def heard(job: Job, done: tuple[float, int]) -> None:
        under_way[job.shard] = done
        update()

    for outcome in run_tasks(run, jobs, engine=engine, workers=workers, heard=heard):
        under_way.pop(outcome.task.shard, None)
        part = made[outcome.task.shard] = outcome.result()
        steps += int(part.length.sum())
        complete += len(outcome.task.episodes)
        update()
    progress.finish()
    return made


def _finished_file(collection: Collection, target: Path, progress: Progress) -> Dataset:
    """Return the finished file if it is the requested dataset; raise if it is another one."""
    finished = load_dataset(target)
    metadata = finished.metadata
    known = (
        metadata.family,
        metadata.root_seed,
        finished.num_episodes,
        metadata.family_arguments.get("max_episode_steps"),
        metadata.probe_steps,
    )
    wanted = (
        collection.record.name,
        collection.seed,
        len(collection.planned),
        collection.max_steps,
        collection.probe_steps,
    )
    if metadata.plan is not None:
        same = metadata.plan == plan_digest(collection.plan)
    else:
        # Written before files named their plan: compare everything that the file records.
        same = (
            wanted == known
            and finished.instances == collection.instances
            and set(metadata.behaviours) == set(collection.names.values())
        )
    if not same:
        finished.close()
        kind = "recipe" if wanted == known else "kind"
        raise DataError(
            f"{target} is a finished dataset of another {kind} ({known[0]}, seed {known[1]}, "
            f"{known[2]:,} episodes); choose another name, or omit --resume to replace it."
        )
    progress.message(f"{target} is complete; nothing to resume.")
    return finished


# What is decided before the first episode


@dataclass(frozen=True)
class Collection:
    """All that determines a dataset."""

    record: Family
    family: str | Family
    """The name by which workers load it."""
    recipe: Recipe
    hiddens: tuple[Hidden, ...]
    seed: int
    policy: str | Callable[..., Any] | None
    planned: tuple[Planned, ...]
    names: dict[str, str]
    """Planned name of a behaviour to logged name, in the order of planning."""

    @property
    def max_steps(self) -> int:
        """The limit of an episode."""
        return self.recipe.max_steps or self.record.train_steps

    @property
    def probe_steps(self) -> int:
        """Uniform steps at the start of an episode."""
        steps = self.recipe.probe_steps
        return self.record.probe_steps if steps is None else steps

    @property
    def shards(self) -> list[tuple[Planned, ...]]:
        """The episodes in the pieces that tasks run."""
        return [self.planned[i : i + SHARD] for i in range(0, len(self.planned), SHARD)]

    @property
    def instances(self) -> list[str]:
        """The ids of the instances, in order."""
        return [f"{self.recipe.instances}-{index}" for index in range(len(self.hiddens))]

    @property
    def behaviours(self) -> tuple[str, ...]:
        """The planned names of those that act, in the order of their first episodes."""
        return tuple(dict.fromkeys(episode.behaviour for episode in self.planned))

    @property
    def needs_expert(self) -> bool:
        """Whether an expert must be trained first."""
        return any(name in ("replay", "medium", "expert") for name in self.names)

    @cached_property
    def is_portable(self) -> bool:
        """Whether no expert is trained here, so that the data are the same on every processor.

        That holds for the shipped families; what a user's own environment computes is theirs.
        """
        if not self.needs_expert:
            return True
        return shipped_expert(self.record, self.recipe.expert, self.seed) is not None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The values that a resumed collection must match."""
        return {
            "family": self.record.name,
            "seed": self.seed,
            "policy": self.names["policy"] if self.policy is not None else None,
            "recipe": plain_recipe(self.recipe),
            "instances": [dict(hidden) for hidden in self.hiddens],
            "max_steps": self.max_steps,
            "probe_steps": self.probe_steps,
            "shard": SHARD,
        }

    @cached_property
    def header(self) -> Header:
        """The header of the dataset, but for its hash."""
        observation_dim, space = spaces(self.record)
        extra: dict[str, Any] = {"latent_dim": self.record.latent_dim}
        if isinstance(self.family, str) and ":" in self.family:
            extra["family_object"] = self.family
        if self.needs_expert:
            extra["expert"] = "shipped" if self.is_portable else "trained here"
        return Header(
            action_space=space,
            observation_dim=observation_dim,
            instances=tuple(self.instances),
            metadata=Metadata(
                family=self.record.name,
                family_arguments={"max_episode_steps": self.max_steps},
                observation_names=self.record.observation_names,
                action_names=self.record.action_names,
                behaviours=tuple(self.names[name] for name in self.behaviours),
                root_seed=self.seed,
                versions=written_by(),
                probe_steps=self.probe_steps,
                extra=extra,
                plan=plan_digest(self.plan),
            ),
            content_hash=None,
        )

    def reset_seeds(self) -> list[int]:
        """The reset seeds of all episodes."""
        split = self.recipe.instances
        return [reset_seed(self.seed, split, episode) for episode in self.planned]


def decide(
    family: str | Family,
    recipe: Recipe | str | Path | None,
    overrides: Mapping[str, Any] | None,
    policy: str | Callable[..., Any] | None,
    seed: int,
    elsewhere: bool,
) -> Collection:
    """The collection that a user asks for; `elsewhere`: its episodes run in other processes."""
    record = load_family(family)
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(record, Path(recipe) if recipe else None, overrides)
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
    if elsewhere and isinstance(family, Family):
        raise ConfigError(
            "Several workers need a family by name; register it, or pass it as "
            "package.module:object."
        )
    if elsewhere and policy is not None and not isinstance(policy, str):
        raise ConfigError("Several workers need a policy as package.module:object.")
    if isinstance(policy, str):
        load_policy(policy)  # here, so that a wrong name leaves nothing behind
    policy_name = policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")
    planned = Collection(
        record=record,
        family=family,
        recipe=recipe,
        hiddens=tuple(hiddens),
        seed=seed,
        policy=policy,
        planned=tuple(plan_episodes(len(hiddens), episodes, shares)),
        names={name: policy_name if name == "policy" else name for name in shares},
    )
    if planned.needs_expert:
        _check_expert(planned)
    return planned


def _check_expert(planned: Collection) -> None:
    """Refuse an expert that cannot act in these instances, or whose actions have no density."""
    record, recipe = planned.record, planned.recipe
    named = {name for hidden in planned.hiddens for name in hidden}
    unknown = sorted(named - set(record.hidden_names))
    if unknown:
        raise ConfigError(
            f"Split {recipe.instances!r} names the hidden parameter {unknown[0]!r}, which no "
            "training instance has, so an expert has not learned from it; log another behaviour "
            "there."
        )
    if recipe.expert.noise == 0 and spaces(record)[1].shape:
        raise ConfigError(
            "expert.noise is 0, but continuous actions without noise have no density; expected "
            "above 0."
        )


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


def _is_registered(family: Family) -> bool:
    try:
        return registered_family(family.name) is family
    except FamilyError:
        return False

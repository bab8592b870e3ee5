"""From a family and a recipe to a dataset: shards become parts, and parts a directory or a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.collect.expert_files import place_expert
from sept_offline.collect.jobs import Job, run_job
from sept_offline.collect.partition import Partition, PartTarget, plan_digest
from sept_offline.collect.plan import SHARD, Collection, decide
from sept_offline.collect.recipe import Recipe
from sept_offline.data import Dataset, load_dataset
from sept_offline.data.filesystems import Place, Remote, locate
from sept_offline.data.parquet import Manifest, WrittenPart, join_parts
from sept_offline.data.validation import hidden_table
from sept_offline.engines import check_engine, run_tasks
from sept_offline.errors import ConfigError, DataError
from sept_offline.family import Family
from sept_offline.files import refuse_links
from sept_offline.progress import Progress, Silent


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
    progress = progress or Silent()
    elsewhere = workers > 1 or engine != "local"
    target = locate(out)
    if isinstance(target, Path):
        target = target.absolute()  # workers on other machines can resolve it too
    file = _file(target)
    collection = decide(family, recipe, overrides, policy, seed, elsewhere)
    if not collection.is_portable:
        progress.message(
            "No trained expert comes with this recipe and seed, so one is trained here: on another "
            "processor the same command gives other episodes."
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
    """The target if it is a file; None where it becomes a directory of parts, by its name."""
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
        instance=np.array([one.instance for one in planned], dtype=np.int64),
        behaviour=np.array([names.index(one.behaviour) for one in planned], dtype=np.int64),
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
    policy, header = collection.policy, collection.header
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
            target=PartTarget(
                partition.place,
                partition.part(number),
                header,
                number * SHARD,
                collection.behaviours,
            ),
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
        episodes = complete + sum(one for one, _ in under_way.values())
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
    """What there is to resume where the file is whole: nothing, if it is the one asked for."""
    finished = load_dataset(target)
    metadata = finished.metadata
    found = (
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
            wanted == found
            and finished.instances == collection.instances
            and set(metadata.behaviours) == set(collection.names.values())
        )
    if not same:
        finished.close()
        kind = "recipe" if wanted == found else "kind"
        raise DataError(
            f"{target} is a finished dataset of another {kind} ({found[0]}, seed {found[1]}, "
            f"{found[2]:,} episodes); choose another name, or omit --resume to replace it."
        )
    progress.message(f"{target} is complete; nothing to resume.")
    return finished

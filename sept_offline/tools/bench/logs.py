"""The logs of a bench: collected once by recipe, thinned where a variant asks for less."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.collect import collect_dataset, load_recipe
from sept_offline.collect.recipe import EPISODES_PER_INSTANCE
from sept_offline.data import Dataset, DatasetWriter, load_dataset
from sept_offline.errors import DataError
from sept_offline.family import Family, load_family
from sept_offline.seals import read_sealed, write_json
from sept_offline.seeding import generator
from sept_offline.settings import to_plain
from sept_offline.tools.bench.plan import Cell, DataSettings
from sept_offline.tools.bench.store import UNSAFE, differences


@dataclass(frozen=True)
class Logs:
    """One dataset of a bench: its family, seed and settings, and its path."""

    spec: str
    seed: int
    data: DataSettings
    path: Path
    whole: Logs | None = None
    """The collection that this is a part of; None for a whole collection."""
    given: bool = False
    """Whether the user gave it; then it is only read."""


def logs_of(cell: Cell, folder: Path) -> Logs:
    """The logs that `cell` learns from, in `folder` unless they were given."""
    if cell.dataset is not None:
        return _given_logs(cell, cell.dataset, folder)
    family, wanted = load_family(cell.spec), cell.variant.data
    recipe = load_recipe(family)
    count = len(family.instances(recipe.instances))
    total = wanted.total or recipe.episodes or EPISODES_PER_INSTANCE * count
    per_instance = wanted.episodes
    if per_instance is not None and per_instance * count > total:
        total, per_instance = per_instance * count, None
    usual = recipe.probe_steps if recipe.probe_steps is not None else family.probe_steps
    longer = wanted.probe_steps if (wanted.probe_steps or 0) > usual else None
    collected = DataSettings(
        behaviour=wanted.behaviour,
        total=None if total == recipe.episodes else total,
        probe_steps=longer,
    )
    whole = Logs(cell.spec, cell.data_seed, collected, folder / _file(cell, collected))
    thinned = replace(
        collected,
        episodes=per_instance,
        instances=wanted.instances if wanted.instances != count else None,
        propensities=wanted.propensities,
    )
    if thinned == collected:
        return whole
    return Logs(cell.spec, cell.data_seed, thinned, folder / _file(cell, thinned), whole)


def _given_logs(cell: Cell, path: Path, folder: Path) -> Logs:
    """Logs that the user has, or the part of them that the variant leaves."""
    wanted = cell.variant.data
    whole = Logs(cell.spec, cell.data_seed, DataSettings(), path, given=True)
    part = DataSettings(
        episodes=wanted.episodes, instances=wanted.instances, propensities=wanted.propensities
    )
    if part == DataSettings():
        return whole
    return Logs(cell.spec, cell.data_seed, part, folder / _file(cell, part), whole)


def provided(logs: Logs) -> bool:
    """Whether the dataset is on disk; refuses a dataset of another recipe."""
    if logs.given:
        return True
    record = logs.path.with_suffix(".json")
    if not (logs.path.exists() and record.exists()):
        return False
    stored, wanted = read_sealed(record, DataError), _describe(logs)
    changed = differences(stored, wanted)
    if ("dataset" in stored) != ("dataset" in wanted):
        # A part of given logs and one of collected logs may have the same name.
        changed.insert(0, "dataset")
    if changed:
        raise DataError(
            f"{logs.path} was collected with another {', '.join(changed[:3])}; choose another "
            "--out, or delete it to have it collected again."
        )
    return True


def provide(logs: Logs) -> None:
    """Collect the dataset, or write it as a part of a collection; then record its recipe."""
    if logs.whole is None:
        given = logs.data
        overrides = {
            "behaviour": given.behaviour,
            "episodes": given.total,
            "probe_steps": given.probe_steps,
        }
        collect_dataset(
            logs.spec,
            logs.path,
            overrides={key: value for key, value in overrides.items() if value is not None},
            seed=logs.seed,
            resume=True,
        ).close()
    else:
        with load_dataset(logs.whole.path, check=True) as data:
            thin(data, logs.path, logs.data, logs.seed)
    write_json(logs.path.with_suffix(".json"), _describe(logs))


def thin(data: Dataset, out: Path, wanted: DataSettings, seed: int) -> None:
    """Write the part of `data` that `wanted` leaves: instances, episodes of each, columns.

    Episodes are drawn without replacement, so that fewer of them are of the same mixture; those of
    a smaller number are among those of a larger one. Nothing is left of instances left out.
    """
    places = np.arange(len(data.instances))
    if wanted.instances is not None:
        places = np.linspace(0, len(places) - 1, wanted.instances).round().astype(np.int64)
    ids = [data.instances[place] for place in places]
    hidden = data.hidden
    rows = places.tolist()
    known = None if hidden is None else {data.instances[row]: hidden[row] for row in rows}
    with DatasetWriter.like(data, out, instances=ids, hidden=known) as writer:
        less = {} if wanted.propensities == "exact" else {"propensities": None}
        for name in ids:
            episodes = data.episodes(name)
            drawn = generator(seed, "bench", "episodes", name).permutation(len(episodes))
            for number in np.sort(drawn[: wanted.episodes]):
                writer.copy(episodes[int(number)], **less)


def _file(cell: Cell, data: DataSettings) -> str:
    usual = vars(DataSettings())
    settings = [f"{key}={value}" for key, value in vars(data).items() if value != usual[key]]
    return UNSAFE.sub("_", "~".join([f"{cell.family}-{cell.data_seed}", *settings])) + ".h5"


def _describe(logs: Logs) -> dict[str, Any]:
    """The origin of the dataset, for its JSON record."""
    family = load_family(logs.spec)
    source: dict[str, Any] = {"family": family.name, "seed": logs.seed}
    if logs.whole is not None and logs.whole.given:
        with load_dataset(logs.whole.path) as data:
            source["dataset"] = data.content_hash
    else:
        recipe = load_recipe(family)
        source["recipe"] = to_plain(recipe)
        source["world"] = logged_world(family, recipe.instances)
    return source | {"laid over": to_plain(logs.data)}


def logged_world(family: Family, split: str) -> dict[str, Any]:
    """For the logs: hidden parameters of the split they come from, and the limit of steps."""
    return {"logged": _digest(family, split), "train_steps": family.train_steps}


def tested_world(family: Family, split: str) -> dict[str, Any]:
    """The same for the test episodes."""
    return {"tested": _digest(family, split), "test_steps": family.test_steps}


def _digest(family: Family, split: str) -> str:
    """Hash of the hidden parameters of a split, instance by instance."""
    hidden = [
        {name: float(value) for name, value in values.items()} for values in family.instances(split)
    ]
    return hashlib.sha256(json.dumps(hidden, sort_keys=True).encode()).hexdigest()[:16]

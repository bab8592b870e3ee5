"""Several datasets of one system as one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.actions.space import named
from sept_offline.data.conversion import check_content
from sept_offline.data.dataset import Dataset, load_dataset
from sept_offline.data.filesystems import Place, kind_of, locate
from sept_offline.data.writer import DatasetWriter
from sept_offline.errors import DataError
from sept_offline.files import real_path
from sept_offline.progress import Progress, Silent

EVERY = 500
"""Episodes between two updates of the progress."""


def merge(
    sources: Sequence[str | Place],
    target: str | Path,
    *,
    separate: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Write the episodes of several datasets of one system to `target` (.h5 or .parquet).

    The datasets must have the same action space and number of observed columns, and must not
    contradict each other in the family, in names, or in an instance's hidden parameters. An id that
    two datasets share is one instance; with `separate` every id gets its file's name as a prefix,
    and none is shared. Probabilities and hidden parameters that a dataset does not know stay
    unknown. The probe length is the shortest that any of them names; of other metadata, what all
    agree on is kept. Episodes are read one by one; the same sources in the same order give the same
    bytes.
    """
    target = Path(target)
    kind_of(target)
    if isinstance(sources, str) or len(sources) < 2:
        raise DataError("Name at least two datasets to merge.")
    for source in sources:
        place = locate(source)
        if isinstance(place, Path) and real_path(place) == real_path(target):
            raise DataError(f"{target} is one of the datasets to merge; write to another file.")
    progress = progress or Silent()
    with contextlib.ExitStack() as stack:
        every = [stack.enter_context(load_dataset(source)) for source in sources]
        _check_alike(every)
        for data in every:
            check_content(data)
        _check_once(every)
        ids = _instance_ids(every, separate)
        _write(every, ids, target, progress)
    return load_dataset(target)


def _check_alike(every: Sequence[Dataset]) -> None:
    """Refuse datasets of different systems, and say in what they differ."""
    first = every[0]
    for other in every[1:]:
        mine, theirs = first.observation_dim, other.observation_dim
        if mine != theirs:
            raise _contradiction(first, other, "observation_dim", mine, theirs)
        if _unnamed(first) != _unnamed(other):
            actions, others = first.action_space.expected, other.action_space.expected
            raise _contradiction(first, other, "the action space", actions, others)
    for what in ("family", "observation_names", "action_names"):
        known = [data for data in every if _said(data, what) is not None]
        for other in known[1:]:
            mine, theirs = _said(known[0], what), _said(other, what)
            if mine != theirs:
                raise _contradiction(known[0], other, what, mine, theirs)


def _said(data: Dataset, what: str) -> Any:
    """What a dataset's metadata says; a box always has names, and default ones say nothing."""
    value = getattr(data.metadata, what)
    width = data.action_space.width
    return None if what == "action_names" and value == named(None, width, "actions") else value


def _unnamed(data: Dataset) -> dict[str, Any]:
    """The action space without its names, which a dataset need not know."""
    return {**data.action_space.describe(), "names": data.action_space.width}


def _contradiction(
    first: Dataset, other: Dataset, what: str, mine: object, theirs: object
) -> DataError:
    return DataError(
        f"{first.path} and {other.path} are not of one system: {what} is {mine!r:.200} in the "
        f"first and {theirs!r:.200} in the second."
    )


def _check_once(every: Sequence[Dataset]) -> None:
    """Refuse the same content twice: its episodes would count double."""
    seen: dict[str, Dataset] = {}
    for data in every:
        other = seen.setdefault(data.content_hash, data)
        if other is not data:
            raise DataError(
                f"{other.path} and {data.path} contain the same episodes; name only one of them."
            )


def _instance_ids(every: Sequence[Dataset], separate: bool) -> list[list[str]]:
    """The ids in the merged dataset of each dataset's instances."""
    if not separate:
        return [data.instances for data in every]
    stems = [_stem(data) for data in every]
    prefixes = [
        stem if stems.count(stem) == 1 else f"{stem}-{number}" for number, stem in enumerate(stems)
    ]
    if len(set(prefixes)) < len(prefixes):
        prefixes = [f"{number}-{stem}" for number, stem in enumerate(stems)]
    return [
        [f"{prefix}/{name}" for name in data.instances]
        for prefix, data in zip(prefixes, every, strict=True)
    ]


def _stem(data: Dataset) -> str:
    return Path(str(data.path)).stem


def _hidden(every: Sequence[Dataset], ids: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """The hidden parameters of each merged instance; empty if no dataset has any."""
    known: dict[str, dict[str, float]] = {}
    by: dict[tuple[str, str], Dataset] = {}
    for data, names in zip(every, ids, strict=True):
        for row, instance in enumerate(names):
            values = known.setdefault(instance, {})
            for name, value in (data.hidden[row] if data.hidden is not None else {}).items():
                if np.isnan(value):
                    continue
                if values.setdefault(name, value) != value:
                    raise DataError(
                        f"{by[instance, name].path} and {data.path} contradict each other: the "
                        f"hidden parameter {name!r} of instance {instance!r} is {values[name]} in "
                        f"the first and {value} in the second; if they are different instances, "
                        "add --separate (separate=True)."
                    )
                by.setdefault((instance, name), data)
    return known if any(known.values()) else {}


def _write(
    every: Sequence[Dataset], ids: Sequence[Sequence[str]], target: Path, progress: Progress
) -> None:
    metas = [data.metadata for data in every]

    def given(what: str) -> Any:
        """The one value that the datasets give, if any gives one."""
        return next((said for data in every if (said := _said(data, what)) is not None), None)

    probes = [meta.probe_steps for meta in metas if meta.probe_steps is not None]
    seeds = {meta.root_seed for meta in metas}
    hidden = _hidden(every, ids)
    total, done = sum(data.num_episodes for data in every), 0
    progress.start("merging", float(total), "episodes")
    with DatasetWriter(
        target,
        action_space=every[0].action_space,
        observation_dim=every[0].observation_dim,
        family=given("family"),
        family_arguments=_agreed([meta.family_arguments for meta in metas]),
        observation_names=given("observation_names"),
        action_names=given("action_names"),
        root_seed=seeds.pop() if len(seeds) == 1 else None,
        hidden=hidden or None,
        instances=list(dict.fromkeys(name for names in ids for name in names)),
        probe_steps=min(probes, default=None),
        extra={
            **_agreed([meta.extra for meta in metas]),
            "merged": [
                {"content_hash": data.content_hash, "episodes": data.num_episodes} for data in every
            ],
        },
    ) as writer:
        for data, names in zip(every, ids, strict=True):
            renamed = dict(zip(data.instances, names, strict=True))
            for episode in data.episodes():
                writer.copy(episode, instance=renamed[episode.instance])
                done += 1
                if done % EVERY == 0:
                    progress.update(done)
        progress.update(total)
    progress.finish()


def _agreed(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that all have, with the same value."""
    first, *others = every
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }

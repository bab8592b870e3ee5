"""Unfinished collections: shards in a directory next to the dataset until it is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from sept_offline.collect.plans import check_plan, parse_plan, plan_digest
from sept_offline.collect.rollout import Logged
from sept_offline.errors import DataError
from sept_offline.files import (
    lock_file,
    refuse_foreign,
    refuse_links,
    remove_ours,
    write_text,
    writing,
)
from sept_offline.limits import read_whole
from sept_offline.seals import load_arrays, save_arrays

ARRAYS = ("observations", "actions", "rewards", "propensities")
PLAN = "plan.json"
OURS = re.compile(r"lock|plan\.json|shard-\d{6}-[0-9a-f]{8}\.safetensors|expert[\w-]*\.safetensors")
"""File names of an unfinished collection; a folder with other files is not ours."""


class Staging:
    """The directory `<dataset>.partial`: a plan, an expert's snapshot, one file a shard."""

    def __init__(self, dataset: Path) -> None:
        self.dataset = dataset
        self.path = dataset.with_name(dataset.name + ".partial")
        self._lock: IO[str] | None = None
        self._digest = ""

    def open(self, plan: Mapping[str, Any], resume: bool, restart: bool) -> None:
        """Begin, or continue what the same plan began; anything else is refused."""
        refuse_links(self.path.parent, [self.path.name])
        refuse_foreign(self.path, OURS)
        busy = f"Another process is collecting into {self.dataset}; wait for it to end."
        with writing(self.path):
            self._lock = lock_file(self.path / "lock", DataError(busy))
        try:
            refuse_foreign(self.path, OURS)
            self._prepare(plan, resume, restart)
        except BaseException:
            self.release()
            raise

    def _prepare(self, plan: Mapping[str, Any], resume: bool, restart: bool) -> None:
        plan_file = self.path / PLAN
        self._digest = plan_digest(plan)
        # Without its plan a shard cannot be used.
        if restart or not plan_file.exists():
            self._clear()
        if not plan_file.exists():
            write_text(plan_file, json.dumps(plan, indent=2) + "\n")
        elif resume:
            found = parse_plan(read_whole(plan_file, DataError), self.path)
            check_plan(found, plan, self.path)
        else:
            raise DataError(
                f"{self.path} contains an unfinished collection; add --resume to continue it "
                "or --restart to discard it."
            )

    def release(self) -> None:
        """Let another process continue."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def shard(self, index: int) -> Path:
        """The file of one shard; its name is unique to its plan."""
        return self.path / f"shard-{index:06d}-{self._digest[:8]}.safetensors"

    def finished(self, count: int) -> set[int]:
        """The shards that are complete."""
        return {index for index in range(count) if self.shard(index).exists()}

    def _clear(self) -> None:
        """Delete everything but the lock, the plan last: a kill leaves shards of a known plan."""
        left = [entry for entry in self.path.iterdir() if entry.name != "lock"]
        for entry in sorted(left, key=lambda entry: entry.name == PLAN):
            entry.unlink()

    def discard(self) -> None:
        """The dataset is whole: nothing here is needed any more."""
        self._clear()
        remove_ours(self.path, OURS)
        self.release()


def save_shard(path: Path, episodes: Sequence[Logged]) -> None:
    """Write a shard's episodes as concatenated columns, whole or not at all.

    The folder must be there: a worker that outlives its collection must not bring it back.
    """
    if not path.parent.is_dir():
        raise DataError(
            f"{path.parent} does not exist; another process has discarded this collection."
        )
    columns = {name: np.concatenate([getattr(e, name) for e in episodes]) for name in ARRAYS}
    columns["length"] = np.array([len(e.actions) for e in episodes], dtype=np.int64)
    columns["terminated"] = np.array([e.terminated for e in episodes])
    save_arrays(path, columns)


def load_shard(path: Path) -> list[Logged]:
    """The episodes that `save_shard` wrote."""
    columns = load_arrays(path, DataError)
    if not {*ARRAYS, "length", "terminated"} <= set(columns):
        raise DataError(f"{path} is damaged: columns are missing; delete it and resume.")
    lengths = columns["length"]
    ends = np.cumsum(lengths)
    episodes = []
    for index, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        start = end - length
        episodes.append(
            Logged(
                # T + 1 observations an episode: one more row for each episode before this one.
                observations=columns["observations"][start + index : end + index + 1],
                actions=columns["actions"][start:end],
                rewards=columns["rewards"][start:end],
                propensities=columns["propensities"][start:end],
                terminated=bool(columns["terminated"][index]),
            )
        )
    return episodes

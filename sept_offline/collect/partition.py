"""Collections straight into a partitioned dataset: a plan, one part a shard, a manifest last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sept_offline.collect.rollout import Logged
from sept_offline.data.checks import check_episode
from sept_offline.data.filesystems import Folder, Place
from sept_offline.data.manifest import MANIFEST, PLAN
from sept_offline.data.partitions import WrittenPart, publish_parts, read_part, write_part
from sept_offline.data.records import HiddenTable, Int64
from sept_offline.data.source import Header, canonical_json
from sept_offline.errors import DataError
from sept_offline.files import lock_file

EXPERT = "expert.safetensors"
LOCK = "_lock"


@dataclass(frozen=True)
class PartTarget:
    """Where a worker puts one shard, and what it must know of the whole to do so."""

    place: Place
    name: str
    header: Header
    first: int
    """The number of its first episode in the dataset."""
    behaviours: tuple[str, ...]
    """Planned names in the order of the header's, which may show a policy under its own."""


def save_part(
    target: PartTarget,
    logged: Sequence[Logged],
    instance: Int64,
    behaviours: Sequence[str],
    seed: Int64,
) -> WrittenPart:
    """Check a shard's episodes and write them; the plan must be there.

    A worker that outlives its collection must not bring it back, and one that cannot see it must
    not write where nobody looks.
    """
    folder = Folder(target.place)
    if PLAN not in folder.sizes():
        raise DataError(
            f"A worker finds no collection at {target.place}: it was discarded, or the workers "
            "share no such directory; name one that they share."
        )
    header = target.header
    episodes = [
        check_episode(
            place=f"episode {target.first + position} of {header.instances[instance[position]]!r}",
            num_actions=header.num_actions,
            dim=header.observation_dim,
            observations=one.observations,
            actions=one.actions,
            rewards=one.rewards,
            terminated=one.terminated,
            truncated=not one.terminated,
            propensities=one.propensities,
            seed=int(seed[position]),
        )
        for position, one in enumerate(logged)
    ]
    return write_part(
        folder,
        target.name,
        header,
        episodes,
        number=target.first + np.arange(len(episodes), dtype=np.int64),
        instance=instance,
        behaviour=np.array([target.behaviours.index(name) for name in behaviours], dtype=np.int64),
        seed=seed,
    )


class Partition:
    """A directory, local or not, that becomes a dataset when its manifest is written."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.folder = Folder(place)
        self._lock: IO[str] | None = None
        self._plan = ""

    def open(self, plan: dict[str, Any], resume: bool, restart: bool) -> bool:
        """Begin, or continue what the same plan began; True if it is finished already."""
        if isinstance(self.place, Path):
            self._acquire(self.place)
        try:
            return self._prepare(canonical_json(plan), resume, restart)
        except BaseException:
            self.release()
            raise

    def _acquire(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise DataError(f"{path} is a file; name a directory, or end the name in .parquet.")
        if path.is_dir() and not {PLAN, MANIFEST, LOCK} & set(self.folder.sizes()):
            self._check_empty(set(self.folder.sizes()))
        path.mkdir(parents=True, exist_ok=True)
        busy = f"Another process is collecting into {path}; wait for it to end."
        self._lock = lock_file(path / LOCK, DataError(busy))

    def _check_empty(self, names: set[str]) -> None:
        if names:
            raise DataError(
                f"{self.place} holds other files ({min(names)}); name a new or an empty directory."
            )

    def _prepare(self, plan: str, resume: bool, restart: bool) -> bool:
        names = set(self.folder.sizes()) - {LOCK}
        self._plan = plan
        if not names & {PLAN, MANIFEST}:
            self._check_empty(names)
        elif resume and not restart:
            found = json.loads(self.folder.read(PLAN) or b"{}")
            wanted = json.loads(plan)
            if found != wanted:
                different = [key for key in wanted if found.get(key) != wanted[key]]
                raise DataError(
                    f"{self.place} was begun with another {', '.join(different) or 'version'}; "
                    "resume with the same arguments, or add --restart to discard it."
                )
            return MANIFEST in names
        elif not restart:
            state = "a finished dataset" if MANIFEST in names else "an unfinished collection"
            raise DataError(
                f"{self.place} holds {state}; add --resume to continue it or --restart to "
                "discard it."
            )
        # The manifest first: from here on there is no dataset. The old plan goes last, so that at
        # any moment the parts are those of the plan that is there.
        if MANIFEST in names:
            self.folder.delete(MANIFEST)
        for name in sorted(names - {PLAN, MANIFEST}):
            self.folder.delete(name)
        self.folder.write_text(PLAN, plan)
        return False

    def part(self, number: int) -> str:
        """The name of one part, which tells the parts of one plan from another's."""
        digest = hashlib.sha256(self._plan.encode()).hexdigest()
        return f"part-{number:06d}-{digest[:8]}.parquet"

    def finished(self, count: int) -> dict[int, WrittenPart]:
        """The parts that are complete."""
        names = self.folder.sizes()
        there = [number for number in range(count) if self.part(number) in names]
        found = {number: read_part(self.folder, self.part(number)) for number in there}
        return {number: part for number, part in found.items() if part is not None}

    def publish(
        self,
        header: Header,
        parts: Sequence[WrittenPart],
        hidden: HiddenTable | None,
        *,
        instance: Int64,
        behaviour: Int64,
        seed: Int64,
    ) -> None:
        """Remove what is no part of the dataset, and write its manifest."""
        kept = {PLAN, LOCK, *(one.part.name for one in parts)}
        for name in sorted(set(self.folder.sizes()) - kept):
            self.folder.delete(name)
        publish_parts(
            self.folder, header, parts, hidden, instance=instance, behaviour=behaviour, seed=seed
        )

    def release(self) -> None:
        """Let another process continue."""
        if self._lock is not None and isinstance(self.place, Path):
            (self.place / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

"""The directory of a collection: a plan, one part per shard, and a manifest or a file at the
end."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sept_offline.data.filesystems import Folder, Place
from sept_offline.data.parquet import (
    MANIFEST,
    PLAN,
    Manifest,
    WrittenPart,
    find_manifest,
    read_part,
)
from sept_offline.data.parquet_source import ParquetSource
from sept_offline.data.records import HiddenTable
from sept_offline.data.source import canonical_json
from sept_offline.data.writer import publish, publish_parts
from sept_offline.errors import DataError, one_line
from sept_offline.files import TEMPORARY, Lock, Workspace, writing

LOCK = "_lock"
OURS = re.compile(
    r"_lock|_plan\.json|_manifest\.json|_privileged\.json|expert[\w-]*\.safetensors"
    r"|part-\d{6}-[0-9a-f]{8}\.parquet"
)
"""File names of a collection and its dataset; nothing else is ever deleted."""
MARKS = frozenset(("recipe", "sha256"))
"""Keys that identify a plan and a manifest as ours."""
PLAIN = {
    "family": "another family",
    "seed": "another seed",
    "policy": "another policy",
    "recipe": "another recipe",
    "instances": "other hidden parameters",
    "max_steps": "another limit of steps",
    "probe_steps": "another probe length",
    "shard": "another version of sept-offline",
}
"""What differs, for each key of a plan."""


def check_collection(folder: Folder, digest: str | None) -> None:
    """Raise if the collection of this plan was deleted or replaced by another."""
    text = folder.read(PLAN)
    if text is None:
        raise DataError(
            f"There is no collection at {folder.place}: it was discarded, or the workers "
            "cannot reach this directory; choose one that they share."
        )
    if plan_digest(parse_plan(text, folder.place)) != digest:
        raise DataError(
            f"Another process has started a collection at {folder.place}; choose another path."
        )


def _is_part(name: str) -> bool:
    """Whether a collection writes files of that name, possibly as leftovers of a kill."""
    begun = TEMPORARY.fullmatch(name)
    return OURS.fullmatch(begun["name"] if begun else name) is not None


class Partition:
    """A directory, local or not, that becomes a dataset when its manifest is written.

    With `file` it is the way to that file: it has no manifest, and is deleted in the end.
    """

    def __init__(self, place: Place, file: Path | None = None) -> None:
        self.place = place
        self.file = file
        self.folder = Folder(place)
        self._lock: Lock | None = None
        self._digest = ""

    def open(self, plan: Mapping[str, Any], resume: bool, restart: bool) -> bool:
        """Start a collection, or continue one of the same plan; True if it is already finished."""
        if isinstance(self.place, Path):
            self._acquire(self.place)
        try:
            return self._prepare(plan, resume, restart)
        except BaseException:
            self.release()
            raise

    def _acquire(self, path: Path) -> None:
        if path.exists() and not path.is_dir():
            raise DataError(
                f"{path} is a file; choose a directory, or a name that ends in .parquet."
            )
        self._refuse_foreign()
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            busy = f"Another process is collecting into {self.file or path}; wait for it to end."
            self._lock = Lock(path / LOCK, DataError(busy))

    def _refuse_foreign(self) -> None:
        """Refuse a directory with files that no collection writes; nothing is deleted there."""
        for name, size in sorted(self.folder.sizes().items()):
            if size is None or not _is_part(name):
                raise DataError(
                    f"{self.place} contains other files ({name}), which sept-offline did not "
                    "create; choose a new or empty directory."
                )

    def _prepare(self, plan: Mapping[str, Any], resume: bool, restart: bool) -> bool:
        self._refuse_foreign()
        names = set(self.folder.sizes()) - {LOCK}
        self._digest = plan_digest(plan)
        if not names & {PLAN, MANIFEST}:
            whole = [name for name in names if not TEMPORARY.fullmatch(name)]
            # Beside a file these are parts whose plan went last; without it they cannot be used.
            if whole and self.file is None:
                raise DataError(
                    f"{self.place} contains other files ({min(whole)}) and no plan of a "
                    "collection; choose a new or empty directory."
                )
        elif resume and not restart:
            text = self.folder.read(PLAN)
            check_plan(parse_plan(b"{}" if text is None else text, self.place), plan, self.place)
            if MANIFEST not in names or self._is_ours():
                return MANIFEST in names
            self.folder.delete(MANIFEST)
            return False
        elif not restart:
            state = "a finished dataset" if MANIFEST in names else "an unfinished collection"
            raise DataError(
                f"{self.place} holds {state}; add --resume to continue it or --restart to "
                "discard it."
            )
        if self.file is None:
            self._refuse_other(names)
        # The manifest first: after that there is no dataset. The old plan goes last, so that at
        # any moment the parts are those of the plan that is there.
        if MANIFEST in names:
            self.folder.delete(MANIFEST)
        for name in sorted(names - {PLAN, MANIFEST}):
            self.folder.delete(name)
        self.folder.write_text(PLAN, canonical_json(plan))
        return False

    def _refuse_other(self, names: set[str]) -> None:
        """Do not discard files whose plan and manifest come from another program.

        Beside parts, whose names nothing else has, a plan may be damaged.
        """
        described = sorted(names & {PLAN, MANIFEST})
        if not described or any(name.startswith("part-") for name in names):
            return
        for name in described:
            with contextlib.suppress(DataError):
                if parse_plan(self.folder.read(name) or b"", self.place).keys() & MARKS:
                    return
        raise DataError(
            f"{self.place} contains {described[0]}, which sept-offline did not create and will "
            "not delete; choose a new or empty directory."
        )

    def _is_ours(self) -> bool:
        """Whether the manifest belongs to this plan and not to a discarded one."""
        manifest = find_manifest(self.folder)
        # Before manifests named their plan there was none to compare.
        return manifest is not None and manifest.header.metadata.plan in (self._digest, None)

    def part(self, number: int) -> str:
        """The file name of one part, which is unique to its plan."""
        return f"part-{number:06d}-{self._digest[:8]}.parquet"

    def finished(self, count: int) -> dict[int, WrittenPart]:
        """The parts that are complete."""
        names = self.folder.sizes()
        there = [number for number in range(count) if self.part(number) in names]
        parts = {number: read_part(self.folder, self.part(number)) for number in there}
        return {number: part for number, part in parts.items() if part is not None}

    def publish(self, manifest: Manifest, hidden: HiddenTable | None) -> None:
        """Make the parts one dataset: write the manifest, or the file.

        Without locks another process may have started again: the plan is checked right
        before, so that no parts of another are removed or named, and right after.
        """
        check_collection(self.folder, self._digest)
        if self.file is not None:
            source = ParquetSource(self.place, manifest=manifest)
            try:
                with Workspace(self.file) as work:
                    publish(work, source, hidden)
            finally:
                source.close()
            self._discard()
            return
        kept = {PLAN, LOCK, *(part.name for part in manifest.parts)}
        for name in sorted(set(self.folder.sizes()) - kept):
            if _is_part(name):
                self.folder.delete(name)
        check = functools.partial(check_collection, self.folder, self._digest)
        publish_parts(self.folder, manifest, hidden, check)
        try:
            check()
        except DataError:
            if self._is_ours():
                self.folder.delete(MANIFEST)
            raise

    def _discard(self) -> None:
        """Delete everything, the plan after the parts: a kill leaves parts of a known plan."""
        for name in sorted(set(self.folder.sizes()) - {LOCK}, key=lambda name: name == PLAN):
            self.folder.delete(name)
        self.release()
        with contextlib.suppress(OSError):
            Path(str(self.place)).rmdir()

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()


def plan_digest(plan: Mapping[str, Any]) -> str:
    """One digest for each plan, however its file spells it."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_plan(text: str | bytes, where: object) -> dict[str, Any]:
    """The plan in a file; a DataError if it is damaged."""
    try:
        plan = json.loads(text)
        if not isinstance(plan, dict):
            raise ValueError(f"expected an object, found {type(plan).__name__}")
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"The plan of the collection at {where} is damaged ({one_line(error):.200}); add "
            "--restart to discard the collection."
        ) from error
    return plan


def check_plan(stored: Mapping[str, Any], wanted: Mapping[str, Any], where: object) -> None:
    """Refuse to continue what another plan began."""
    if plan_digest(stored) == plan_digest(wanted):
        return
    different = [key for key in wanted if key not in stored or stored[key] != wanted[key]]
    words = [PLAIN.get(key, f"another {key}") for key in different]
    raise DataError(
        f"{where} was started with {', '.join(words) or PLAIN['shard']}; resume with the "
        "same arguments, or add --restart to discard it."
    )

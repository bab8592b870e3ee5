"""Files that are whole or absent: one writer a path, a temporary place, fsync, rename."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO

from sept_offline.errors import DataError
from sept_offline.files import (
    behind_links,
    lock_file,
    refuse_links,
    refuse_special,
    sync_directory,
    sync_file,
    unlock_file,
    writing,
)

MARK = ".sept-offline"
"""Says that a scratch directory is ours: one without it, unless it is empty, is left alone."""


class Workspace:
    """The only writer of `path`: owns a lock and a scratch directory next to it, both hidden.

    The kernel drops the lock of a killed process, so a leftover never blocks; the next writer
    clears it away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = behind_links(path)
        self.directory = path.parent / f".{path.name}.writing"
        self._lock_path = path.parent / f".{path.name}.lock"
        if not path.parent.is_dir():
            raise DataError(f"Cannot write {path}: there is no directory {path.parent}; create it.")
        if path.is_dir():
            raise DataError(f"Cannot write {path}: it is a directory; choose a file.")
        refuse_links(path.parent, [path.name])  # a link that leads to itself
        refuse_special(path)
        busy = DataError(
            f"Another writer is at work on {path}; wait for it to finish, or write to another path."
        )
        with writing(path):
            self._lock: IO[str] | None = lock_file(self._lock_path, busy)
            try:
                self._prepare()
            except BaseException:
                unlock_file(self._lock_path, self._lock)
                raise

    def _prepare(self) -> None:
        """Create an empty scratch directory with our mark, replacing that of a killed writer."""
        if self.directory.exists():
            if any(self.directory.iterdir()) and not (self.directory / MARK).exists():
                raise DataError(
                    f"{self.directory} is not a scratch directory of this version of "
                    f"sept-offline, but is needed to write {self.path}; move it away."
                )
            self._clear()
        self.directory.mkdir()
        (self.directory / MARK).touch()

    def _clear(self) -> None:
        """The mark goes last: what a kill leaves is still known to be ours."""
        with contextlib.suppress(OSError):
            for entry in sorted(self.directory.iterdir(), key=lambda one: one.name == MARK):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self.directory.rmdir()

    def publish(self, finished: Path) -> None:
        """Replace `path` atomically by a finished file of the scratch directory."""
        sync_file(finished)
        os.replace(finished, self.path)  # noqa: PTH105
        sync_directory(self.path.parent)

    def close(self) -> None:
        """Remove the scratch directory and release the lock."""
        if self._lock is None:
            return
        self._clear()
        unlock_file(self._lock_path, self._lock)
        self._lock = None

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""Files that are whole or absent: one writer a path, a temporary place, fsync, rename."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO

from sept_offline.errors import DataError
from sept_offline.files import lock_file, sync_directory, unlock_file


class Workspace:
    """The only writer of `path`: holds a lock beside it and a scratch directory, both hidden.

    The kernel drops the lock of a killed process, so a leftover never blocks; the next writer
    clears it away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = path.parent / f".{path.name}.writing"
        self._lock_path = path.parent / f".{path.name}.lock"
        if not path.parent.is_dir():
            raise DataError(f"Cannot write {path}: there is no directory {path.parent}; make it.")
        if path.is_dir():
            raise DataError(f"Cannot write {path}: it is a directory; name a file.")
        busy = DataError(
            f"Another writer is at work on {path}; wait for it to finish, or write to another path."
        )
        try:
            self._lock: IO[str] | None = lock_file(self._lock_path, busy)
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir()
        except OSError as error:
            raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error

    def publish(self, finished: Path) -> None:
        """Put a finished file of the scratch directory in place of `path` at once."""
        with finished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(finished, self.path)  # noqa: PTH105
        sync_directory(self.path.parent)

    def close(self) -> None:
        """Remove what lies beside the path, and let the next writer in."""
        if self._lock is None:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
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

"""Files that are whole or absent: one writer a path, a temporary place, fsync, rename."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

from sept_offline.errors import DataError
from sept_offline.files import sync_directory


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
        try:
            self._lock = self._acquire()
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir()
        except OSError as error:
            raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error

    def _acquire(self) -> int:
        while True:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(lock)
                raise DataError(
                    f"Another writer is at work on {self.path}; wait for it to finish, "
                    "or write to another path."
                ) from error
            # The holder before us may have unlinked the file between our open and our lock.
            try:
                if self._lock_path.stat().st_ino == os.fstat(lock).st_ino:
                    return lock
            except FileNotFoundError:
                pass
            os.close(lock)

    def publish(self, finished: Path) -> None:
        """Put a finished file of the scratch directory in place of `path` at once."""
        with finished.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(finished, self.path)  # noqa: PTH105
        sync_directory(self.path.parent)

    def close(self) -> None:
        """Remove what lies beside the path, and let the next writer in."""
        if self._lock < 0:
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""Files that are not forced to the disk: tests write thousands, and each took milliseconds."""

from __future__ import annotations

import os


def fsync(descriptor: int) -> None:
    """What `os.fsync` gives shows only after a power cut, which no test makes.

    A descriptor that is not open is an error here too. `tests/test_files.py` asks that files are
    synced, and in which order; `tests/safety` lets it fail.
    """
    os.fstat(descriptor)


def do_not_wait() -> None:
    """From here on, in this process and those that are forked from it."""
    os.fsync = fsync

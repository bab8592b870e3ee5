"""A disk that fails once: the n-th write, sync, rename or new folder below a place."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Disk:
    """Counts what is done to files below `root`, and lets number `fail_at` fail."""

    def __init__(self, root: Path, fail_at: int | None, code: int = errno.ENOSPC) -> None:
        self.root, self.fail_at, self.code = str(root), fail_at, code
        self.operations: list[str] = []
        """What was done, and to which file."""
        self.failed: str | None = None

    def touch(self, what: str, path: object) -> None:
        """One more operation."""
        self.operations.append(f"{what} {path}")
        if len(self.operations) == self.fail_at:
            self.failed = self.operations[-1]
            raise OSError(self.code, os.strerror(self.code))

    def concerns(self, path: object) -> bool:
        """Whether a path lies below the root."""
        if not isinstance(path, str | os.PathLike):
            return False
        return str(Path(path).absolute()).startswith(self.root)


class FailingFile(io.FileIO):
    """A file whose writes may fail."""

    disk: Disk
    path: object

    def write(self, data: Any) -> int:
        self.disk.touch("write", self.path)
        return super().write(data) or 0

    def truncate(self, size: int | None = None) -> int:
        self.disk.touch("truncate", self.path)
        return super().truncate(size)


@contextlib.contextmanager
def failing(root: Path, fail_at: int | None, code: int = errno.ENOSPC) -> Iterator[Disk]:
    """A disk below `root` that fails once, if `fail_at` is not None; otherwise it only counts."""
    disk = Disk(root, fail_at, code)
    opened = io.open
    kept = {name: getattr(os, name) for name in ("fsync", "replace", "rename", "mkdir")}

    def open_file(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
        if not set(mode) & set("wax+") or not disk.concerns(file):
            return opened(file, mode, buffering, *more, **named)
        disk.touch("open", file)
        raw = FailingFile(file, mode.replace("b", "").replace("t", ""))
        raw.disk, raw.path = disk, file
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        held = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        if "b" in mode:
            return held
        return io.TextIOWrapper(held, named.get("encoding"), newline=named.get("newline"))

    def on_path(name: str) -> Any:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            if disk.concerns(path):
                disk.touch(name, path)
            return kept[name](path, *more, **named)

        return call

    def fsync(descriptor: int) -> None:
        disk.touch("fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        kept["fsync"](descriptor)

    io.open = builtins.open = open_file  # type: ignore[assignment]
    os.fsync = fsync
    for name in ("replace", "rename", "mkdir"):
        setattr(os, name, on_path(name))
    try:
        yield disk
    finally:
        io.open = builtins.open = opened
        for name, function in kept.items():
            setattr(os, name, function)

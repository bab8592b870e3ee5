"""Limits on the memory that a file may declare, relative to its size on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from .errors import ConfigError, SeptError

VARIABLE = "SEPT_OFFLINE_LIMIT_MB"
DEFAULT_MB = 256
RATIO = 100
"""Maximum bytes in memory per byte on disk: logs, indices and results compress less."""

LONGEST_SEGMENT = 100_000
"""Maximum steps of a probe, segment or window of an agent: an episode keeps them all."""
LONGEST_REFINED = 10**9
"""Maximum steps for which an agent refines its latent; it does not keep them."""
LONGEST_STACK = 64
"""Maximum observations in one stacked row: each makes all networks wider."""
MOST_ACTIONS = 1_000_000
"""Maximum number of actions in an agent's file."""


def limit_bytes() -> int:
    """Memory that a small file may declare: 256 MB, or the value of the variable."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT_MB << 20
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"{VARIABLE} is {text!r}; expected an integer number of megabytes.")
    return int(text) << 20


def check_claim(path: object, what: str, claimed: int, stored: int, error: type[SeptError]) -> None:
    """Refuse a file of `stored` bytes whose `what` would take `claimed` bytes of memory."""
    allowed = max(limit_bytes(), RATIO * stored)
    if claimed > allowed:
        raise error(
            f"{path} has {stored:,} bytes and declares {claimed:,} bytes of {what}, more than "
            f"{allowed:,}: it is damaged or malicious; if it is valid, set "
            f"{VARIABLE}={-(-claimed >> 20)}."
        )


def check_regular(path: Path, error: type[SeptError]) -> int:
    """The size of a file that can be read to its end; a pipe or a device is refused by name.

    So is a file with holes, which claims far more than is stored of it on the disk.
    """
    try:
        info = path.stat()
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise error(f"Cannot read {path}: {reason}.") from problem
    if not stat.S_ISREG(info.st_mode):
        what = "a directory" if stat.S_ISDIR(info.st_mode) else "a pipe or a device"
        raise error(f"{path} is {what}, not a file; expected a file.")
    stored = getattr(info, "st_blocks", info.st_size) * 512
    check_claim(path, "content", info.st_size, stored, error)
    return info.st_size


def read_whole(path: Path, error: type[SeptError], most: int | None = None) -> bytes:
    """The bytes of a file that is read at once; `most`: the size limit of a valid one."""
    size = check_regular(path, error)
    if most is not None and size > max(most, limit_bytes()):
        raise error(
            f"{path} has {size:,} bytes, more than expected for such a file; if it is valid, set "
            f"{VARIABLE}={-(-size >> 20)}."
        )
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"Cannot read {path}: {problem.strerror or problem}.") from problem

"""Facts about a machine for bug reports, without names or paths that identify the user."""

from __future__ import annotations

import locale
import os
import platform
import sys
from pathlib import Path

UNKNOWN = "unknown"


def machine() -> dict[str, str]:
    """Platform, cores, memory, Python and locale, each as one short text."""
    return {
        "platform": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "system": _system(),
        "cores": _cores(),
        "memory": _memory(),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "locale": _locale(),
    }


def _system() -> str:
    """The distribution's name if there is one; the kernel's name does not show it."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", UNKNOWN)
    except OSError:
        return platform.version() or UNKNOWN


def _cores() -> str:
    whole = os.cpu_count()
    if whole is None:
        return UNKNOWN
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else whole
    return str(whole) if usable == whole else f"{whole}, {usable} of them for this process"


def _memory() -> str:
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return UNKNOWN
    free = _available()
    return f"{whole:.1f} GiB" + ("" if free is None else f", {free:.1f} GiB of it available")


def _available() -> float | None:
    """Memory available without swapping on Linux, in GiB."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    return int(kilobytes) / 2**20


def _locale() -> str:
    try:
        language, encoding = locale.getlocale()
    except ValueError:
        language = encoding = None
    return (
        f"{language or 'C'}, {encoding or locale.getpreferredencoding(False)}; "
        f"files {sys.getfilesystemencoding()}, output {getattr(sys.stdout, 'encoding', UNKNOWN)}"
    )

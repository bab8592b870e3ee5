"""Whether this installation works, and what a bug report says about the machine it is on.

Only the standard library is imported until a check needs more, so a broken library is reported by
its own check.
"""

from __future__ import annotations

import locale
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sept_offline.tools.doctor.checks import (
    NAME,
    Finding,
    Requirements,
    check_entry_points,
    check_extras,
    check_families,
    check_needed,
    check_parts,
    check_python,
    private,
    requirements,
)
from sept_offline.versions import versions

__all__ = ["Examination", "Finding", "examine"]


UNKNOWN = "unknown"


@dataclass(frozen=True)
class Examination:
    """Every finding, and what a bug report needs."""

    findings: tuple[Finding, ...]
    report: dict[str, str]
    """Versions and the machine, by name."""

    @property
    def broken(self) -> list[Finding]:
        """The findings that must be fixed."""
        return [finding for finding in self.findings if finding.status == "broken"]

    @property
    def verdict(self) -> str:
        """One line."""
        absent = sum(finding.status == "absent" for finding in self.findings)
        less = f"; {absent} extra{'' if absent == 1 else 's'} not installed" if absent else ""
        if not self.broken:
            return f"{NAME} works here{less}."
        names = ", ".join(finding.name for finding in self.broken)
        order = "; fix the first, the others may follow from it" if len(self.broken) > 1 else ""
        return f"Broken: {names}{order}{less}."

    def to_json(self) -> dict[str, Any]:
        """One object."""
        return {
            "ok": not self.broken,
            "verdict": self.verdict,
            "checks": [asdict(finding) for finding in self.findings],
            "report": self.report,
        }


def examine() -> Examination:
    """Run all checks of the installation; failures are reported, not raised."""
    asked: Requirements | None = None
    findings: list[Finding] = []
    try:
        asked = requirements()
        findings += [check_python(asked.python), *check_needed(asked)]
    # a damaged installation may lack the very file that says what it needs
    except Exception as error:
        text = private(f"{type(error).__name__}: {error}")
        advice = f"pip install --force-reinstall {NAME}"
        findings.append(Finding("installation", "broken", text, advice))
    findings += [*check_parts(), check_entry_points(), *check_families()]
    if asked is not None:
        findings += check_extras(asked)
    findings.append(Finding("browser", "fine", "none is needed: figures and pages are files"))
    return Examination(tuple(findings), {**_versions(asked), **_machine()})


def _versions(asked: Requirements | None) -> dict[str, str]:
    """This library, and every package that it may use and that is there, in one line."""
    known = versions()
    if asked is None:
        return known
    optional = [package for extra in asked.extras.values() for package in extra]
    installed = {package.name: package.installed() for package in (*asked.needed, *optional)}
    listed = ", ".join(f"{name} {version}" for name, version in installed.items() if version)
    return {NAME: known[NAME], "packages": listed}


def _machine() -> dict[str, str]:
    """Platform, cores, memory, Python, locale: short texts, and nothing that names the user."""
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

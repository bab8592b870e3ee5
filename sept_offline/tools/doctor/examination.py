"""All checks in order of dependency."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sept_offline.tools.doctor.finding import Finding, private
from sept_offline.tools.doctor.installation import (
    check_entry_points,
    check_extras,
    check_needed,
    check_python,
)
from sept_offline.tools.doctor.machine import machine
from sept_offline.tools.doctor.requirements import NAME, Requirements, requirements
from sept_offline.tools.doctor.self_tests import (
    check_families,
    check_formats,
    check_kernel,
    check_temporary,
    check_torch,
)
from sept_offline.versions import versions


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
    """Try everything that an installation must do; nothing that is broken raises."""
    asked: Requirements | None = None
    findings: list[Finding] = []
    try:
        asked = requirements()
        findings += [check_python(asked.python), *check_needed(asked)]
    # a damaged installation may lack the very file that says what it needs
    except Exception as error:
        said = private(f"{type(error).__name__}: {error}")
        advice = f"pip install --force-reinstall {NAME}"
        findings.append(Finding("installation", "broken", said, advice))
    findings += [
        check_torch(),
        check_kernel(),
        check_temporary(),
        *check_formats(),
        check_entry_points(),
        *check_families(),
    ]
    if asked is not None:
        findings += check_extras(asked)
    findings.append(Finding("browser", "fine", "none is needed: figures and pages are files"))
    return Examination(tuple(findings), {**_versions(asked), **machine()})


def _versions(asked: Requirements | None) -> dict[str, str]:
    """This library, and every package that it may use and that is there, in one line."""
    found = versions()
    if asked is None:
        return found
    optional = [one for extra in asked.extras.values() for one in extra]
    there = {one.name: one.installed() for one in (*asked.needed, *optional)}
    listed = ", ".join(f"{name} {version}" for name, version in there.items() if version)
    return {NAME: found[NAME], "packages": listed}

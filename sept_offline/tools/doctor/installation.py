"""Checks of what is installed: Python, what the library needs, its extras, its entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Iterator
from functools import partial

from sept_offline.tools.doctor.finding import Finding, check
from sept_offline.tools.doctor.requirements import NAME, Requirement, Requirements, checkout


def check_python(asked: Requirement) -> Finding:
    """Whether this Python is one that the library is made for."""

    def look() -> str:
        version = platform.python_version()
        if not asked.accepts(version):
            raise RuntimeError(f"{version}, but {NAME} needs {asked.range}")
        return f"{version}, {platform.python_implementation()}"

    return check("Python", look, f"install a Python {asked.range}")


def check_needed(asked: Requirements) -> Iterator[Finding]:
    """Each library that is always needed: imported, and its version compared."""
    for requirement in asked.needed:
        advice = f"pip install --force-reinstall '{requirement}'"
        yield check(requirement.name, partial(_import, requirement), advice)


def check_extras(asked: Requirements) -> Iterator[Finding]:
    """Each extra, not imported: they are large, and most commands do without."""
    for extra, needed in asked.extras.items():
        lacking = [_lack(requirement) for requirement in needed]
        missing = ", ".join(text for text in lacking if text)
        there = ", ".join(f"{one.name} {one.installed()}" for one in needed)
        if missing:
            advice = f"to use it: pip install '{NAME}[{extra}]'"
            yield Finding(f"extra [{extra}]", "absent", missing, advice)
        else:
            yield Finding(f"extra [{extra}]", "fine", there)


def check_entry_points() -> Finding:
    """Whether the command and the families are registered; a separate check loads the families."""

    def look() -> str:
        registered = importlib.metadata.entry_points()
        scripts = registered.select(group="console_scripts", name=NAME)
        if not scripts:
            raise RuntimeError(f"the command {NAME} is not registered")
        for point in scripts:
            point.load()
        families = registered.select(group="sept_offline.families")
        known = {(point.group, point.name) for point in families}
        for group, points in (checkout() or {}).get("entry-points", {}).items():
            for name in points:
                if (group, name) not in known:
                    raise RuntimeError(f"{name} of {group} is in pyproject.toml only")
        return f"the command, {len(families)} families"

    where = "-e ." if checkout() else f"--force-reinstall {NAME}"
    return check("entry points", look, f"pip install {where}")


def _import(requirement: Requirement) -> str:
    importlib.import_module(requirement.module)
    version = requirement.installed()
    if version is None:
        raise RuntimeError("importable, but not installed as a package")
    if not requirement.accepts(version):
        raise RuntimeError(f"{version}, but {NAME} needs {requirement.range}")
    return f"{version} (needs {requirement.range})" if requirement.range else version


def _lack(requirement: Requirement) -> str:
    """The problem with an optional library, or nothing."""
    version = requirement.installed()
    if version is None:
        return f"no {requirement.name}"
    if not requirement.accepts(version):
        return f"{requirement.name} is {version}, needed is {requirement.range}"
    return ""

"""The library's requirements, and checks of installed versions."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "sept-offline"
FORM = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[(?P<extras>[^\]]*)\])?\s*\(?(?P<range>[^;)]*)\)?"
    r"(?:;.*extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"].*)?"
)
MODULES = {"scikit-learn": "sklearn", "pytest-xdist": "xdist", "myst-parser": "myst_parser"}
"""Distributions that are not imported by their own names, `-` for `_` aside."""


@dataclass(frozen=True)
class Requirement:
    """A distribution and the versions of it that will do, such as `numpy` and `>=2.0`."""

    name: str
    range: str = ""

    @property
    def module(self) -> str:
        """The name it is imported by."""
        return MODULES.get(self.name.lower(), self.name.replace("-", "_"))

    def installed(self) -> str | None:
        """The version that is there."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None

    def accepts(self, version: str) -> bool:
        """Whether `version` is allowed; True if versions cannot be compared."""
        try:
            from packaging.specifiers import SpecifierSet
        except ImportError:
            return True
        return SpecifierSet(self.range).contains(version, prereleases=True)

    def __str__(self) -> str:
        return f"{self.name}{self.range}"


@dataclass(frozen=True)
class Requirements:
    """All requirements: the Python version, the library's packages, and those of each extra."""

    python: Requirement
    needed: tuple[Requirement, ...]
    extras: dict[str, tuple[Requirement, ...]]


def requirements() -> Requirements:
    """From pyproject.toml in a checkout, which may be newer than its installation; else as
    installed."""
    project = checkout()
    if project is not None:
        extras = project.get("optional-dependencies", {})
        return Requirements(
            Requirement("Python", project.get("requires-python", "")),
            _parse(project["dependencies"]),
            {extra: _expand(extra, extras) for extra in extras},
        )
    installed = importlib.metadata.metadata(NAME)
    named: dict[str, list[str]] = {extra: [] for extra in installed.get_all("Provides-Extra") or []}
    needed: list[str] = []
    for line in installed.get_all("Requires-Dist") or []:
        form = FORM.match(line)
        extra = form["extra"] if form else None
        (needed if extra is None else named.setdefault(extra, [])).append(line)
    return Requirements(
        Requirement("Python", "".join(installed.get_all("Requires-Python") or [])),
        _parse(needed),
        {extra: _expand(extra, named) for extra in named},
    )


def checkout() -> dict[str, Any] | None:
    """The `[project]` of the pyproject.toml next to the package, if it is this library's."""
    path = Path(__file__).parents[3] / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError, ValueError):
        return None
    return project if isinstance(project, dict) and project.get("name") == NAME else None


def _expand(
    extra: str, extras: dict[str, list[str]], within: tuple[str, ...] = ()
) -> tuple[Requirement, ...]:
    """An extra's requirements; where it names other extras of ours, theirs too."""
    whole: list[Requirement] = []
    for line in extras.get(extra, []):
        form = FORM.match(line)
        if form and form["name"] == NAME:
            for other in (form["extras"] or "").split(","):
                # an extra may name itself in a circle, and pip does not mind
                if other.strip() not in (*within, extra):
                    whole.extend(_expand(other.strip(), extras, (*within, extra)))
        else:
            whole.extend(_parse([line]))
    return tuple(dict.fromkeys(whole))


def _parse(lines: Iterable[str]) -> tuple[Requirement, ...]:
    forms = (FORM.match(line) for line in lines)
    return tuple(Requirement(form["name"], form["range"].strip()) for form in forms if form)

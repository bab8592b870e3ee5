"""Shell completion of arguments: names, lists of names, settings, paths."""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from sept_offline.cli.names import AXES, BEHAVIOURS
from sept_offline.family import family_names, suggest

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
if TYPE_CHECKING:
    ChoiceType = click.Choice[str]
else:
    ChoiceType = click.Choice


class Choice(ChoiceType):
    """A choice that suggests the nearest value for a mistyped one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Like click's, with a suggestion."""
        if value not in self.choices:
            known = ", ".join(self.choices)
            near = suggest(str(value), self.choices)
            self.fail(f"{value!r}{near} is not one of {known}.", param)
        return str(super().convert(value, param, ctx))


class Folder(click.Path):
    """A path completed by folders only; the library checks it, with better error messages."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The shell's own completion of folders."""
        return [CompletionItem(incomplete, type="dir")]


def typed_object(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Allow imports from the current directory if the user typed `package.module:object`.

    Only then, and last on the path: nothing else in the current directory, for example next to a
    downloaded run, is ever imported.
    """
    here = str(Path.cwd())
    if value and ":" in str(value) and here not in sys.path:
        sys.path.append(here)
    return value


# The reader of a path checks whether it can be read, with an error that names the file.
FILE = click.Path(path_type=Path, readable=False)
FOLDER = Folder(path_type=Path, readable=False)
DATASET = click.Path(readable=False)
"""A file, a folder or an address such as s3://bucket/logs, as text."""


def one_of(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes one name."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _starting(names(), incomplete)

    return complete


def several_of(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes the last of several names between commas; none is offered twice."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        there = set(before.split(","))
        return _starting((name for name in names() if name not in there), last, before + comma)

    return complete


@cache
def setting_names() -> dict[str, tuple[str, ...]]:
    """Every setting of `fit`, such as `latent.dim`, with its choices if it has any."""
    from sept_offline.settings import FitConfig

    return _fields(FitConfig)


def _fields(record: type, prefix: str = "") -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        name, kind = f"{prefix}{field.name}", hints[field.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            found |= _fields(kind, f"{name}.")
        elif kind is bool:
            found[name] = ("false", "true")
        elif typing.get_origin(kind) is typing.Literal:
            found[name] = typing.get_args(kind)
        else:
            found[name] = ()
    return found


def complete_settings(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names such as `latent.dim=`, then the setting's choices if it has any."""
    return _settings(setting_names(), incomplete)


def complete_axes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete settings and the axes of the data, and values after a comma."""
    of_data = dict.fromkeys(AXES, ()) | {
        "behaviour": (*BEHAVIOURS, "mixed"),
        "propensities": ("estimated",),
    }
    return _settings({**of_data, **setting_names()}, incomplete)


families = one_of(family_names)


def _settings(known: dict[str, tuple[str, ...]], incomplete: str) -> list[CompletionItem]:
    name, sign, value = incomplete.partition("=")
    if not sign:
        return _starting((f"{one}=" for one in known), incomplete)
    before, comma, last = value.rpartition(",")
    return _starting(known.get(name, ()), last, f"{name}={before}{comma}")


def _starting(names: Iterable[str], start: str, before: str = "") -> list[CompletionItem]:
    return [CompletionItem(before + name) for name in names if name.startswith(start)]

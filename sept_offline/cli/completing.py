"""What a shell is told of a half-typed argument: names, lists of names, settings, places."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from sept_offline.cli.names import AXES, BEHAVIOURS
from sept_offline.cli.settings import setting_names
from sept_offline.family import family_names, suggest

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
if TYPE_CHECKING:
    ChoiceType = click.Choice[str]
else:
    ChoiceType = click.Choice


class Choice(ChoiceType):
    """A choice that names the nearest when one is mistyped."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As click does, with a suggestion."""
        if value not in self.choices:
            known = ", ".join(self.choices)
            self.fail(f"{value!r}{suggest(str(value), self.choices)} is none of {known}.", param)
        return str(super().convert(value, param, ctx))


class Folder(click.Path):
    """A path that is completed by folders only; what is wrong with it the library says better."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The shell's own completion of folders."""
        return [CompletionItem(incomplete, type="dir")]


def typed_object(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Find `package.module:object` where the user is, because the user typed it.

    Only then, and last in the path: otherwise nothing that lies in the current directory, beside a
    downloaded run for instance, is ever imported.
    """
    here = str(Path.cwd())
    if value and ":" in str(value) and here not in sys.path:
        sys.path.append(here)
    return value


# Whether a place can be read is told by whoever reads it, in a sentence that names the file.
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


def complete_settings(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """`latent.dim=` and its like, then a setting's choices where it has some."""
    return _settings(setting_names(), incomplete)


def complete_axes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Those, and the axes of the data; a value after another one's comma too."""
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

"""The arguments and options that commands share: their types, completion and checks.

The lists of names are written out here, because completion must be fast and torch takes seconds to
load; a test keeps them in sync with the library.
"""

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

from sept_offline.errors import AgentError
from sept_offline.family import family_names, suggest

METHODS = (
    *("sept", "avg", "oracle", "epopt", "maml", "bnn", "dpt", "sept-np", "totalvar", "maxent"),
    *("dynasept", "history", "focal", "unicorn", "csro", "bati"),
)
PRESETS = ("default", "paper", "segment")
BEHAVIOURS = ("random", "replay", "medium", "expert")
AXES = ("behaviour", "episodes", "instances", "propensities")
"""Axes of `bench --vary`, besides every setting of `fit`."""

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
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


class File(click.Path):
    """A path that is not empty: an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Like click's."""
        if not str(value):
            self.fail("the path is empty.", param)
        return super().convert(value, param, ctx)


class Folder(File):
    """A path completed by folders only; the library checks it, with better error messages."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The shell's own completion of folders."""
        return [CompletionItem(incomplete, type="dir")]


# The reader of a path checks whether it can be read, with an error that names the file.
FILE = File(path_type=Path, readable=False)
FOLDER = Folder(path_type=Path, readable=False)
DATASET = File(readable=False)
"""A file, a folder or an address such as s3://bucket/logs, as text."""


# Completion


def one_of(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes one name."""
    return lambda _, __, incomplete: _starting(names(), incomplete)


def several_of(names: Callable[[], Iterable[str]]) -> Completer:
    """Completes the last of several names between commas; none is offered twice."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        there = set(before.split(","))
        return _starting((name for name in names() if name not in there), last, before + comma)

    return complete


def engines() -> tuple[str, ...]:
    """The engines of `collect` and `bench`."""
    from sept_offline.engines import ENGINES

    return ENGINES


def algorithms() -> tuple[str, ...]:
    """The algorithms of control."""
    from sept_offline.settings import ALGORITHMS, AUTO

    return (AUTO, *ALGORITHMS)


@cache
def setting_names() -> dict[str, tuple[str, ...]]:
    """Every setting of `fit`, such as `latent.dim`, with its choices if it has any."""
    from sept_offline.settings import FitConfig

    return _fields(FitConfig)


def _fields(record: type, prefix: str = "") -> dict[str, tuple[str, ...]]:
    choices: dict[str, tuple[str, ...]] = {}
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        name, kind = f"{prefix}{field.name}", hints[field.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            choices |= _fields(kind, f"{name}.")
        elif kind is bool:
            choices[name] = ("false", "true")
        else:
            literal = typing.get_origin(kind) is typing.Literal
            choices[name] = typing.get_args(kind) if literal else ()
    return choices


def complete_settings(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names such as `latent.dim=`, then the setting's choices if it has any."""
    return _assignments(setting_names(), incomplete)


def complete_axes(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete settings and the axes of the data, and values after a comma."""
    of_data = dict.fromkeys(AXES, ()) | {
        "behaviour": (*BEHAVIOURS, "mixed"),
        "propensities": ("estimated",),
    }
    return _assignments({**of_data, **setting_names()}, incomplete)


def _assignments(known: dict[str, tuple[str, ...]], incomplete: str) -> list[CompletionItem]:
    name, sign, value = incomplete.partition("=")
    if not sign:
        return _starting((f"{setting}=" for setting in known), incomplete)
    before, comma, last = value.rpartition(",")
    return _starting(known.get(name, ()), last, f"{name}={before}{comma}")


def _starting(names: Iterable[str], start: str, before: str = "") -> list[CompletionItem]:
    return [CompletionItem(before + name) for name in names if name.startswith(start)]


# Options


def typed_object(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Allow imports from the current directory if the user typed `package.module:object`.

    Only then, and last on the path: nothing else in the current directory, for example next to a
    downloaded run, is ever imported.
    """
    here = str(Path.cwd())
    if value and ":" in str(value) and here not in sys.path:
        sys.path.append(here)
    return value


def count_option(
    name: str, *, least: int = 1, default: int | None = None, help: str | None = None
) -> Decorator:
    """An option that takes a whole number."""
    return click.option(
        name,
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        help=help,
    )


def name_option(
    name: str, known: Callable[[], Iterable[str]], help: str, default: str | None = None
) -> Decorator:
    """An option that takes a name; the library checks it, with a suggestion."""
    return click.option(
        name,
        default=default,
        show_default=default is not None,
        shell_complete=one_of(known),
        help=help,
    )


def settings_option(help: str) -> Decorator:
    """Any number of settings of `fit`."""
    return click.option(
        "--set", "settings", multiple=True, shell_complete=complete_settings, help=help
    )


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a command prints: --json and --quiet."""
    quiet = click.option("--quiet", is_flag=True, help="Hide progress output.")
    as_json = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
    )
    return as_json(quiet(command))


family_argument = click.argument(
    "family", shell_complete=one_of(family_names), callback=typed_object
)
seed_option = count_option("--seed", least=0, default=0, help="Random seed.")


# Checks that a command's inputs exist, before large libraries are loaded


def check_dataset(dataset: str) -> None:
    """Raise a DataError if the path cannot be a dataset."""
    from sept_offline.data.filesystems import check_place

    check_place(dataset)


def check_run(run: Path) -> None:
    """Raise an AgentError if the path contains no fitted agent."""
    if _holds_agent(run):
        return
    if not run.exists():
        raise AgentError(f"There is no run at {run}; check the path, or run fit first.")
    if not run.is_dir():
        raise AgentError(f"{run} is a file; expected the run directory of a fit.")
    if (run / "run.json").is_file():
        raise AgentError(f"The fit in {run} has not finished; continue it with fit --resume.")
    if (run / "manifest.json").is_file():
        raise AgentError(f"{run} is an exported agent; expected the run directory of its fit.")
    raise AgentError(f"There is no agent in {run}; expected the run directory of a fit.")


def check_run_and_dataset(run: Path, dataset: str) -> None:
    """Check a run and a dataset, and whether they were given in the wrong order."""
    if not _holds_agent(run) and _holds_agent(Path(dataset)):
        raise AgentError(f"{dataset} is a run, but {run} is not; the order is RUN DATASET.")
    check_run(run)
    check_dataset(dataset)


def check_either(resume: bool, restart: bool) -> None:
    """Refuse to continue and to discard the same work."""
    if resume and restart:
        raise click.UsageError(
            "--resume continues what is there and --restart discards it; pass only one of them."
        )


def _holds_agent(run: Path) -> bool:
    return any((folder / "agent.json").is_file() for folder in (run, run / "agent"))

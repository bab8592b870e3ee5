"""The command group, its exit codes, and the formatting of errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from sept_offline.cli.bench import bench, report
from sept_offline.cli.collect import check, collect
from sept_offline.cli.console import plain
from sept_offline.cli.dataset import convert, demarcate, import_, inspect, merge, validate
from sept_offline.cli.deployment import act, export
from sept_offline.cli.evaluate import evaluate, ope
from sept_offline.cli.fit import fit
from sept_offline.cli.installation import completion, doctor
from sept_offline.errors import ConfigError, SeptError, TrainingError
from sept_offline.family import suggest
from sept_offline.seals import UnsealedWarning

NUMBA_SETTINGS = ".numba_config.yaml"


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = suggest(name, self.list_commands(ctx))
            ctx.fail(f"There is no command {name!r}{near}; see sept-offline --help.")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from sept_offline.versions import versions

    for name, version in versions().items():
        click.echo(f"{name} {version}")
    ctx.exit()


@click.group(cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of this library and its dependencies.",
)
def cli() -> None:
    """Single Episode Policy Transfer from logged trajectories.

    \b
    Example, from logging to one episode per test instance:
      sept-offline collect navigation2d -o navigation.h5
      sept-offline validate navigation.h5
      sept-offline fit navigation.h5 -o runs/navigation
      sept-offline evaluate runs/navigation
    """


for command in (
    check,
    collect,
    inspect,
    validate,
    convert,
    merge,
    import_,
    demarcate,
    fit,
    evaluate,
    ope,
    report,
    export,
    act,
    bench,
    doctor,
    completion,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Run the command line. Exit codes: 0 success, 2 wrong usage or bad input, 1 anything else."""
    _open_streams()
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnsealedWarning)
        warnings.showwarning = _show_warning
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> NoReturn:
    try:
        _refuse_settings_beside()
        # Outside its standalone mode click returns an early exit's code instead of raising it.
        code = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="sept-offline",
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        sys.exit(1)
    except TrainingError as error:
        _say(str(error))
        sys.exit(1)
    except SeptError as error:
        _say(str(error))
        sys.exit(2)
    except MemoryError:
        _say("Out of memory; use a larger machine or less data.")
        sys.exit(2)
    except BrokenPipeError:
        # The reader has closed the pipe; Python must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _say(f"Cannot read or write{where}: {error.strerror or error}.")
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse_settings_beside() -> None:
    """Refuse a folder with Numba settings, which may load compiled code from any path."""
    if os.path.lexists(NUMBA_SETTINGS):
        raise ConfigError(
            f"This folder contains {NUMBA_SETTINGS}, which can make Numba load code from any path; "
            "run the command in another folder, or set Numba's environment variables."
        )


def _say(sentence: str) -> None:
    """Print an error on one line, even if its text contains line breaks."""
    click.echo(f"Error: {plain(' '.join(sentence.splitlines()))}", err=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, UnsealedWarning):
        click.echo(f"Warning: {plain(str(message))}", err=True)
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        click.echo(text, err=True, nl=False)


def _open_streams() -> None:
    """Open /dev/null for closed standard streams, so that no other file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        mode = "r" if number == 0 else "w"
        setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115

"""The command group, its exit codes, and the formatting of errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from sept_offline.cli.bench import bench, report
from sept_offline.cli.collect import check, collect
from sept_offline.cli.console import ConsoleProgress, plain, print_json, print_lines, print_table
from sept_offline.cli.dataset import convert, demarcate, import_, inspect, merge, validate
from sept_offline.cli.deployment import act, export
from sept_offline.cli.evaluate import evaluate, ope
from sept_offline.cli.fit import fit
from sept_offline.cli.parameters import Choice, output_options
from sept_offline.errors import ConfigError, SeptError, TrainingError
from sept_offline.family import suggest
from sept_offline.seals import UnsealedWarning

if TYPE_CHECKING:
    from sept_offline.tools.doctor import Examination

SHELLS = ("bash", "zsh", "fish")
END = "    return 0\n"
NO_SPACE = "    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n\n"
"""Add no space after `latent.dim=`, because its value follows; fish does so by itself."""


@click.command()
@output_options
def doctor(as_json: bool, quiet: bool) -> None:
    """Check this installation and give advice.

    Loads every library, steps every registered family once, writes and reads a tiny dataset in both
    formats, and compiles an agent's network. The output ends with the data for a bug report,
    without your name or home paths. The exit code is 1 if something is broken.

    \b
    Example:
      sept-offline doctor
    """
    from sept_offline.tools.doctor import examine

    if sys.stderr.isatty():
        ConsoleProgress(quiet).message("Loading and testing all parts; this takes a few seconds…")
    examination = examine()
    if as_json:
        print_json(examination.to_json())
    else:
        _print_examination(examination)
    if examination.broken:
        raise click.exceptions.Exit(1)


def _print_examination(examination: Examination) -> None:
    # rich, which draws the tables, may itself be broken
    whole = not any(finding.name == "rich" for finding in examination.broken)
    columns = ["check", "state", "found"]
    rows = [[finding.name, finding.status, finding.found] for finding in examination.findings]
    (print_table if whole else print_lines)("sept-offline doctor", columns, rows, 3)
    for finding in examination.findings:
        if finding.advice:
            click.echo(f"{finding.name}: {finding.advice}")
    click.echo(examination.verdict)
    click.echo("\nFor a bug report:")
    for name, text in examination.report.items():
        click.echo(f"  {name}: {text}")


@click.command()
@click.argument("shell", type=Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a completion script for SHELL: bash, zsh or fish.

    It completes commands, options, families, methods, presets, settings and paths. To install it,
    once:

    \b
      bash (4.4 or newer), in ~/.bashrc:
        eval "$(sept-offline completion bash)"
      zsh, in ~/.zshrc, after compinit:
        eval "$(sept-offline completion zsh)"
      fish:
        sept-offline completion fish > ~/.config/fish/completions/sept-offline.fish

    \b
    Example:
      sept-offline completion bash
    """
    from click.shell_completion import get_completion_class

    program = "sept-offline"
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"This version of click has no completion script for {shell}.")
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    # source() would start bash to ask for its version, which may be a different bash
    script = kind(ctx.find_root().command, {}, program, variable)
    template = script.source_template
    if shell == "bash":
        template = template.replace(END, NO_SPACE + END, 1)
    click.echo(template % script.source_vars())


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

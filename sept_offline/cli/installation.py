"""`sept-offline doctor` and `completion`: this installation, and the shell it is used in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sept_offline.cli.console import ConsoleProgress, print_json, print_lines, print_table
from sept_offline.cli.parameters import Choice, output_options

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

"""`sept-offline doctor`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sept_offline.cli.console import ConsoleProgress, print_json, print_lines, print_table
from sept_offline.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from sept_offline.tools.doctor import Examination


@click.command()
@json_option
@quiet_option
def doctor(as_json: bool, quiet: bool) -> None:
    """Check this installation and give advice; exit code 1 if something is broken.

    Loads every library, steps every registered family once, writes and reads a tiny dataset in both
    formats, and compiles an agent's network. The output ends with the data for a bug report,
    without your name or home paths.

    \b
    Example:
      sept-offline doctor
    """
    from sept_offline.tools.doctor import examine

    if sys.stderr.isatty():
        ConsoleProgress(quiet).message("Loading and testing everything; this takes seconds…")
    found = examine()
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    if found.broken:
        raise click.exceptions.Exit(1)


def _print(found: Examination) -> None:
    # rich, which draws the tables, may itself be broken
    whole = not any(finding.name == "rich" for finding in found.broken)
    columns = ["check", "state", "found"]
    rows = [[finding.name, finding.status, finding.found] for finding in found.findings]
    (print_table if whole else print_lines)("sept-offline doctor", columns, rows, 3)
    for finding in found.findings:
        if finding.advice:
            click.echo(f"{finding.name}: {finding.advice}")
    click.echo(found.verdict)
    click.echo("\nFor a bug report:")
    for name, text in found.report.items():
        click.echo(f"  {name}: {text}")

"""The options of each command, from the command itself, below its section of commands.md."""

from __future__ import annotations

import click
from sections import cell, code, extend
from sphinx.application import Sphinx

from sept_offline.cli.main import cli


def options(name: str) -> str:
    """How the command is called, and a table of its options, in Markdown."""
    if name not in cli.commands:
        return ""
    command = cli.commands[name]
    context = click.Context(command, info_name=f"sept-offline {name}")
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    lines = [f"`{usage}`", "", "| option | |", "|---|---|"]
    for parameter in command.params:
        names, text = parameter.get_help_record(context) or ("", "")
        if text:
            lines.append(f"| {code(names.replace(' RANGE', ''))} | {cell(text)} |")
    return "\n".join(lines if len(lines) > 4 else lines[:1])


def add_options(app: Sphinx, docname: str, source: list[str]) -> None:
    """Every section that has a command's name ends with the options of that command."""
    if docname == "commands":
        source[0] = extend(source[0], options)


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.connect("source-read", add_options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

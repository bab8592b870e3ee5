"""The options of each command, from the command itself, below its section of commands.md."""

from __future__ import annotations

import re

import click
from sphinx.application import Sphinx

from sept_offline.cli.main import cli

PAGE = "commands"
ESCAPED_BAR = "\\|"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def cell(text: str) -> str:
    """Text as it may stand in a cell of a Markdown table: no mark of it means anything."""
    return re.sub(r"([\\`*_<>|\[\]{}$~])", r"\\\1", text)


def options(name: str) -> str:
    """How the command is called, and a table of its options, in Markdown."""
    command = cli.commands[name]
    context = click.Context(command, info_name=f"sept-offline {name}")
    lines = [f"`{' '.join(command.get_usage(context).removeprefix('Usage: ').split())}`", ""]
    lines += ["| option | |", "|---|---|"]
    for parameter in command.params:
        names, text = parameter.get_help_record(context) or ("", "")
        if text:
            names = names.replace(" RANGE", "")
            lines.append(f"| `{names.replace('|', ESCAPED_BAR)}` | {cell(text)} |")
    return "\n".join(lines)


def add_options(app: Sphinx, docname: str, source: list[str]) -> None:
    """Every section that has a command's name ends with the options of that command."""
    if docname != PAGE:
        return
    before, *sections = SECTION.split(source[0])
    text = before
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        extra = f"\n\n{options(name)}\n\n" if name in cli.commands else ""
        text += f"## {name}{body.rstrip()}{extra}\n\n"
    source[0] = text


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.connect("source-read", add_options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

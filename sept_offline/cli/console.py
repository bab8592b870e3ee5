"""What a person sees: progress on standard error, tables and JSON on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PLAIN_INTERVAL = 5.0
"""Seconds between lines where there is no terminal to draw a bar on."""


class ConsoleProgress:
    """A bar on a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._title = ""
        self._total = 0.0
        self._began = 0.0
        self._said = 0.0

    def start(self, title: str, total: float, unit: str = "") -> None:
        """Begin a bar."""
        self._title, self._total = title, total
        self._began = self._said = time.monotonic()
        if self.quiet or not self.terminal:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._bar.start()
        self._task = self._bar.add_task(title, total=total, metrics="")

    def update(self, done: float, **metrics: float) -> None:
        """Move the bar, or say a line if the last one is long ago."""
        if self.quiet:
            return
        now = time.monotonic()
        seconds = max(now - self._began, 1e-9)
        words = [
            f"{value / seconds:,.0f} {name}/s" if name == "steps" else f"{name} {value:.4g}"
            for name, value in metrics.items()
        ]
        text = "  ".join(words)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, metrics=text)
        elif not self.terminal and (now - self._said > PLAIN_INTERVAL or done >= self._total):
            self._said = now
            left = seconds * (self._total - done) / done if done else 0.0
            ahead = f"  {left:.0f} s left" if left else ""
            line = f"{self._title}: {done:.0f}/{self._total:.0f}  {text}".rstrip()
            click.echo(line + ahead, err=True)

    def finish(self) -> None:
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None

    def message(self, text: str) -> None:
        """One line for the user."""
        if not self.quiet:
            click.echo(text, err=True)


class RowCounter:
    """A bar over rows that arrive column by column, for work that does not know its end."""

    def __init__(self, progress: ConsoleProgress, title: str, rows: int) -> None:
        self.progress, self.total, self.seen = progress, float(max(rows, 1)), 0
        progress.start(title, self.total)

    def __call__(self, _: str, rows: int) -> None:
        """`rows` more are done."""
        self.seen += rows
        self.progress.update(min(self.seen, self.total))

    def finish(self) -> None:
        """All are done."""
        self.progress.update(self.total)
        self.progress.finish()


def interrupted(target: object, progress: ConsoleProgress) -> NoReturn:
    """End a command that can be continued; said even when quiet, or the work would seem lost."""
    progress.finish()
    click.echo(f"Interrupted; the same command with --resume continues {target}.", err=True)
    raise click.exceptions.Exit(1)


def print_json(value: Any) -> None:
    """Exactly one line, one object."""
    click.echo(json.dumps(value, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table on standard output; the first column is text, the others are numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*[show(cell) for cell in row])
    # Where nobody's terminal says how wide it is, a table must not be cut at 80 columns.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def show(cell: Any) -> str:
    """A table cell: numbers to four digits, missing values as a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.4g}"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)

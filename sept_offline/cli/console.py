"""Console output: progress on standard error, tables and JSON on standard output."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

PLAIN_INTERVAL = 5.0
"""Seconds between progress lines if there is no terminal."""
NO_CURSOR = ("dumb", "unknown")
"""Values of TERM for terminals without cursor control."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class ConsoleProgress:
    """A progress bar on a terminal, periodic lines elsewhere, nothing if quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.terminal = draws(sys.stderr)
        # a bar hides the cursor: a command that fails must show it again
        if context := click.get_current_context(silent=True):
            context.call_on_close(self.finish)
        self._bar: Bar | None = None
        self._title = ""
        self._total = 0.0
        self._began = 0.0
        self._printed = 0.0

    def start(self, title: str, total: float, unit: str = "") -> None:
        """Start a progress bar."""
        self._title, self._total = title, total
        self._began = self._printed = time.monotonic()
        if self.quiet or not self.terminal:
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=rich_console(stderr=True),
        )
        self._bar.start()
        self._bar.add_task(title, total=total, metrics="")

    def update(self, done: float, **metrics: float) -> None:
        """Move the bar, or print a line if enough time has passed."""
        if self.quiet:
            return
        now = time.monotonic()
        seconds = max(now - self._began, 1e-9)
        text = "  ".join(
            f"{value / seconds:,.0f} {name}/s" if name == "steps" else f"{name} {value:.4g}"
            for name, value in metrics.items()
        )
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, metrics=text)
        elif not self.terminal and (now - self._printed > PLAIN_INTERVAL or done >= self._total):
            self._printed = now
            left = seconds * (self._total - done) / done if done else 0.0
            ahead = f"  {left:.0f} s left" if left else ""
            line = f"{self._title}: {done:.0f}/{self._total:.0f}  {text}".rstrip()
            click.echo(line + ahead, err=True)

    def finish(self) -> None:
        """Stop the progress bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def message(self, text: str) -> None:
        """Print one line for the user."""
        if not self.quiet:
            click.echo(text, err=True)


@contextlib.contextmanager
def interruptible(progress: ConsoleProgress, advice: str) -> Iterator[None]:
    """End a command that can be continued with `advice` if it is interrupted, even if quiet."""
    try:
        yield
    except KeyboardInterrupt:
        progress.finish()
        click.echo(f"Interrupted; {advice}.", err=True)
        raise click.exceptions.Exit(1) from None


@contextlib.contextmanager
def working(title: str, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on a terminal for work without a known number of steps."""
    if quiet or not draws(sys.stderr):
        yield
        return
    from rich.text import Text

    # Text, because a file name may contain markup
    with rich_console(stderr=True).status(Text(plain(title))):
        yield


def draws(stream: Any) -> bool:
    """Whether tables and bars can be drawn on `stream`: a terminal that moves its cursor."""
    return bool(stream.isatty()) and os.environ.get("TERM", "").lower() not in NO_CURSOR


def rich_console(stderr: bool = False) -> Console:
    """A console without colour or bold type if NO_COLOR is set."""
    from rich.console import Console

    known = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=stderr,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        # if the width is unknown, a table must not be cut at 80 columns
        width=None if known else 160,
    )


def print_json(value: Any) -> None:
    """Print one object on one line; a number that overflowed or is undefined is null."""
    click.echo(json.dumps(_without_nan(value), allow_nan=False))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], text_columns: int = 1
) -> None:
    """Print a table on standard output; the first columns are text, the others numbers.

    It is drawn on a terminal and if FORCE_COLOR is set; elsewhere it is plain lines.
    """
    if draws(sys.stdout) or os.environ.get("FORCE_COLOR"):
        _draw_table(title, columns, rows, text_columns)
    else:
        print_lines(title, columns, rows, text_columns)


def print_lines(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], text_columns: int = 1
) -> None:
    """Print a table as aligned columns, two spaces apart, for other programs to read."""
    lines = [list(columns), *([show(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    click.echo(plain(title))
    for line in lines:
        aligned = [
            cell.ljust(width) if index < text_columns else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        click.echo("  ".join(aligned).rstrip())


def _draw_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], text_columns: int
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(plain(title)), title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < text_columns else "right")
    for row in rows:
        # Text, because an instance's name may contain markup
        table.add_row(*[Text(show(cell)) for cell in row])
    rich_console().print(table)


def show(cell: Any) -> str:
    """Format a table cell: numbers to four digits, missing values as a dash."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.4g}"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return plain(str(cell))


def plain(text: str) -> str:
    """`text` without control characters, because names from a dataset are not trusted."""
    return CONTROL.sub("�", text)

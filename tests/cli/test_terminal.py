"""Drawn on a terminal, plain lines elsewhere; colours only where they are wanted."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import run, run_alone, run_on_terminal

import sept_offline as so

ESCAPE = "\x1b"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BOX = re.compile(r"[─━│┃┏┡└]")


def test_a_terminal_sees_tables_and_bars(made: Path, tmp_path: Path) -> None:
    # a place that would be wrong as markup, in its own folder as a slash is needed
    (tmp_path / "[").mkdir()
    shutil.copy(made / "nav.h5", tmp_path / "[" / "odd].h5")
    table = run_on_terminal("inspect", "[/odd].h5", cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    assert BOX.search(table.stdout) and COLOUR.search(table.stdout)
    assert "train-1" in table.stdout
    bar = run_on_terminal("validate", "nav.h5", cwd=made)
    assert "checking" in bar.stderr and COLOUR.search(bar.stderr)
    assert ESCAPE not in bar.stdout
    hushed = run_on_terminal("validate", "nav.h5", "--quiet", cwd=made)
    assert hushed.stderr == "" and "is valid" in hushed.stdout


def test_a_command_that_fails_shows_the_cursor_again(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def policy(observations):\n    raise ValueError('no')\n")
    policy = ("--policy", "failing:policy", "--episodes", "4")
    done = run_on_terminal("collect", "navigation2d", *policy, "-o", "x.h5", cwd=tmp_path)
    assert done.returncode == 2
    hidden, shown, error = (
        done.stderr.find(text) for text in ("\x1b[?25l", "\x1b[?25h", "Error: ")
    )
    assert 0 <= hidden < shown < error


def test_no_color_leaves_the_lines_and_takes_the_colours(made: Path) -> None:
    table = run_on_terminal("inspect", "nav.h5", cwd=made, NO_COLOR="1")
    assert BOX.search(table.stdout) and ESCAPE not in table.stdout
    # a bar moves the cursor, which is no colour
    bar = run_on_terminal("validate", "nav.h5", cwd=made, NO_COLOR="1")
    assert "checking" in bar.stderr and not COLOUR.search(bar.stderr)
    empty = run_on_terminal("inspect", "nav.h5", cwd=made, NO_COLOR="")
    assert COLOUR.search(empty.stdout)


def test_a_dumb_terminal_sees_lines(made: Path) -> None:
    table = run_on_terminal("inspect", "nav.h5", cwd=made, TERM="dumb")
    assert "train-1" in table.stdout and table.stderr == ""
    assert not BOX.search(table.stdout) and ESCAPE not in table.stdout
    progress = run_on_terminal("validate", "nav.h5", cwd=made, TERM="dumb")
    assert "checking: " in progress.stderr and ESCAPE not in progress.stderr


def test_elsewhere_are_aligned_lines(made: Path) -> None:
    done = run_alone("inspect", "nav.h5", cwd=made)
    assert not BOX.search(done.stdout) and ESCAPE not in done.stdout and done.stderr == ""
    title, header, first, second, *_ = done.stdout.splitlines()
    assert title.startswith("nav.h5 · navigation2d")
    assert re.split(r" {2,}", header)[:3] == ["instance", "episodes", "steps"]
    assert re.split(r" {2,}", first)[:2] == ["train-0", "30"]
    # numbers end where their heading ends
    assert first.index("30") + 2 == header.index("episodes") + len("episodes")
    assert first.startswith("train-0") and second.startswith("train-1")


def test_colours_can_be_forced_into_a_pipe(made: Path) -> None:
    forced = run_alone("inspect", "nav.h5", cwd=made, FORCE_COLOR="1")
    assert BOX.search(forced.stdout) and COLOUR.search(forced.stdout)
    both = run_alone("inspect", "nav.h5", cwd=made, FORCE_COLOR="1", NO_COLOR="1")
    assert ESCAPE not in both.stdout


@pytest.mark.parametrize("drawn", [False, True])
def test_a_name_cannot_write_to_the_terminal(
    drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with so.DatasetWriter(tmp_path / "odd.h5", num_actions=2) as writer:
        for instance in ("[red]a[/]", "b\x1b[2Jc"):
            writer.append(
                instance=instance,
                observations=np.zeros((7, 1)),
                actions=[0, 1] * 3,
                rewards=[0.0] * 6,
                terminated=False,
                truncated=True,
            )
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1" if drawn else "")
    monkeypatch.setenv("COLUMNS", "200")
    done = run("inspect", "odd.h5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[red]a[/]" in done.stdout
    assert "b\ufffd[2Jc" in done.stdout and "\x1b[2J" not in done.stdout

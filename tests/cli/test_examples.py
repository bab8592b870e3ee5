"""Every command's help shows an example, and the examples run one after another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from click.testing import CliRunner
from commands import run

from sept_offline.cli.main import cli

ORDER = ("collect", "inspect", "validate", "convert", "fit", "evaluate", "ope", "bench")


def example(command: str) -> list[str]:
    """The command line under "Example:" in a command's help."""
    shown = CliRunner().invoke(cli, [command, "--help"])
    assert shown.exit_code == 0
    found = re.search(r"Example:\n\s+sept-offline (.+)\n", shown.output)
    assert found, f"{command} shows no example"
    words = shlex.split(found[1])
    assert words[0] == command
    return words


def test_no_command_is_left_out() -> None:
    assert set(cli.commands) == set(ORDER)


def test_the_examples_run(tmp_path: Path) -> None:
    for command in ORDER:
        done = run(*example(command), cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"nav.h5", "nav.parquet", "runs", "results.parquet", "quick"}

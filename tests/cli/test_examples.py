"""Every command's help shows an example, and the examples run one after another."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import run

from sept_offline.cli.main import cli

ORDER = (
    "collect",
    "inspect",
    "validate",
    "convert",
    "import",
    "demarcate",
    "fit",
    "evaluate",
    "ope",
    "report",
    "export",
    "act",
    "bench",
    "doctor",
    "completion",
)
WARDS = """ward,stay,hour,pulse,pressure,drug,score,discharged
a,1,0,70,120,none,1,false
a,1,1,72,118,beta,2,true
b,2,0,80,140,beta,0,false
b,2,1,75,130,none,1,true
"""


def example(command: str) -> list[str]:
    """The command line under "Example:" in a command's help."""
    shown = CliRunner().invoke(cli, [command, "--help"])
    assert shown.exit_code == 0
    # a long one goes on in lines that are further in
    found = re.search(r"Example:\n( +)sept-offline (.+(?:\n\1 +.+)*)\n", shown.output)
    assert found, f"{command} shows no example"
    words = shlex.split(found[2])
    assert words[0] == command
    return words


def test_no_command_is_left_out() -> None:
    assert set(cli.commands) == set(ORDER)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wards").mkdir()
    (tmp_path / "wards" / "a.csv").write_text(WARDS)
    line = b'{"episode": "a", "observation": [0, 0]}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(line)))
    for command in ORDER:
        done = run(*example(command), cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        "nav.h5",
        "nav.parquet",
        "wards",
        "wards.h5",
        "wards.card.md",
        "labelled.h5",
        "labelled.card.md",
        "runs",
        "results.parquet",
        "report.html",
        "agent.onnx",
        "quick",
    }

"""Every command's help shows an example, and the examples run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import ROOT, run

from sept_offline.cli.main import cli

COMMANDS = {
    "check",
    "collect",
    "inspect",
    "validate",
    "convert",
    "merge",
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
}
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
    assert set(cli.commands) == COMMANDS


@pytest.mark.parametrize("command", sorted(COMMANDS - {"import"}))
def test_an_example_is_one_of_the_page_of_commands(command: str) -> None:
    """They run there, one after another: tests/test_docs.py; the doctor in test_doctor.py."""
    words = shlex.join(["sept-offline", *example(command)])
    assert words in [line.rpartition(" | ")[2] for line in lines_that_run()], words


def lines_that_run() -> list[str]:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    found = re.findall(r"^```bash run\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "".join(found).splitlines()


def test_the_example_of_import_runs(tmp_path: Path) -> None:
    (tmp_path / "wards").mkdir()
    (tmp_path / "wards" / "a.csv").write_text(WARDS)
    done = run(*example("import"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"wards", "wards.h5", "wards.card.md"}

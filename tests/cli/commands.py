"""Commands run as a user runs them: in this process, which is quick, or in one of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sept_offline.cli import main

ROOT = Path(__file__).parents[2]
# A test runner in the background ignores interrupts, and its children would inherit that.
CALL = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from sept_offline.cli import main; main()"
)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CALL, *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_alone(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    with start(*arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In this process."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(cwd):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as done:
            code = done.code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def run_json(*arguments: object, cwd: Path) -> dict[str, Any]:
    """The one object on the one line of standard output."""
    done = run(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n") and done.stdout.count("\n") == 1, done.stdout
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def refused(*arguments: object, cwd: Path, code: int = 2) -> str:
    """The sentence with which a command refuses; nothing else is said anywhere."""
    done = run(*arguments, cwd=cwd)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("Error: ")]
    assert len(errors) == 1 and lines[-1] == errors[0], done.stderr
    assert "Traceback" not in done.stderr
    assert errors[0].endswith((".", "?"))
    return errors[0]

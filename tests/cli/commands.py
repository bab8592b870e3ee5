"""Commands run as a user runs them: in this process, which is quick, or in one of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from sept_offline.cli import main
from tests import processes

ROOT = Path(__file__).parents[2]
TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "120"}
ASKED = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS")
"""What the tests of terminals set themselves."""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ASKED}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def start(*arguments: object, cwd: Path, **variables: str) -> processes.Process:
    return processes.start(*arguments, cwd=cwd, env={**environment(), **variables})


def run_alone(*arguments: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own."""
    return processes.run(*arguments, cwd=cwd, env={**environment(), **variables})


IN_TURN = """
import sys
import sept_offline
from sept_offline.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as done:
        if done.code:
            raise
    # the others find what a script would have loaded
    for name in sept_offline.__all__:
        getattr(sept_offline, name)
"""


def run_code(code: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In an interpreter of its own, which has loaded nothing yet."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_fresh(*lines: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In one interpreter of their own, so that nothing that is imported on the way goes unheard."""
    return run_code(IN_TURN, *lines, cwd=cwd)


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


def run_on_terminal(
    *arguments: object, cwd: Path, fresh: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose standard output and error are a terminal each.

    fresh: in an interpreter of its own as well, whose modules the variables may change.
    """
    said: dict[str, bytes] = {}
    (out, out_end), (err, err_end) = pty.openpty(), pty.openpty()
    how: dict[str, Any] = {
        "cwd": cwd,
        "env": {**environment(), **TERMINAL, **variables},
        "stdin": subprocess.DEVNULL,
        "stdout": out_end,
        "stderr": err_end,
    }
    process: subprocess.Popen[bytes] | processes.Process
    if fresh:
        command = [sys.executable, "-c", processes.COMMAND, *map(str, arguments)]
        process = subprocess.Popen(command, **how)
    else:
        process = processes.start(*arguments, **how)
    os.close(out_end)
    os.close(err_end)

    def listen(name: str, end: int) -> None:
        said[name] = b""
        # Linux tells the end of a terminal, whose last writer has gone, as an error
        with contextlib.suppress(OSError):
            while data := os.read(end, 65536):
                said[name] += data
        os.close(end)

    listeners = [
        threading.Thread(target=listen, args=named) for named in (("out", out), ("err", err))
    ]
    for listener in listeners:
        listener.start()
    code = process.wait(timeout=300)
    for listener in listeners:
        listener.join()
    return subprocess.CompletedProcess(arguments, code, said["out"].decode(), said["err"].decode())


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
    assert errors[0].endswith((".", "?", "?)"))
    return errors[0]

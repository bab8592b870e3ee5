"""Processes of their own that begin at once: forked from one that has loaded torch already.

An interpreter takes four seconds of a core to load torch and d3rlpy; a hundred of them were half of
the time of all tests. What `start` gives can be killed, interrupted and led by pipes as any other
process, with an environment, a folder and modules of its own. Only what it means to load the
library does not show in it: tests of that start a real interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from tests import disk

ROOT = Path(__file__).parents[1]
LOADED = (
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numba",
    "onnx",
    "plotly",
    "safetensors.torch",
    "sept_offline.agent.kernels",
    "sept_offline.tools.bench.figures",
    "sept_offline.cli.main",
    "sept_offline.collect",
    "sept_offline.tools.demarcate.latents",
    "sept_offline.tools.deploy.graphs",
    "sept_offline.methods",
    "sept_offline.tools.ope",
    "sept_offline.tools.report.report",
    "sklearn.cluster",
)
"""What commands load when they are asked to work, but for the simulators: some tests do without."""
STAY = bytes(4)
"""What a worker sends in place of a request's size, to keep the server alive."""
COMMAND = "from sept_offline.cli import main; main()"
WHOLE = 300.0
"""Seconds after which a process that was to end by itself has failed."""


class Process:
    """One process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, line: socket.socket, pipes: dict[str, IO[str] | None]) -> None:
        self._line = line
        self._said = b""
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = (pipes[n] for n in ("stdin", "stdout", "stderr"))
        self.pid = int(self._hear(WHOLE))

    def _hear(self, timeout: float | None) -> str:
        """The next line of the one that waits for the process."""
        self._line.settimeout(timeout)
        while b"\n" not in self._said:
            more = self._line.recv(64)
            if not more:
                raise RuntimeError("The server of the tests' processes has gone.")
            self._said += more
        first, _, self._said = self._said.partition(b"\n")
        return first.decode()

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal."""
        if self.returncode is None:
            try:
                self.returncode = int(self._hear(timeout))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("process", timeout or 0.0) from None
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            # it may end between the question and the signal
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, given: str | None = None, timeout: float = WHOLE) -> tuple[str, str]:
        """What it says on both ways until it ends."""
        said = {"stdout": "", "stderr": ""}

        def listen(name: str, stream: IO[str]) -> None:
            said[name] = stream.read()

        listeners = [
            threading.Thread(target=listen, args=(name, stream), daemon=True)
            for name, stream in (("stdout", self.stdout), ("stderr", self.stderr))
            if stream is not None and not stream.closed
        ]
        for listener in listeners:
            listener.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(given or "")
                self.stdin.close()
        until = time.monotonic() + timeout
        for listener in listeners:
            listener.join(max(until - time.monotonic(), 0.0))
        self.wait(max(until - time.monotonic(), 0.001))
        return said["stdout"], said["stderr"]

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        if kind is not None:
            self.kill()
        self.wait(WHOLE)


def start(
    *arguments: object,
    code: str = COMMAND,
    script: Path | None = None,
    cwd: Path | str = ".",
    env: dict[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> Process:
    """`python -c CODE ARGUMENTS`, or `python SCRIPT ARGUMENTS`; the command line by default.

    Streams are PIPE, DEVNULL or a descriptor, as for `subprocess.Popen`; None is inherited.
    """
    request = {
        "arguments": [str(argument) for argument in arguments],
        "code": code,
        "script": None if script is None else str(script),
        "cwd": str(Path(cwd).absolute()),
        "env": dict(os.environ) if env is None else env,
    }
    pipes: dict[str, IO[str] | None] = {"stdin": None, "stdout": None, "stderr": None}
    ends, ours = [], []
    for number, (name, given) in enumerate(
        (("stdin", stdin), ("stdout", stdout), ("stderr", stderr))
    ):
        if given == subprocess.PIPE:
            read, write = os.pipe()
            here, there = (write, read) if name == "stdin" else (read, write)
            pipes[name] = os.fdopen(here, "w" if name == "stdin" else "r", encoding="utf-8")
            ours.append(there)
        elif given == subprocess.DEVNULL:
            there = os.open(os.devnull, os.O_RDWR)
            ours.append(there)
        else:
            there = number if given is None else given
        ends.append(there)
    line = socket.socket(socket.AF_UNIX)
    line.connect(str(server()))
    data = json.dumps(request).encode()
    socket.send_fds(line, [len(data).to_bytes(4, "little")], ends)
    line.sendall(data)
    for end in ours:
        os.close(end)
    return Process(line, pipes)


def run(
    *arguments: object, given: str | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """The same, to its end."""
    if given is not None:
        how["stdin"] = subprocess.PIPE
    with start(*arguments, **how) as process:
        out, err = process.communicate(given)
    return subprocess.CompletedProcess(arguments, process.returncode or 0, out, err)


def run_name() -> str:
    """What the workers of one test run have in common."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))


@functools.cache
def server() -> Path:
    """The socket of the server, which is started when the first worker of a test run asks for it.

    Each worker keeps a connection; when the last one is closed, the server ends.
    """
    folder = Path(tempfile.gettempdir()) / f"tests-{os.getuid()}-{run_name()[:12]}"
    folder.mkdir(mode=0o700, exist_ok=True)
    address = folder / "socket"
    staying = socket.socket(socket.AF_UNIX)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started = None
        try:
            staying.connect(str(address))
        except OSError:
            started = _start_server(address)
            staying.connect(str(address))
        staying.sendall(STAY)

    def end() -> None:
        staying.close()
        # others may still need it, but not for long: all workers end together
        if started is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(20.0)

    atexit.register(end)
    return address


def _start_server(address: Path) -> subprocess.Popen[bytes]:
    """A server that listens."""
    address.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", "from tests.processes import main; main()", str(address)],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # what has threads cannot be forked
            "OMP_NUM_THREADS": "1",
            # what numba says in colours would have every process take them back at its end
            "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    return process


def main() -> None:
    """The server's life, and in a process that it forked, that one's."""
    for name in LOADED:
        # an extra that is not installed is some test's to miss
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    _act()
    disk.do_not_wait()
    assert "simulators" not in sys.modules
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    # pyarrow's allocator knows how to be forked
    others = [name for name in threads[1:] if name != "jemalloc_bg_thd"]
    assert not others, f"threads cannot be forked: {others}"
    # what torch would take down at the end of every process goes with its memory
    for loaded in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        loaded.atexit = False
    # what is collected later would be copied into every process
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    line = socket.socket(socket.AF_UNIX)
    line.bind(sys.argv[1])
    line.listen()
    print("ready", flush=True)
    alive: dict[int, socket.socket] = {}
    workers: set[socket.socket] = set()
    while True:
        ready, _, _ = select.select([line, woken, *workers], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report(alive)
        for gone in workers.intersection(ready):
            # closed by the end of its worker, however that came
            gone.close()
            workers.remove(gone)
            if not workers:
                shutil.rmtree(Path(sys.argv[1]).parent, ignore_errors=True)
                sys.exit(0)
        if line not in ready:
            continue
        asked, _ = line.accept()
        size, ends, _, _ = socket.recv_fds(asked, 4, 3)
        if size == STAY:
            workers.add(asked)
            continue
        request = _receive(asked, int.from_bytes(size, "little"))
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for other in (line, asked, *alive.values(), *workers):
                other.close()
            os.close(woken)
            os.close(wake)
            break
        for end in ends:
            os.close(end)
        alive[child] = asked
        with contextlib.suppress(OSError):
            asked.sendall(f"{child}\n".encode())
    _become(request, ends)


def _act() -> None:
    """One row through a network: numba loads half of itself only when a function is called.

    On one thread, so that the pools of threads need not be looked for in every process.
    """
    from sept_offline.agent.networks import MLP
    from sept_offline.threads import one_thread

    row = np.ones(2, dtype=np.float32)
    with one_thread():
        MLP([(np.eye(2, dtype=np.float32), row)]).row(row)


def _report(alive: dict[int, socket.socket]) -> None:
    """Tell who waits for it how each process that has ended did."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            line = alive.pop(ended[0])
            with contextlib.suppress(OSError):
                line.sendall(f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
            line.close()


def _receive(line: socket.socket, left: int) -> dict[str, Any]:
    data = b""
    while len(data) < left:
        data += line.recv(left - len(data))
    request: dict[str, Any] = json.loads(data)
    return request


def _become(request: dict[str, Any], ends: list[int]) -> None:
    """What an interpreter does before and after it runs what it is given."""
    for number, end in enumerate(ends):
        os.dup2(end, number)
    for end in ends:
        if end > 2:
            os.close(end)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _writer(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2)  # type: ignore[misc]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [request["script"] or "-c", *request["arguments"]]
    code: Any = 0
    try:
        if request["script"] is None:
            exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.path[0] = str(Path(request["script"]).parent)
            runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    _end(code)


def _end(code: Any) -> None:
    """As an interpreter ends, but for freeing all it has loaded, which takes seconds."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        traceback.print_exc()
        code = 120
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _writer(number: int) -> IO[str]:
    terminal = os.isatty(number)
    return os.fdopen(
        number,
        "w",
        buffering=1 if terminal or number == 2 else -1,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
    )

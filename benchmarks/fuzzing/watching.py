"""Notices what no reader may do: run code that a file names, or contact a host."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.fuzzing.corpus import EVIL

EXECUTING = frozenset(
    ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class")
)
CONTACTING = frozenset(
    ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
)


class Watch:
    """Listens to Python's audit events and to requests for Arrow's remote filesystems.

    Audit hooks cannot be removed: install it only in a process that ends with the watch.
    """

    def __init__(self) -> None:
        self._seen: tuple[str, str] | None = None

    def install(self) -> None:
        """Begin to listen, for the rest of the process."""
        import sept_offline.data.filesystems as filesystems

        sys.addaudithook(self._hear)
        # Arrow connects in C++, where Python hears nothing.
        filesystems._from_uri = self._open_remote  # type: ignore[assignment]

    def clear(self) -> None:
        """Forget what was seen."""
        self._seen = None

    def outcome(self) -> tuple[str, str] | None:
        """`executed` or `contacted` and what was seen, if anything was since it was cleared."""
        return self._seen

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class" and str(arguments[0]).startswith("numba."):
            return  # the compiled functions that Numba keeps beside the library
        if event in CONTACTING:
            self._seen = ("contacted", f"{event} {arguments!r:.200}")
        elif event in EXECUTING or (event == "import" and arguments[0] == EVIL):
            self._seen = ("executed", f"{event} {arguments!r:.200}")

    def _open_remote(self, uri: str) -> None:
        self._seen = ("contacted", uri)
        raise OSError("nothing is contacted while files are fuzzed")

"""`sept-offline fit` as a process of its own, with a snapshot after every epoch.

    python drive_fit.py MARKS [arguments of fit]

When an epoch ends and when a snapshot is about to be written, a line is appended to the file MARKS,
so that a killer knows where the process is. At the mark that the variable SEPT_TESTS_WAIT_AT names
it waits for its killer. Nothing of what is computed changes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sept_offline.cli import main
from sept_offline.methods import run


def instrument(marks: Path) -> None:
    """Snapshots always, and the marks."""
    log, save = run.RunDirectory.log, run.save_state

    def mark(text: str) -> None:
        with marks.open("a", encoding="utf-8") as handle:
            handle.write(text + "\n")
        if text == os.environ.get("SEPT_TESTS_WAIT_AT"):
            time.sleep(600)

    def logged(self: Any, stage: str, done: int, metrics: dict[str, float]) -> None:
        self.checkpoint_seconds = 0.0
        mark(f"{stage} {done}")
        log(self, stage, done, metrics)

    def saved(path: Path, state: Any) -> None:
        mark(f"checkpointing {path.stem.partition('-')[2]} {state.values['done']}")
        save(path, state)

    run.RunDirectory.log = logged  # type: ignore[method-assign]  # that is the point
    run.save_state = saved


if __name__ == "__main__":
    # Whoever runs the tests in the background has made this process deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    instrument(Path(sys.argv[1]))
    main(["fit", *sys.argv[2:]])

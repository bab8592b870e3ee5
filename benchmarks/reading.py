"""What reading costs in one fit: seconds, calls and peak memory, for logs of any size.

    python benchmarks/reading.py --steps 1_000_000

A fit with hardly any updates runs in a process of its own. The seconds are those of the processor,
in the functions that read a dataset and in the whole fit.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LENGTH = 200
SETTINGS = {
    "verdict": False,
    "stack": 1,
    "probe_steps": 2,
    "latent": {"updates": 1},
    "probe": {"steps": 1},
    "control": {"updates": 1, "hidden": [4], "members": 1, "algorithm": "double_dqn"},
}


def write(path: Path, steps: int) -> None:
    """Logs of four instances in episodes of 200 steps, d = 4, A = 3."""
    import sept_offline as so

    rng = np.random.default_rng(0)
    with so.DatasetWriter(path, num_actions=3, probe_steps=2) as writer:
        for number in range(steps // LENGTH):
            writer.append(
                instance=f"train-{number % 4}",
                observations=rng.normal(size=(LENGTH + 1, 4)).round(2),
                actions=rng.integers(3, size=LENGTH),
                rewards=rng.normal(size=LENGTH).round(2),
                propensities=np.full((LENGTH, 3), 1 / 3),
                terminated=False,
                truncated=True,
                behaviour="random",
                seed=number,
            )


class Clock:
    """Counts calls and seconds of functions that may call each other."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.seconds = 0.0
        self._inside = False

    def watch(self, owner: Any, name: str) -> None:
        """Count what `owner.name` takes, unless it is called by another watched function."""
        function = getattr(owner, name, None)
        if function is None:
            return

        @functools.wraps(function)
        def watched(*arguments: Any, **named: Any) -> Any:
            if self._inside:
                return function(*arguments, **named)
            self.calls[name] = self.calls.get(name, 0) + 1
            self._inside, began = True, time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self._inside = False
                self.seconds += time.process_time() - began

        setattr(owner, name, watched)


def measure(path: Path, method: str) -> dict[str, Any]:
    """The cost of one fit from a file, as the command does it."""
    import sept_offline.cli.fit
    import sept_offline.data
    import sept_offline.methods.fitting as fitting
    from sept_offline.cli import main

    clock = Clock()
    for name in ("steps", "segments", "columns", "in_memory"):
        clock.watch(sept_offline.data.Dataset, name)
    for name in ("validate", "load_dataset", "read_dataset"):
        clock.watch(sept_offline.data, name)
        clock.watch(fitting, name)
    settings = []
    for key, value in SETTINGS.items():
        inner = value if isinstance(value, dict) else {None: value}
        for name, own in inner.items():
            place = key if name is None else f"{key}.{name}"
            written = f'"{own}"' if isinstance(own, str) else json.dumps(own)
            settings += ["--set", f"{place}={written}"]
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    out = path.parent / "run"
    try:
        main(["fit", str(path), "--method", method, "--quiet", *settings, "-o", str(out)])
    except SystemExit as end:
        if end.code:
            raise
    return {
        "reading_seconds": round(clock.seconds, 2),
        "fit_seconds": round(time.process_time() - began, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "start_mb": base // 1024,
        "calls": clock.calls,
    }


def run() -> None:
    """Write logs, fit to them in another process, and print what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--method", default="sept")
    parser.add_argument("--suffix", default="h5", choices=("h5", "parquet"))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure, given.method)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"logs.{given.suffix}"
        write(path, given.steps)
        command = [sys.executable, __file__, "--measure", str(path), "--method", given.method]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        size = path.stat().st_size / 1e6
    print(f"{given.steps:,} steps, {given.suffix} of {size:.1f} MB: {done.stdout.splitlines()[-1]}")


if __name__ == "__main__":
    run()

"""What the checks cost: opening, validating, the start of a fit, a resume, loading an agent.

    python benchmarks/checks.py [--against OTHER_CHECKOUT] [--repeats 7]

Each figure is the least processor time of several repeats in a process of its own. With another
checkout both are measured in turn, in one run on one machine, and shown side by side with their
ratio.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EPISODES = 2000


def best(repeats: int, work: Callable[[], Any]) -> float:
    """Milliseconds of processor time of the quickest of some repeats."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * min(times)


def measure(folder: Path, repeats: int) -> dict[str, float]:
    """The figures of the library that this process imports."""
    import numpy as np

    import sept_offline as so
    from sept_offline.evaluation import evaluate, load_results
    from sept_offline.methods import fitter
    from sept_offline.methods.fitting import Fitter, RunDirectory, resolve_config

    rng = np.random.default_rng(0)
    logs = folder / "logs.h5"
    with so.DatasetWriter(logs, num_actions=4, probe_steps=1, family="navigation2d") as writer:
        for number in range(EPISODES):
            writer.append(
                instance=f"train-{number % 2}",
                observations=rng.normal(size=(51, 2)),
                actions=rng.integers(0, 4, size=50),
                rewards=rng.normal(size=50),
                propensities=np.full((50, 4), 0.25),
                terminated=False,
                truncated=True,
            )
    so.convert(logs, folder / "logs.parquet")
    control = {"updates": 40, "hidden": [256, 256], "members": 1}
    # A library from before the checks has no verdict either.
    settings: dict[str, Any] = {"control": control} | ({"verdict": False} if CHECKED else {})
    so.fit(logs, "avg", settings, out=folder / "run")
    agent = so.load_agent(folder / "run")
    evaluate(agent, "navigation2d", episodes_per_instance=50).write(folder / "results.parquet")
    data = so.load_dataset(logs)
    config = resolve_config(data, "default", settings)
    record = {"method": "avg", "seed": 0, "config": {}}
    begun = RunDirectory(folder / "begun", checkpoint_seconds=0.0)
    begun.open(record, resume=False, restart=False)
    saved = []
    for number, _ in enumerate(Fitter(data, "avg", config, 0, begun)):
        saved.append(time.process_time())
        if number == 12:
            break
    begun.close()

    def resume() -> None:
        run = RunDirectory(folder / "begun")
        work = Fitter(data, "avg", config, 0)
        work.begin()
        assert work._begun is not None
        run.open(record, resume=True, restart=False)
        run.restore(0, work._begun[1])  # type: ignore[arg-type]
        run.close()

    def start() -> None:
        with so.load_dataset(logs) as opened:
            fitter(opened, "avg", settings).begin()

    def start_from_path() -> None:
        checked: dict[str, Any] = {"check": True} if CHECKED else {}
        with so.load_dataset(logs, **checked) as opened:
            fitter(opened, "avg", settings).begin()

    return {
        "open .h5": best(repeats, lambda: so.load_dataset(logs).close()),
        "open .parquet": best(repeats, lambda: so.load_dataset(folder / "logs.parquet").close()),
        "validate .h5": best(repeats, lambda: so.validate(logs)),
        "validate .parquet": best(repeats, lambda: so.validate(folder / "logs.parquet")),
        "start of a fit, dataset open": best(repeats, start),
        "start of a fit from a path": best(repeats, start_from_path),
        "resume": best(repeats, resume),
        "load_agent": best(repeats, lambda: so.load_agent(folder / "run")),
        "load_results": best(repeats, lambda: load_results(folder / "results.parquet")),
        "one snapshot and its metrics": 1000 * min(b - a for a, b in itertools.pairwise(saved)),
    }


CHECKED = True
"""Whether the library measured checks every byte where `fit` is given a path."""


def in_process(checkout: Path, repeats: int, checked: bool) -> dict[str, float]:
    """The figures of a checkout, in a process of its own."""
    command = [sys.executable, __file__, "--measure", "--repeats", str(repeats)]
    command += [] if checked else ["--unchecked"]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, env=environment, cwd=checkout, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, and print a table."""
    global CHECKED
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, help="a checkout to compare with")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2, help="each checkout, in turn")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--unchecked", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        CHECKED = not arguments.unchecked
        with tempfile.TemporaryDirectory() as scratch:
            print(json.dumps(measure(Path(scratch), arguments.repeats)))
        return
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for _ in range(arguments.rounds):
        ours.append(in_process(ROOT, arguments.repeats, True))
        if arguments.against is not None:
            theirs.append(in_process(arguments.against.absolute(), arguments.repeats, False))
    print(f"milliseconds of processor time, the least of {arguments.repeats} × {arguments.rounds}")
    for name in ours[0]:
        now = min(one[name] for one in ours)
        line = f"{name:32} {now:10.2f}"
        if theirs:
            before = min(one[name] for one in theirs)
            line += f"   before {before:10.2f}   × {now / before:.2f}"
        print(line)


if __name__ == "__main__":
    main()

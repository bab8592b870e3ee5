"""What grows with episodes, instances and workers: collecting, reading, and the stages of a fit.

    python benchmarks/scaling.py [--steps 100000 1000000 10000000] [--out benchmarks/results]

Each measurement runs in a process of its own, so that its peak of resident memory is its own, and
its seconds are of the processor, so that a busy machine shows little. `docs/scaling.md` reads the
lines that this writes to `scaling.jsonl`, one a measurement.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.data.parquet import MANIFEST
from sept_offline.progress import Silent

SEGMENT = 8
UPDATES = 40
"""Of each stage of a fit: two an epoch, enough to tell an update from what comes before it."""


def peak_mb() -> float:
    """The most memory this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Clock(Silent):
    """Notes the processor's seconds when the last shard is done."""

    shards = 0.0

    def finish(self) -> None:
        """The shards are over; hashing and the manifest follow."""
        self.shards = time.process_time()


def collect(family: str, steps: int, out: str, instances: int = 0) -> dict[str, Any]:
    """Log about `steps` steps of random behaviour, with one worker, in this process."""
    record = so.load_family(family)
    if instances:
        record = many_instances(record, instances)
    before, began, clock = peak_mb(), time.process_time(), Clock()
    # Most random episodes last to the limit.
    overrides = {"behaviour": "random", "episodes": max(instances, steps // record.train_steps)}
    data = so.collect_dataset(record, out, overrides=overrides, progress=clock, restart=True)
    ended = time.process_time()
    path = Path(out)
    files = list(path.iterdir()) if path.is_dir() else [path]
    return {
        "steps": data.num_steps,
        "episodes": data.num_episodes,
        "instances": len(data.instances),
        "shards_s": clock.shards - began,
        "publish_s": ended - clock.shards,
        "disk_mb": sum(file.stat().st_size for file in files) / 2**20,
        "files": len(files),
        "manifest_mb": (path / MANIFEST).stat().st_size / 2**20 if path.is_dir() else 0.0,
        "memory_mb": peak_mb() - before,
    }


def many_instances(record: so.Family, count: int) -> so.Family:
    """The same family with hidden parameters drawn for as many training instances as wanted."""
    known = record.instances("train")
    rng = np.random.default_rng(0)
    draws = [known[int(rng.integers(len(known)))] for _ in range(count)]
    jittered = [{name: v * float(rng.uniform(0.9, 1.0)) for name, v in h.items()} for h in draws]
    return dataclasses.replace(record, name="many", splits={**record.splits, "train": jittered})


def read(out: str, whole: bool = True) -> dict[str, Any]:
    """Open a dataset, read its initial segments, then everything."""
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401 - loaded here, so that it is not measured below

    before, began = peak_mb(), time.process_time()
    data = so.load_dataset(out)
    opened = time.process_time()
    opened_mb = peak_mb() - before
    data.segments(SEGMENT)
    segments, segments_mb = time.process_time(), peak_mb() - before
    if whole:
        data.steps()
    return {
        "steps": data.num_steps,
        "open_s": opened - began,
        "open_mb": opened_mb,
        "segments_s": segments - opened,
        "segments_mb": segments_mb,
        "whole_s": time.process_time() - segments,
        "whole_mb": peak_mb() - before,
    }


def fit(out: str) -> dict[str, Any]:
    """A few updates of every stage of SEPT: what is spent before them, and on each."""
    import d3rlpy  # noqa: F401 - loaded here, so that it is not measured below

    config = {
        "verdict": False,
        "latent": {"updates": UPDATES},
        "probe": {"steps": UPDATES},
        "control": {"updates": UPDATES},
    }
    data = so.load_dataset(out)
    before, last = peak_mb(), time.process_time()
    work = so.fitter(data.in_memory(), "sept", config)  # as the command does
    found: dict[str, list[float]] = {}
    for epoch in work:
        now = time.process_time()
        found.setdefault(epoch.stage, []).append(now - last)
        last = now
    result: dict[str, Any] = {
        "steps": data.num_steps,
        "after_s": time.process_time() - last,
        "memory_mb": peak_mb() - before,
    }
    for stage, seconds in found.items():
        epoch_s = float(np.median(seconds[1:]))
        result[f"{stage}_before_s"] = seconds[0] - epoch_s
        result[f"{stage}_update_ms"] = 1000 * epoch_s / (UPDATES // len(seconds))
    return result


def tasks(engine: str, count: int, workers: int) -> dict[str, Any]:
    """What a task costs where it has nothing to do; seconds of the clock, for others spend them."""
    from sept_offline.engines import run_tasks

    began, first = time.monotonic(), 0.0
    for _ in run_tasks(abs, range(count), engine=engine, workers=workers):
        first = first or time.monotonic() - began
    rest = time.monotonic() - began - first
    return {"tasks": count, "first_s": first, "each_ms": 1000 * rest / (count - 1)}


KINDS = {"collect": collect, "read": read, "fit": fit, "tasks": tasks}


def apart(kind: str, **arguments: Any) -> dict[str, Any]:
    """One measurement in a fresh process, on one thread."""
    command = [sys.executable, __file__, "--one", json.dumps([kind, arguments])]
    threads = {"OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    began = time.monotonic()
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
    )
    row = {"kind": kind, **arguments, **json.loads(done.stdout)}
    row["clock_s"] = time.monotonic() - began
    row.pop("out", None)
    shown = "  ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
    )
    print(shown, flush=True)
    return row


def main() -> None:
    """Measure everything, smallest first, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--fit-steps", type=int, default=10_000_000, help="No larger fit.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, given = json.loads(arguments.one)
        print(json.dumps(KINDS[kind](**given)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for engine, workers in (("local", 2), ("ray", 2)):
            rows.append(apart("tasks", engine=engine, count=500, workers=workers))
        for instances in (8, 64, 512):
            out = f"{scratch}/instances-{instances}"
            rows.append(
                apart("collect", family="acrobot", steps=200_000, out=out, instances=instances)
            )
            rows.append({**apart("read", out=out), "instances": instances})
        for steps in arguments.steps:
            out = f"{scratch}/steps-{steps}"
            rows.append(apart("collect", family="navigation2d", steps=steps, out=out))
            rows.append(apart("read", out=out))
            if steps <= arguments.fit_steps:
                rows.append(apart("fit", out=out))
            if steps <= 1_000_000:
                out = f"{scratch}/file-{steps}.h5"
                rows.append(apart("collect", family="navigation2d", steps=steps, out=out))
    arguments.out.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (arguments.out / "scaling.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()

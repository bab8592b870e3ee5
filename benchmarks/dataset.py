"""Speed and memory of datasets: writing, opening, reading segments, and the choice of chunks.

    python benchmarks/dataset.py [--steps 10000000] [--choices]

Seconds are of the processor, so that a busy machine does not show. Rivals are named in the same
run: segments against reading the whole file, memory against the file's size, each way of storing
against the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sept_offline.data import DatasetWriter, load_dataset
from sept_offline.data.dataset import open_source
from sept_offline.data.hdf5 import write_hdf5
from sept_offline.data.parquet import write_parquet

EPISODE_STEPS = 200
DIM, NUM_ACTIONS = 4, 3
SEGMENT = 8

READER = """
import json, sys, time
from pathlib import Path
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
from sept_offline.data import load_dataset
import pyarrow.parquet, pyarrow.dataset
before = peak()
start = time.process_time(); data = load_dataset(sys.argv[1]); opened = time.process_time() - start
start = time.process_time(); segments = data.segments(int(sys.argv[2]))
read = time.process_time() - start
after = peak()
names = ("observations", "actions", "rewards", "propensities")
bytes_ = sum(getattr(segments, name).nbytes for name in names)
start = time.process_time(); data.episodes()[data.num_episodes // 2]
one = time.process_time() - start
print(json.dumps({"open_s": opened, "segments_s": read, "episode_s": one,
                  "grown_mb": after - before, "result_mb": bytes_ / 2**20}))
"""


def write(path: Path, steps: int, episode_steps: int = EPISODE_STEPS) -> tuple[float, float]:
    """Log smooth trajectories under an ε-greedy rule; seconds of appending, and of closing."""
    rng = np.random.default_rng(0)
    writer = DatasetWriter(path, num_actions=NUM_ACTIONS, observation_dim=DIM)
    start = time.process_time()
    for number in range(steps // episode_steps):
        observations = np.cumsum(rng.normal(size=(episode_steps + 1, DIM)), axis=0) * 0.1
        greedy = rng.integers(NUM_ACTIONS, size=episode_steps)
        propensities = np.full((episode_steps, NUM_ACTIONS), 0.1)
        propensities[np.arange(episode_steps), greedy] = 0.8
        writer.append(
            instance=f"train-{number % 8}",
            observations=observations,
            actions=rng.integers(NUM_ACTIONS, size=episode_steps),
            rewards=-0.05 * observations[1:, 0] ** 2,
            terminated=False,
            truncated=True,
            propensities=propensities,
            seed=number,
        )
    appended = time.process_time() - start
    writer.close()
    return appended, time.process_time() - start - appended


def measure(path: Path) -> dict[str, float]:
    """Open and read in a fresh process, so that its peak of resident memory is its own."""
    command = [sys.executable, "-c", READER, str(path), str(SEGMENT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def scale(folder: Path, steps: int) -> None:
    """The large file, in both formats."""
    print(f"{steps:,} steps in episodes of {EPISODE_STEPS}; segments({SEGMENT})")
    for suffix in ("h5", "parquet"):
        path = folder / f"large.{suffix}"
        appended, closed = write(path, steps)
        size = path.stat().st_size / 2**20
        found = measure(path)
        start = time.process_time()
        with load_dataset(path) as data:
            data.steps()
        whole = time.process_time() - start
        print(
            f"  {suffix:8s} {size:7.0f} MB  "
            f"write {steps / (appended + closed) / 1e6:5.2f} M steps/s "
            f"(append {appended:.1f} s, close {closed:.1f} s)  "
            f"open {found['open_s'] * 1e3:6.1f} ms  "
            f"segments {found['segments_s']:5.2f} s (whole {whole:5.2f} s, "
            f"{whole / found['segments_s']:.1f}x)  one episode {found['episode_s'] * 1e3:.1f} ms  "
            f"memory +{found['grown_mb']:.0f} MB of which result {found['result_mb']:.0f} MB, "
            f"{found['grown_mb'] / size:.2f} of the file"
        )
        path.unlink()


def choices(folder: Path, steps: int) -> None:
    """One content in many chunks and compressions."""
    for episode_steps in (EPISODE_STEPS, 5000):
        base = folder / "base.h5"
        write(base, steps, episode_steps)
        source, hidden = open_source(base)
        print(f"{steps:,} steps in episodes of {episode_steps}: size, write, open, segments")
        for compression in (None, "lzf", "gzip"):
            for kib in (8, 16, 32, 64, 256):
                path = folder / "choice.h5"
                start = time.process_time()
                write_hdf5(
                    path,
                    source,
                    source.header,
                    hidden,
                    chunk_bytes=kib << 10,
                    compression=compression,
                )
                _row(f"HDF5 {compression} {kib} KiB", path, time.process_time() - start)
        for compression in ("none", "snappy", "zstd"):
            for rows in (1 << 13, 1 << 14, 1 << 15, 1 << 17):
                path = folder / "choice.parquet"
                start = time.process_time()
                write_parquet(
                    path, source, source.header, hidden, group_rows=rows, compression=compression
                )
                _row(f"Parquet {compression} {rows} rows", path, time.process_time() - start)
        source.close()


def _row(name: str, path: Path, seconds: float) -> None:
    found = measure(path)
    print(
        f"  {name:28s} {path.stat().st_size / 2**20:7.1f} MB {seconds:6.2f} s "
        f"{found['open_s'] * 1e3:7.1f} ms {found['segments_s']:6.3f} s "
        f"one episode {found['episode_s'] * 1e3:5.2f} ms  +{found['grown_mb']:.0f} MB",
        flush=True,
    )
    path.unlink()


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--choices", action="store_true", help="the table of chunks, on a tenth")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.choices:
            choices(Path(folder), arguments.steps // 10)
        else:
            scale(Path(folder), arguments.steps)


if __name__ == "__main__":
    main()

"""Speed and memory of `sept-offline import` beside `pyarrow.csv` reading the same file alone.

    python benchmarks/importing.py [--steps 5000000] [--repeat 3] [--shuffled]

Both run in processes of their own, in turn, so that a busy machine is busy for both; the best of
the repetitions counts. The rival parses the table into memory and stops; the import also orders,
checks, hashes, compresses and writes it, and measures the card.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

EPISODE_STEPS = 100
INSTANCES = 8
DIM = 4
BLOCK = 500_000

COMMON = """
import json, sys, time
from pathlib import Path
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
import pyarrow.csv
from sept_offline.tools.importing import ImportMapping, import_logs
loaded, start, used = peak(), time.perf_counter(), time.process_time()
{work}
print(json.dumps({{"wall": time.perf_counter() - start, "cpu": time.process_time() - used,
                  "loaded": loaded, "peak": peak()}}))
"""
RIVAL = "pyarrow.csv.read_csv(sys.argv[1])"
OURS = """
import_logs(sys.argv[1], sys.argv[1] + ".h5", ImportMapping(
    instance="site", episode=("stay",), time="hour", observations=("a", "b", "c", "d"),
    action="drug", reward="score", terminated="cured", keep_terminal=True))
"""


def write_csv(path: Path, steps: int, shuffled: bool) -> None:
    """Smooth trajectories of eight sites, three drugs by name, ids with gaps."""
    rng = np.random.default_rng(0)
    order = rng.permutation(steps) if shuffled else np.arange(steps)
    sites = pa.array([f"site-{number}" for number in range(INSTANCES)])
    drugs = pa.array(["none", "low", "high"])
    writer = None
    for low in range(0, steps, BLOCK):
        number = order[low : low + BLOCK]
        stay, hour = np.divmod(number, EPISODE_STEPS)
        seen = np.cumsum(rng.normal(size=(len(number), DIM)), axis=0).astype(np.float32)
        table = pa.table(
            {
                "site": sites.take(pa.array(stay % INSTANCES)),
                "stay": stay * 3 + 7,
                "hour": hour,
                **{name: seen[:, position] for position, name in enumerate("abcd")},
                "drug": drugs.take(pa.array(rng.integers(3, size=len(number)))),
                "score": -0.05 * seen[:, 0].astype(np.float64) ** 2,
                "cured": hour == EPISODE_STEPS - 1,
            }
        )
        writer = writer or pc.CSVWriter(path, table.schema)
        writer.write(table)
    if writer is not None:
        writer.close()


def measure(work: str, path: Path) -> dict[str, float]:
    """One run in a fresh process."""
    command = [sys.executable, "-c", COMMON.format(work=work), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    """Write the file, run both in turn, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shuffled", action="store_true", help="rows in no order at all")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "log.csv"
        write_csv(path, arguments.steps, arguments.shuffled)
        size = path.stat().st_size / 2**20
        runs: dict[str, list[dict[str, float]]] = {RIVAL: [], OURS: []}
        for _ in range(arguments.repeat):
            for work, found in runs.items():
                found.append(measure(work, path))
        rival, ours = (
            {key: min(run[key] for run in found) for key in found[0]} for found in runs.values()
        )
        print(f"{arguments.steps:,} steps, {size:.0f} MB of CSV, best of {arguments.repeat}")
        print(f"{'':16s} {'wall, s':>8s} {'CPU, s':>8s} {'steps/s':>12s} {'peak, MB':>9s}")
        for name, found in (("pyarrow.csv", rival), ("import", ours)):
            print(
                f"{name:16s} {found['wall']:8.2f} {found['cpu']:8.2f} "
                f"{arguments.steps / found['wall']:12,.0f} {found['peak']:9.0f}"
            )
        print(
            f"speed of the rival's: {rival['wall'] / ours['wall']:.2f} by the clock, "
            f"{rival['cpu'] / ours['cpu']:.2f} by the processor; memory that the import adds "
            f"to its own libraries: {ours['peak'] - ours['loaded']:.0f} MB"
        )


if __name__ == "__main__":
    main()

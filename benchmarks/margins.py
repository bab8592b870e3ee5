"""How far do learned quantities stay from the bounds that tests set them, on every processor?

    python benchmarks/margins.py --seeds 8
    python benchmarks/margins.py --seeds 8 --tests tests/latent tests/probe
    python benchmarks/margins.py --table

Every learning test runs once for each seed and each setting. A setting is a choice of environment
variables that makes NumPy, torch or the C library take the instructions of another processor, so
that the last bits of every result change. Each finished test adds a line to the results file and is
never run twice: delete the lines of a test that has changed. The table is drawn from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.processors import SETTINGS  # noqa: E402

Line = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "margins.jsonl"
LEARNING = "learning and not long"
THIN = 2.0
"""A bound within this many standard deviations of the mean is thin: luck decides the test."""


def pytest(*arguments: object, setting: str = "none") -> subprocess.CompletedProcess[str]:
    """Run the tests of this repository in a process of its own."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **SETTINGS[setting], "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )


def collect(places: list[str]) -> list[str]:
    """The ids of the learning tests in these files and folders."""
    done = pytest("--collect-only", "-m", LEARNING, *places)
    found = [line for line in done.stdout.splitlines() if "::" in line]
    if not found:
        raise SystemExit(f"no learning test in {' '.join(places)}:\n{done.stdout}{done.stderr}")
    return found


def run(setting: str, seed: int, tests: list[str]) -> list[Line]:
    """One line for each test."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "margins.jsonl"
        done = pytest("--training-seed", seed, "--margins", out, *tests, setting=setting)
        if not out.exists():
            raise SystemExit(f"pytest has run nothing:\n{done.stdout}{done.stderr}")
        return [{"setting": setting, **line} for line in read(out)]


def read(path: Path) -> list[Line]:
    """The lines of a file, if there is one."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def shown(values: list[float], sign: str) -> str:
    """The worst and the mean."""
    if not values:
        return "–"
    worst = max(values) if sign in ("<", "<=") else min(values)
    return f"{worst:.3g} / {mean(values):.3g}"


def deviations(values: list[float], sign: str, bound: float) -> float:
    """From the mean to the bound, in standard deviations over seeds and settings."""
    room = bound - mean(values) if sign in ("<", "<=") else mean(values) - bound
    spread = stdev(values) if len(values) > 1 else 0.0
    return room / spread if spread > 0 else float("inf")


def table(lines: Iterable[Line]) -> str:
    """Test and quantity, bound, worst and mean value in each setting, misses; in Markdown."""
    lines = list(lines)
    settings = [name for name in SETTINGS if any(line["setting"] == name for line in lines)]
    quantities: dict[tuple[str, str, str, float], dict[str, list[float]]] = {}
    for line in lines:
        for name, value, sign, bound, _ in line["margins"]:
            key = (line["test"], name, sign, bound)
            quantities.setdefault(key, {}).setdefault(line["setting"], []).append(value)
    rows = [
        f"| test | quantity | bound | {' | '.join(settings)} | σ | runs | missed |",
        "|---|---|---|" + "---|" * (len(settings) + 3),
    ]
    last = ""
    for (test, name, sign, bound), found in sorted(quantities.items()):
        everything = [value for values in found.values() for value in values]
        own = [line for line in lines if line["test"] == test]
        missed = sum(misses(line, name, sign) for line in own)
        gap = deviations(everything, sign, bound)
        # one that no seed moves off its best value has no spread to compare with
        away = "–" if gap == float("inf") else "> 10" if gap > 10 else f"{gap:.1f}"
        if missed or gap < THIN:
            away = f"**{away}**"
        cells = [shown(found.get(setting, []), sign) for setting in settings]
        title = readable(test) if test != last else ""
        last = test
        rows.append(
            f"| {title} | {name} | {sign} {bound:g} | {' | '.join(cells)} | {away} "
            f"| {len(everything)} | {missed} |"
        )
    failed = [line for line in lines if line["outcome"] != "passed"]
    runs = {(line["setting"], line["seed"]) for line in lines}
    seconds = sum(line["seconds"] for line in lines) / max(len(runs), 1)
    rows += [
        "",
        f"{len({line['test'] for line in lines})} tests, {len(lines)} runs of them, "
        f"{len(failed)} failed. Once through: {seconds:.0f} s.",
    ]
    rows += sorted({f"- failed: {line['test']}, {line['setting']}" for line in failed})
    return "\n".join(rows) + "\n"


def misses(line: Line, name: str, sign: str) -> bool:
    """Whether this run's quantity is on the wrong side; on a bound that excludes it, room is 0."""
    return any(
        room < 0 or (room == 0 and sign in ("<", ">"))
        for own, _, kind, _, room in line["margins"]
        if (own, kind) == (name, sign)
    )


def readable(test: str) -> str:
    """`tests/latent/test_latent.py::test_x[a]` as `latent/test_latent: x [a]`."""
    path, _, name = test.partition("::")
    words = re.sub(r"\[(.*)\]$", r" [\1]", name.removeprefix("test_")).replace("_", " ")
    return f"`{path.removeprefix('tests/')}`: {words}"


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8, help="training seeds 0, 1, … (default: 8)")
    parser.add_argument(
        "--settings",
        default="none,generic,compatible",
        help=f"comma-separated, of {', '.join(SETTINGS)} (default: the first three)",
    )
    parser.add_argument(
        "--tests", nargs="+", default=["tests"], help="files or folders (default: all tests)"
    )
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    parser.add_argument(
        "-o", "--results", type=Path, default=RESULTS, help=f"default: {RESULTS.name}"
    )
    arguments = parser.parse_args()
    settings = arguments.settings.split(",")
    if unknown := set(settings) - set(SETTINGS):
        parser.error(f"no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    lines = read(arguments.results)
    if not arguments.table:
        wanted = collect(arguments.tests)
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        # seeds outside: stopped early, every setting has seen as many
        for seed in range(arguments.seeds):
            for setting in settings:
                known = {
                    line["test"]
                    for line in lines
                    if (line["setting"], line["seed"]) == (setting, seed)
                }
                left = [test for test in wanted if test not in known]
                if not left:
                    continue
                found = run(setting, seed, left)
                lines += found
                with arguments.results.open("a") as file:
                    file.writelines(json.dumps(line) + "\n" for line in found)
                bad = [line["test"] for line in found if line["outcome"] != "passed"]
                print(f"{setting}, seed {seed}: {len(found)} tests, failed: {bad}", flush=True)
    print(table(lines))


if __name__ == "__main__":
    main()

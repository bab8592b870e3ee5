"""The methods beside each other on families of continuous actions: one episode, on test instances.

    python benchmarks/continuous.py --work build/continuous
    python benchmarks/continuous.py --families pendulum --rows avg,sept --seeds 1
    python benchmarks/continuous.py --only-table

A cell is a family, a row and a seed. A row is a method; those that are published with rewards in
their context stand in two rows, with them and without. Logs are collected once per family, with
the shipped recipe; a finished cell adds a line to the results file and is never run twice, unless
the logs are others. Every test episode is the agent's first in its instance. All are fitted as with
--no-verdict, except for `sept after its verdict`, where `avg` or `history` may have taken over.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.settings import parse_settings
from sept_offline.tools.bench.statistics import grid, means, paired, quantiles, resample

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # families may be named as benchmarks.families.…

from benchmarks.testbed import append, in_markdown, said_of, scored, several  # noqa: E402

Cell = dict[str, Any]
FAMILIES = ("pendulum", "point-robot-wind", "hopper-params", "walker-params")
RIVALS = ("focal", "unicorn", "csro", "bati")
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (name, ()) for name in ("sept", "avg", "oracle", "history")},
    "sept after its verdict": ("sept", ("verdict=true",)),
    **{
        f"{name} {word} rewards": (name, (f"{name}.rewards={value}",))
        for word, value in (("without", "false"), ("with", "true"))
        for name in RIVALS
    },
}
"""The method and the settings of each row."""
RESULTS = HERE / "results" / "continuous.jsonl"
EPISODES = 10
"""Test episodes per instance, each with a new agent: only the first steps of one tell it where it
is."""


def run_cell(family: so.Family, row: str, seed: int, logs: Path, run: Path) -> Cell:
    """Fit in a run folder, which a kill leaves to be continued, then test."""
    method, settings = ROWS[row]
    chosen = {"verdict": False} | parse_settings(settings)
    began = time.process_time()
    agent = so.fit(logs, method, chosen, seed, out=run, resume=run.exists())
    fitted = time.process_time()
    results = so.evaluate(agent, family, "test", seed=seed, episodes_per_instance=EPISODES)
    scores = {name: float(value or 0.0) for name, value in results.by_instance("total").items()}
    return scored(scores) | {
        "needs": sorted(agent.needs),
        "fit_seconds": round(fitted - began, 1),
        "test_seconds": round(time.process_time() - fitted, 1),
        **(said_of(run) if chosen["verdict"] else {}),
    }


def key_of(cell: Cell) -> tuple[Any, ...]:
    """All that decides a cell's figures, beside the library."""
    return tuple(cell[name] for name in ("family", "row", "seed", "content_hash"))


def read(path: Path, names: Sequence[str] = ("family", "row", "seed")) -> list[Cell]:
    """The finished cells of each family's newest logs: the last line of each, and no half line.

    Names are those of the fields that tell cells of the same logs apart.
    """
    cells: dict[str, Cell] = {}
    logs: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            cell = json.loads(line)
        except json.JSONDecodeError:
            continue
        cells[repr([cell[name] for name in names])] = cell
        logs[cell["family"]] = cell["content_hash"]
    return [cell for cell in cells.values() if cell["content_hash"] == logs[cell["family"]]]


def run_cells(arguments: Any) -> int:
    """Run what is missing, seed by seed; how many cells failed."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    logs: dict[str, tuple[so.Family, Path, str]] = {}
    for name in arguments.families:
        path = arguments.work / f"{name}.h5"
        with so.collect_dataset(name, path, seed=0, resume=True) as data:
            logs[name] = so.load_family(name), path, data.content_hash
    done = {key_of(cell) for cell in read(arguments.results)}
    failed = 0
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name, (family, path, content) in logs.items():
            for row in arguments.rows:
                cell: Cell = {"family": name, "row": row, "seed": seed, "content_hash": content}
                if key_of(cell) in done:
                    continue
                digest = hashlib.sha256(repr(key_of(cell)).encode()).hexdigest()[:8]
                run = arguments.work / "runs" / f"{name}-{ROWS[row][0]}-{seed}-{digest}"
                try:
                    cell |= run_cell(family, row, seed, path, run)
                # Whatever one family does to one method, the others are still to be measured.
                except Exception as error:
                    failed += 1
                    print(f"{name} {row} {seed} failed: {type(error).__name__}: {error}")
                    continue
                append(arguments.results, cell)
                print(
                    f"{name}, {row}, seed {seed}: {cell['mean']:.4g}, {cell['fit_seconds']} s",
                    flush=True,
                )
    return failed


def episodes_of(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """One row for each seed and instance."""
    return [
        {"seed": cell["seed"], "instance": instance, "total": total}
        for cell in cells
        for instance, total in cell["instances"].items()
    ]


def difference(cells: Sequence[Cell], others: Sequence[Cell]) -> dict[str, Any] | None:
    """The mean paired difference; with one seed the interval is over instances alone."""
    found = paired(episodes_of(cells), episodes_of(others), "total")
    if found is None or found["low"] is not None:
        return found
    seeds = {cell["seed"] for cell in cells} & {cell["seed"] for cell in others}
    values = [
        grid(episodes_of([one for one in group if one["seed"] in seeds]), "total")[2]
        for group in (cells, others)
    ]
    gaps = (values[0] - values[1])[0]
    low, high = quantiles(means(gaps[resample(1, len(gaps))[1]])).tolist()
    return found | {"low": low, "high": high}


def shown(value: float) -> str:
    """Three digits, or as many as stand before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def interval(found: dict[str, Any] | None) -> str:
    """A mean difference with its interval."""
    if found is None:
        return ""
    return f"{shown(found['mean'])} [{shown(found['low'])}, {shown(found['high'])}]"


def table(family: str, cells: Sequence[Cell]) -> list[str]:
    """The rows of a family in Markdown."""
    groups = {row: [cell for cell in cells if cell["row"] == row] for row in ROWS}
    ends = [groups[row] for row in ("sept", "avg", "oracle")]
    seeds = set.intersection(*({cell["seed"] for cell in group} for group in ends))
    # over the same seeds: those that only some rows have would tilt the ratio
    sept, avg, oracle = ([cell for cell in group if cell["seed"] in seeds] for group in ends)
    gained, way = difference(sept, avg), difference(oracle, avg)
    rows = []
    for row, found in groups.items():
        if not found:
            continue
        totals = grid(episodes_of(found), "total")[2]
        instances = totals.mean(axis=0)
        error = instances.std(ddof=1) / np.sqrt(len(instances))
        less = difference(groups["sept"], found) if row != "sept" else None
        rows.append(
            [
                f"`{row.replace(' ', '` ', 1)}" + ("" if " " in row else "`"),
                str(len(found)),
                f"{shown(instances.mean())} ± {shown(error)}",
                shown(totals.mean(axis=1).min()),
                interval(less),
                f"{np.mean([cell['fit_seconds'] for cell in found]):.0f}",
            ]
        )
    titles = ["method", "seeds", "return", "worst seed", "`sept` above it", "seconds to fit"]
    lines = [f"**{family}**", "", *in_markdown(titles, rows), ""]
    if gained and way and way["low"] > 0:
        share = gained["mean"] / way["mean"]
        lines += [f"`sept` closes {share:.2f} of the gap between `avg` and `oracle`.", ""]
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Run what is missing, then print the tables; 1 if a cell failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", type=several(FAMILIES), default=list(FAMILIES[:2]))
    parser.add_argument("--rows", type=several(tuple(ROWS)), default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("build/continuous"), help="logs and runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    arguments = parser.parse_args(words)
    failed = 0 if arguments.only_table else run_cells(arguments)
    cells = read(arguments.results)
    for family in FAMILIES:
        own = [cell for cell in cells if cell["family"] == family]
        if own:
            print("\n".join(table(family, own)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tune the other methods on validation instances, five tries each, then test them with five seeds.

    python benchmarks/tuning.py --work build/tuning
    python benchmarks/tuning.py --families navigation2d --methods history,maml
    python benchmarks/tuning.py --only-table

The first try of a method is its preset. A try is fitted with seed 0 and scored on validation
instances: by steps to solve, or by the normalised return where nothing is solved. The best try and
the preset then run on test instances, with five training seeds. Logs are collected once a family
and kept in the work folder; a finished cell adds a line to the results file and is never run twice,
unless the logs or its settings are others.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.settings import parse_settings
from sept_offline.tools.bench.statistics import paired

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # so that benchmarks can be imported

from benchmarks.continuous import read as read_cells  # noqa: E402
from benchmarks.testbed import append, in_markdown, several  # noqa: E402

Cell = dict[str, Any]
Settings = tuple[str, ...]
RESULTS = HERE / "results" / "tuning.jsonl"
FAMILIES = ("navigation2d", "hiv", "acrobot")
LATENT: tuple[Settings, ...] = (
    (),
    ("latent.beta=0.1",),
    ("latent.beta=3",),
    ("latent.updates=6000",),
    ("latent.dim=8",),
)
PROBE: tuple[Settings, ...] = (
    (),
    ("probe.steps=600",),
    ("probe.ess_floor=0.03",),
    ("probe.ess_floor=0.3",),
    ("latent.beta=0.1",),
)
TRIES: dict[str, tuple[Settings, ...]] = {
    "history": (
        (),
        ("history_steps=2",),
        ("history_steps=8",),
        ("history_steps=16",),
        ("control.algorithm=discrete_cql",),
    ),
    "sept-np": LATENT,
    "dynasept": LATENT,
    "totalvar": PROBE,
    "maxent": PROBE,
    "epopt": (
        (),
        ("epopt.percentile=30",),
        ("epopt.percentile=60",),
        ("epopt.everything=0.8",),
        ("epopt.everything=0.2", "epopt.percentile=30"),
    ),
    "maml": (
        (),
        ("maml.inner_rate=0.003",),
        ("maml.inner_rate=0.1",),
        ("maml.inner_rate=0.3",),
        ("maml.tasks=2",),
    ),
}
"""The settings of each try, beside the preset's."""
FIELDS = ("family", "method", "settings", "seed", "split")
"""What tells cells of the same logs apart."""
SEEDS = 5
EPISODES = {"validation": 10, "test": 20}
"""Episodes per instance, each with a new agent."""


def read(path: Path) -> list[Cell]:
    """The cells that are finished."""
    return read_cells(path, FIELDS)


def key_of(cell: Cell) -> str:
    """All that decides a cell's figures, beside the library."""
    return repr([cell[name] for name in (*FIELDS, "content_hash")])


def worth(cell: Cell) -> float:
    """The mean over instances, more being better."""
    sign = -1 if cell["unit"] == "steps" else 1
    return sign * float(np.mean(list(cell["instances"].values())))


def best_of(cells: Iterable[Cell], family: str, method: str) -> Settings | None:
    """The best try on validation instances, the earliest of equals; None before all have run."""
    found = {
        tuple(cell["settings"]): worth(cell)
        for cell in cells
        if (cell["family"], cell["method"], cell["split"]) == (family, method, "validation")
    }
    tries = TRIES[method]
    return max(tries, key=lambda one: found[one]) if found.keys() >= set(tries) else None


def pending(cells: Sequence[Cell], family: str, method: str) -> Iterator[Cell]:
    """The cells that can be run next: all tries, then the tests of the best and of the preset."""
    best = best_of(cells, family, method)
    shared = {"family": family, "method": method}
    if best is None:
        for settings in TRIES[method]:
            yield shared | {"settings": list(settings), "seed": 0, "split": "validation"}
        return
    for settings in dict.fromkeys((best, ())):
        for seed in range(SEEDS):
            yield shared | {"settings": list(settings), "seed": seed, "split": "test"}


def scored(family: so.Family, cell: Cell, logs: Path) -> Cell:
    """Fit and evaluate."""
    began = time.process_time()
    settings = {"verdict": False} | parse_settings(cell["settings"])
    agent = so.fit(logs, cell["method"], settings, cell["seed"])
    fitted = time.process_time()
    split = cell["split"]
    results = so.evaluate(
        agent, family, split, seed=cell["seed"], episodes_per_instance=EPISODES[split]
    )
    solving = family.solved is not None
    scores = results.by_instance("steps_to_solve" if solving else "normalised")
    return {
        "unit": "steps" if solving else "score",
        "instances": scores,
        "solved": np.mean([row.solved for row in results.episodes]) if solving else None,
        "fit_seconds": round(fitted - began, 1),
    }


def run_cells(arguments: Any) -> int:
    """Run what is missing, method by method; how many cells failed."""
    arguments.work.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in arguments.families:
        family, path = so.load_family(name), arguments.work / f"{name}.h5"
        with so.collect_dataset(name, path, seed=0, resume=True) as data:
            content = data.content_hash
        # the tests of a method can be named once its tries have run
        for method in (method for method in arguments.methods for _ in ("tries", "tests")):
            cells = read(arguments.results)
            done = {key_of(cell) for cell in cells}
            for cell in pending(cells, name, method):
                cell |= {"content_hash": content}
                if key_of(cell) in done:
                    continue
                words = f"{name}, {method} {' '.join(cell['settings'])}, seed {cell['seed']}"
                try:
                    cell |= scored(family, cell, path)
                # Whatever one family does to one method, the others are still to be measured.
                except Exception as error:
                    failed += 1
                    print(f"{words} failed: {type(error).__name__}: {error}", flush=True)
                    continue
                append(arguments.results, cell)
                print(f"{words}, {cell['split']}: {abs(worth(cell)):.4g}", flush=True)
    return failed


def rows_of(cells: Iterable[Cell]) -> list[Mapping[str, Any]]:
    """One row for each seed and instance."""
    return [
        {"seed": cell["seed"], "instance": instance, "worth": value}
        for cell in cells
        for instance, value in cell["instances"].items()
    ]


def tables(cells: Sequence[Cell]) -> str:
    """What the tries scored, what was chosen, and what it changes on test instances."""
    titles = ["family", "method", "tries, validation", "chosen", "preset, test", "chosen, test"]
    lines = []
    for family in FAMILIES:
        for method in TRIES:
            own = [c for c in cells if (c["family"], c["method"]) == (family, method)]
            tried = {tuple(c["settings"]): abs(worth(c)) for c in own if c["split"] == "validation"}
            best = best_of(own, family, method)
            if best is None:
                continue
            groups = [
                [c for c in own if c["split"] == "test" and tuple(c["settings"]) == settings]
                for settings in (best, ())
            ]
            chosen, preset = map(rows_of, groups)
            change = paired(chosen, preset, "worth") if best and all(groups) else None
            lines.append(
                [
                    f"`{family}`",
                    f"`{method}`",
                    ", ".join(f"{tried[one]:.3g}" for one in TRIES[method]),
                    " ".join(f"`{word}`" for word in best) or "the preset",
                    tested(groups[1]),
                    tested(groups[0]) + changed(change) if best else "",
                ]
            )
    return "\n".join(in_markdown(titles, lines)) + "\n"


def tested(cells: Sequence[Cell]) -> str:
    """Mean over seeds and their range."""
    values = [abs(worth(cell)) for cell in cells]
    if not values:
        return ""
    text = f"{np.mean(values):.3g} [{min(values):.3g}, {max(values):.3g}]"
    solved = [cell["solved"] for cell in cells if cell["solved"] is not None]
    return text + (f", {np.mean(solved):.0%} solved" if solved else "")


def changed(found: dict[str, Any] | None) -> str:
    """The paired difference to the preset."""
    if found is None:
        return ""
    interval = "" if found["low"] is None else f" [{found['low']:.3g}, {found['high']:.3g}]"
    return f"; {found['mean']:+.3g}{interval}"


def main(words: Sequence[str] | None = None) -> int:
    """Run what is missing, then draw the table; 1 if a cell failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", type=several(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--methods", type=several(tuple(TRIES)), default=list(TRIES))
    parser.add_argument("--work", type=Path, default=Path("build/tuning"), help="logs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    arguments = parser.parse_args(words)
    failed = 0 if arguments.only_table else run_cells(arguments)
    print(tables(read(arguments.results)), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Are the instances of unlabelled logs found again, and does a fit on them end where one on the
true ones does?

    python benchmarks/demarcate.py navigation2d acrobot --seeds 2
    python benchmarks/demarcate.py navigation2d --fit
    python benchmarks/demarcate.py --table

The shipped recipe's logs are written anew, shuffled, with an instance for each episode and no
hidden parameters; `sept_offline.demarcate_dataset` labels them. With `--within-one`, the logs of
the first instance alone, which must not be divided. With `--fit`, the default agent is fitted once
on the true labels and once on the proposed ones, by the same seed, and both play the family's test
instances. Each finished cell adds a line to the results file and is never run twice.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import sept_offline as so
from sept_offline.seeding import generator

Cell = dict[str, Any]
RESULTS = Path(__file__).parent / "results" / "demarcate.jsonl"
GOAL = {"navigation2d": 0.95, "acrobot": 0.8}
PLAYED = {"navigation2d": 50, "acrobot": 25, "hiv": 1}
"""Test episodes per instance."""


def dataset(family: str, seed: int, folder: Path) -> Path:
    """The family's recipe, collected once."""
    path = folder / f"{family}-{seed}.h5"
    if not path.exists():
        so.collect_dataset(family, path, seed=seed, resume=True)
    return path


def strip(source: Path, target: Path, seed: int, only: int | None = None) -> np.ndarray:
    """The same episodes, shuffled, each as an instance of its own; the true one of each, [E]."""
    with so.load_dataset(source) as data:
        index = data.episode_index
        order = generator(seed, "shuffle").permutation(data.num_episodes)
        if only is not None:
            order = order[index.instance[order] == only]
        episodes = data.episodes()
        with so.DatasetWriter.like(data, target) as writer:
            for number, position in enumerate(order.tolist()):
                writer.copy(episodes[position], instance=f"episode-{number}")
        return index.instance[order]


def played(data: Path, family: str, seed: int) -> Cell:
    """What the default agent, fitted on `data`, does in the test instances."""
    agent = so.fit(so.load_dataset(data), method="sept", config={"verdict": False}, seed=seed)
    summary = so.evaluate(
        agent, family, instances="test", episodes_per_instance=PLAYED[family], seed=seed
    ).summary()
    return {key: summary[key] for key in ("solved", "steps_to_solve", "return")}


def run(family: str, seed: int, folder: Path, one: bool, fit: bool) -> Cell:
    """One cell: logs of data seed `seed`, demarcated by the same seed."""
    source = dataset(family, seed, folder)
    with tempfile.TemporaryDirectory() as scratch:
        bare, labelled = Path(scratch) / "bare.h5", Path(scratch) / "labelled.h5"
        true = strip(source, bare, seed, 0 if one else None)
        began = time.process_time()
        found = so.demarcate_dataset(bare, labelled, seed=seed)
        cell = {
            "family": family,
            "seed": seed,
            "one": one,
            "fit": fit,
            "true": len(np.unique(true)),
            "rand": float(adjusted_rand_score(true, found.labels)),
            "cpu_seconds": round(time.process_time() - began, 1),
            "reasons": list(found.reasons),
        }
        keys = (
            "groups",
            "episodes",
            "stability",
            "half_groups",
            "separation",
            "unsure",
            "supported",
        )
        cell |= {key: found.record[key] for key in keys}
        if fit and found.path is not None:
            cell["on_true"] = played(source, family, seed)
            cell["on_proposed"] = played(labelled, family, seed)
    return cell


def tables(cells: list[Cell]) -> str:
    """All cells in Markdown."""
    lines = [
        "| logs | episodes | true | found | adjusted Rand | goal | stability | separation | unsure "
        "| supported | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        gap = "–" if cell["separation"] is None else f"{cell['separation']:.2f}"
        goal = "1 group" if cell["one"] else GOAL.get(cell["family"], "–")
        name = f"{cell['family']}, seed {cell['seed']}" + (", one instance" if cell["one"] else "")
        lines.append(
            f"| {name} | {cell['episodes']:,} | {cell['true']} | {cell['groups']} | "
            f"{cell['rand']:.3f} | {goal} | {cell['stability']:.3f} | {gap} | {cell['unsure']} | "
            f"{'yes' if cell['supported'] else 'no'} | {cell['cpu_seconds']} |"
        )
    fitted = [cell for cell in cells if "on_true" in cell]
    if fitted:
        lines += ["", "| fit on | solved | steps to solve | return |", "|---|---|---|---|"]
    for cell in fitted:
        for name, key in (("true labels", "on_true"), ("proposed labels", "on_proposed")):
            got = cell[key]
            solved = "–" if got["solved"] is None else f"{got['solved']:.1%}"
            steps, earned = got["steps_to_solve"], got["return"]
            shown = "–" if steps is None else f"{steps['mean']:.2f} ± {steps['se']:.2f}"
            lines.append(
                f"| {cell['family']}, seed {cell['seed']}: {name} | {solved} | {shown} | "
                f"{earned['mean']:.4g} ± {earned['se']:.2g} |"
            )
    return "\n".join(lines) + "\n"


def read(path: Path) -> list[Cell]:
    """The cells that are finished."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description="Are instances of unlabelled logs found again?")
    parser.add_argument("families", nargs="*", choices=[*PLAYED, []])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--within-one", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--datasets", type=Path, default=Path("build/datasets"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    arguments.datasets.mkdir(parents=True, exist_ok=True)
    cells = read(arguments.results)
    keys = ("family", "seed", "one", "fit")
    for family in [] if arguments.table else arguments.families:
        for seed in range(arguments.seeds):
            wanted = (family, seed, arguments.within_one, arguments.fit)
            if any(tuple(cell[key] for key in keys) == wanted for cell in cells):
                continue
            cell = run(family, seed, arguments.datasets, arguments.within_one, arguments.fit)
            cells.append(cell)
            with arguments.results.open("a") as file:
                file.write(json.dumps(cell) + "\n")
            print(json.dumps(cell), flush=True)
    print(tables(cells))


if __name__ == "__main__":
    main()

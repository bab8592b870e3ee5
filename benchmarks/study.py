"""Methods against each other on the test instances of a family, with many seeds.

    python benchmarks/study.py navigation2d --methods sept,avg,oracle --seeds 10 --episodes 20
    python benchmarks/study.py navigation2d acrobot hiv --table

Data come from the shipped recipes, with data seed 0 for the first half of the training seeds and
1 for the rest. A cell is one training seed of one method: it is fitted, its last weights play the
test episodes, and a line is added to the results file; finished cells are never run twice. The
table is drawn from that file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

# This folder has a file named as a package that is imported below.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

import numpy as np  # noqa: E402

import sept_offline as so  # noqa: E402
from sept_offline.latent.identification import vote  # noqa: E402
from sept_offline.methods import resolve_config  # noqa: E402

Cell = dict[str, Any]


def dataset(family: str, seed: int, folder: Path) -> Path:
    """The family's recipe, collected once."""
    path = folder / f"{family}-{seed}.h5"
    if not path.exists():
        so.collect_dataset(family, path, seed=seed, resume=True)
    return path


def fresh_identification(agent: Any, family: so.Family, data: Any) -> float | None:
    """Share of fresh probes of the training instances whose latent has its neighbours at home."""
    encoder = getattr(agent.context, "encoder", None)
    if encoder is None:
        return None
    segments = data.segments(agent.probe_steps)
    known, _ = encoder.encode(segments.observations, segments.actions)
    asked, truth = [], []
    for code, hidden in enumerate(family.instances("train")):
        env = family.make(hidden)
        for number in range(max(5, 200 // len(family.instances("train")))):
            observation, _ = env.reset(seed=50_000 + number)
            episode = agent.begin(seed=50_000 + number)
            for _ in range(agent.probe_steps):
                observation, *_ = env.step(episode.act(observation))
            episode.act(observation)
            asked.append(episode.latent)
            truth.append(code)
    spread = np.maximum(known.std(axis=0), 1e-6)
    named = vote(known / spread, segments.instance, np.stack(asked) / spread)
    return float((named == np.array(truth)).mean())


def run_cell(family: so.Family, method: str, preset: str, seed: int, data: Any, n: int) -> Cell:
    """Fit one seed and let it play `n` test episodes an instance."""
    began = time.monotonic()
    agent = so.fit(data, method, resolve_config(data, preset), seed)
    seconds = time.monotonic() - began
    results = so.evaluate(agent, family, "test", seed=seed, episodes_per_instance=n)
    episodes = results.episodes
    return {
        "family": family.name,
        "method": method,
        "preset": preset,
        "seed": seed,
        "content_hash": data.content_hash,
        "fit_seconds": round(seconds, 1),
        "identification": fresh_identification(agent, family, data),
        "probe": agent.record.get("probe"),
        "instance": [episode.instance for episode in episodes],
        "return": [sum(episode.rewards) for episode in episodes],
        "steps_to_solve": [episode.steps_to_solve for episode in episodes],
        "solved": [episode.solved for episode in episodes],
        "normalised": [episode.normalised for episode in episodes],
        "flagged": [episode.flagged for episode in episodes],
    }


def mean(values: list[Any]) -> float:
    """The mean of what is there."""
    there = [float(value) for value in values if value is not None]
    return float(np.mean(there)) if there else float("nan")


def table(cells: list[Cell]) -> None:
    """A line a family, preset and method: over seeds, mean ± standard error, and the worst seed."""
    columns = "family method seeds steps±se worst solved return normalised±se identified seconds"
    print("| " + " | ".join(columns.split()) + " |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["family"], cell["preset"], cell["method"]), []).append(cell)
    for (family, preset, method), own in sorted(groups.items()):
        steps = np.array([mean(cell["steps_to_solve"]) for cell in own])
        score = np.array([mean(cell["normalised"]) for cell in own])
        error = np.sqrt(max(len(own), 1))
        name = method if preset == "default" else f"{method} ({preset})"
        print(
            f"| {family} | {name} | {len(own)} | {steps.mean():.2f} ± "
            f"{steps.std(ddof=1) / error if len(own) > 1 else 0:.2f} | {steps.max():.2f} | "
            f"{mean([mean(c['solved']) for c in own]):.4f} | "
            f"{mean([mean(c['return']) for c in own]):.4g} | {score.mean():.3f} ± "
            f"{score.std(ddof=1) / error if len(own) > 1 else 0:.3f} | "
            f"{mean([c['identification'] for c in own]):.3f} | "
            f"{mean([c['fit_seconds'] for c in own]):.0f} |"
        )
    for family, preset, method in sorted(groups):
        if method == "sept":
            for rival in ("avg", "oracle"):
                paired(
                    groups[family, preset, method],
                    groups.get((family, "default", rival), []),
                    rival,
                )


def paired(own: list[Cell], others: list[Cell], rival: str) -> None:
    """sept − rival, seed by seed, on `normalised`, with a 95 % interval from Student's t."""
    from scipy import stats

    theirs = {cell["seed"]: mean(cell["normalised"]) for cell in others}
    gaps = np.array([mean(c["normalised"]) - theirs[c["seed"]] for c in own if c["seed"] in theirs])
    if len(gaps) > 1:
        half = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
        name = f"{own[0]['family']} {own[0]['preset']}"
        gap = f"{gaps.mean():+.3f} ± {half:.3f}"
        print(f"{name}: sept − {rival}, normalised: {gap} ({len(gaps)} seeds)")


def main() -> None:
    """Run what is missing, or draw the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--methods", default="sept,avg,oracle")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=20, help="test episodes a seed, at least")
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/study.jsonl"))
    parser.add_argument("--table", action="store_true", help="only draw the table")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.data.mkdir(parents=True, exist_ok=True)
    cells = []
    if arguments.out.exists():
        cells = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {(c["family"], c["method"], c["preset"], c["seed"]) for c in cells}
    if not arguments.table:
        for name in arguments.families:
            family = so.load_family(name)
            count = -(-arguments.episodes // len(family.instances("test")))
            for seed in range(arguments.seeds):
                path = dataset(name, int(2 * seed >= arguments.seeds), arguments.data)
                for method in arguments.methods.split(","):
                    if (name, method, arguments.preset, seed) in done:
                        continue
                    with so.load_dataset(path) as data:
                        cell = run_cell(family, method, arguments.preset, seed, data, count)
                    with arguments.out.open("a") as handle:
                        handle.write(json.dumps(cell) + "\n")
                    print(name, method, arguments.preset, seed, cell["fit_seconds"], flush=True)
    else:
        table([cell for cell in cells if cell["family"] in arguments.families])


if __name__ == "__main__":
    main()

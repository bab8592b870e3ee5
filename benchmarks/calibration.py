"""Is the stated uncertainty true? How often an instance lies in the region that is stated for it.

    python benchmarks/calibration.py --work build/calibration -o docs/images/calibration.png
    python benchmarks/calibration.py --families navigation2d,acrobot --seeds 1

An agent keeps the distances from its latent, in units of its uncertainty, within which 50, 80 and
95 % of held-out segments had their instance. Here it probes fresh episodes of the simulator, of the
instances it learned from and of test instances. An instance lies at the mean latent of half of its
episodes; the other half is asked.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.evaluation.results import Results
from sept_offline.latent.identification import REGIONS

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # families may be named as benchmarks.families.…

FAMILIES = (
    "navigation2d",
    "acrobot",
    "hiv",
    "benchmarks.families.many:family",
    "benchmarks.families.slow_noisy:family",
)
EPISODES = 20
"""Of each instance, half of them for its place and half to be asked."""
PROBING = {"probe": {"use": "always"}}
"""The probe acts first, as in the segments on which the regions were measured."""
RESULTS = HERE / "results" / "calibration.jsonl"


def coverage(results: Results, separation: dict[str, Any]) -> dict[str, Any]:
    """The share of episodes whose instance lies within each region, and the mean uncertainty."""
    inside: list[list[bool]] = []
    uncertainties = []
    by_instance: dict[str, list[Any]] = {}
    for episode in results.episodes:
        if episode.latent is not None and episode.uncertainty is not None:
            by_instance.setdefault(episode.instance, []).append(episode)
    for episodes in by_instance.values():
        half = len(episodes) // 2
        place = np.mean([episode.latent for episode in episodes[:half]], axis=0)
        for episode in episodes[half:]:
            away = np.linalg.norm(np.asarray(episode.latent) - place)
            unit = episode.uncertainty / separation["scale"]
            inside.append([bool(away <= radius * unit) for radius in separation["radii"]])
            uncertainties.append(episode.uncertainty)
    return {
        "covered": np.mean(inside, axis=0).tolist(),
        "asked": len(inside),
        "uncertainty": float(np.mean(uncertainties)),
    }


def measure(family: str, seed: int, work: Path) -> list[dict[str, Any]]:
    """One fit; coverage on the instances it learned from, and on test instances."""
    name = family.rpartition(".")[2].partition(":")[0]
    with so.collect_dataset(family, work / f"{name}.h5", resume=True) as data:
        agent = so.fit(data, "sept", PROBING, seed)
    if agent.probe_steps == 0:
        raise SystemExit(f"{name}, seed {seed}: {agent.record['reasons'][0]}")
    rows = []
    for split in ("train", "test"):
        count = len(so.load_family(family).instances(split))
        each = max(EPISODES, -(-200 // count))
        results = so.evaluate(
            agent,
            family,
            split,
            seed=seed,
            episodes_per_instance=each,
            max_steps=agent.probe_steps + 1,
        )
        found = coverage(results, agent.record["separation"])
        rows.append({"family": name, "seed": seed, "split": split, **found})
    return rows


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """Stated against found, a panel a split."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.6), sharey=True)
    titles = {"train": "episodes not seen", "test": "instances not seen"}
    families = list(dict.fromkeys(row["family"] for row in rows))
    for panel, (split, title) in zip(panels, titles.items(), strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        for family in families:
            own = [
                row["covered"] for row in rows if (row["family"], row["split"]) == (family, split)
            ]
            panel.plot(REGIONS, np.mean(own, axis=0), marker="o", label=family)
        panel.set(title=title, xlabel="stated", xlim=(0.4, 1), ylim=(0, 1.02))
    panels[0].set_ylabel("instance lies within")
    panels[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that were measured."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def tables(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    lines = [
        "| family | tested on | 50 % | 80 % | 95 % | uncertainty | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, split in dict.fromkeys((row["family"], row["split"]) for row in rows):
        own = [row for row in rows if (row["family"], row["split"]) == (family, split)]
        covered = np.mean([row["covered"] for row in own], axis=0)
        what = {"train": "unseen episodes", "test": "unseen instances"}[split]
        cells = " | ".join(f"{100 * share:.0f} %" for share in covered)
        mean = np.mean([row["uncertainty"] for row in own])
        lines.append(f"| {family} | {what} | {cells} | {mean:.2f} | {len(own)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing, then print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("build/calibration"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("-o", "--out", type=Path)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = read(arguments.results)
    for seed in range(arguments.seeds):
        for family in arguments.families.split(","):
            name = family.rpartition(".")[2].partition(":")[0]
            if any((row["family"], row["seed"]) == (name, seed) for row in rows):
                continue
            new = measure(family, seed, arguments.work)
            rows += new
            with arguments.results.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in new)
            print(name, seed, [row["covered"] for row in new], flush=True)
    print(tables(rows), end="")
    if arguments.out is not None:
        draw(rows, arguments.out)


if __name__ == "__main__":
    main()

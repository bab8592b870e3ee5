"""One test episode of each method in both modes of 2D navigation.

python benchmarks/pictures/navigation.py demo/{avg,sept,oracle} -o docs/images/navigation.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from look import CONTROL, GOAL, PROBE, WALL, save

import sept_offline as so


def main() -> None:
    """One panel a run and mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    family = so.load_family("navigation2d")
    size = (2.7 * len(arguments.runs), 5.6)
    figure, panels = plt.subplots(2, len(arguments.runs), figsize=size, squeeze=False)
    for column, run in enumerate(arguments.runs):
        agent = so.load_agent(run)
        for row, hidden in enumerate(family.instances("test")[:2]):
            env = family.make(hidden)
            observation, _ = env.reset(seed=arguments.seed)
            known = hidden if "hidden" in agent.needs else None
            episode = agent.begin(seed=arguments.seed, hidden=known)
            path, ended = [observation], False
            while not ended and len(path) <= family.test_steps:
                observation, _, ended, *_ = env.step(episode.act(observation))
                path.append(observation)
            points = np.array(path)
            panel = panels[row, column]
            panel.add_patch(plt.Rectangle((0, 0), 2, 2, color=GOAL))
            wall = ([0, 2], [0, 0]) if hidden["z"] == 1 else ([0, 0], [0, 2])
            panel.plot(*wall, color=WALL, linewidth=4)
            panel.plot(*points.T, "o-", color=CONTROL, markersize=3, linewidth=1)
            probe = points[: agent.probe_steps + 1]
            if agent.probe_steps:
                panel.plot(*probe.T, "o-", color=PROBE, markersize=5, linewidth=3)
            end = f"goal in {len(points) - 1} steps" if ended else "never arrives"
            panel.set(xlim=(-2, 2), ylim=(-2, 2), xticks=[], yticks=[], aspect="equal")
            panel.set_title(f"{agent.method}, mode {hidden['z']:.0f}: {end}", fontsize=9)
    figure.tight_layout()
    save(figure, arguments.out)


if __name__ == "__main__":
    main()

"""The latent plane of 2D navigation as it is learned: where first steps of each instance lie.

python benchmarks/pictures/latent.py demo/navigation.h5 -o docs/images/idea-latent.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from look import GREY, INK, INSTANCES, MARKERS, bare, save
from matplotlib.patches import Ellipse

import sept_offline as so

UPDATES = (1, 60, 600)
SHOWN, OUTLINED = 200, 40
"""Segments an instance, as points and with their posterior's spread."""
REST = {"verdict": False, "probe": {"steps": 1}, "control": {"updates": 10}}
"""The latent comes first; what the later stages learn does not change it."""


def main() -> None:
    """One panel a number of updates, each a fit of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    figure, panels = plt.subplots(1, len(UPDATES), figsize=(9.8, 3.2))
    with so.load_dataset(arguments.data) as data:
        for panel, updates in zip(panels, UPDATES, strict=True):
            agent = so.fit(data, "sept", REST | {"latent": {"updates": updates}}, seed=0)
            segments = data.segments(agent.probe_steps)
            taken = agent.spaces.actions.encode(segments.actions)
            mean, log_variance = agent.context.encoder.encode(segments.observations, taken)
            spread = np.exp(0.5 * log_variance)
            for code, name in enumerate(data.instances):
                rows = np.flatnonzero(segments.instance == code)[:SHOWN]
                for row in rows[:OUTLINED]:
                    size = 4 * spread[row]  # two standard deviations to each side
                    panel.add_patch(Ellipse(mean[row], *size, color=INSTANCES[code], alpha=0.01))
                look = {"color": INSTANCES[code], "marker": MARKERS[code], "edgecolor": "white"}
                panel.scatter(*mean[rows].T, s=30, linewidth=0.4, label=name, zorder=2, **look)
            prior = {"fill": False, "edgecolor": GREY, "linestyle": ":", "label": "prior"}
            panel.add_patch(Ellipse((0, 0), 4, 4, **prior))
            identified = agent.record["identification"]["nearest"]
            word = "update" if updates == 1 else "updates"
            panel.set_title(f"after {updates} {word}: {identified:.0%} identified", color=INK)
            panel.set(xlabel="$z_1$", aspect="equal", xlim=(-2.2, 2.2), ylim=(-2.2, 2.2))
            bare(panel)
    panels[0].set_ylabel("$z_2$")
    where = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    panels[-1].legend(frameon=False, handletextpad=0.3, **where)
    figure.tight_layout()
    save(figure, arguments.out)


if __name__ == "__main__":
    main()

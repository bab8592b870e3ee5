"""What the probe of 2D navigation learns from logged first steps, and what that costs in data.

python benchmarks/pictures/probe.py demo/navigation.h5 -o docs/images/idea-probe.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from look import GREY, INK, PROBE, bare, save

import sept_offline as so


def main() -> None:
    """Probabilities, reward, effective sample size; one panel each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    with so.load_dataset(arguments.data) as data:
        work = so.fitter(data, "sept", {"verdict": False, "control": {"updates": 10}}, seed=0)
        epochs = [epoch for epoch in work if epoch.stage == "probe"]
        segments = data.segments(1)
    agent = work.agent
    assert agent is not None and segments.propensities is not None
    first = segments.observations[:, 0]
    learned = np.mean([agent.context.probe.policy(row, 0).probabilities for row in first], axis=0)
    logged = segments.propensities[:, 0].mean(axis=0)

    figure, (actions, reward, size) = plt.subplots(1, 3, figsize=(9.4, 3.1))
    place = np.arange(len(learned))
    actions.bar(place - 0.2, logged, 0.38, color=GREY, label="behaviour")
    actions.bar(place + 0.2, learned, 0.38, color=PROBE, label="probe")
    actions.set_xticks(place, agent.spaces.action_names)
    actions.set(title="how often an action comes first", ylim=(0, 1))
    actions.legend(frameon=False, loc="upper left")

    steps = [0, *(epoch.done for epoch in epochs)]
    reward.plot(steps, [0.0, *(epoch.metrics["reward"] for epoch in epochs)], color=PROBE, lw=2)
    reward.axhline(0, color=GREY, lw=1)
    reward.annotate("behaviour", (steps[-1], 0), (0, 4), ha="right", textcoords="offset points")
    reward.set(title="reward, in standard deviations", xlabel="gradient step")

    size.plot(steps, [1.0, *(epoch.metrics["ess_share"] for epoch in epochs)], color=PROBE, lw=2)
    floor = work.config.probe.floor(estimated=False)
    size.axhline(floor, color=INK, lw=1, ls="--")
    size.annotate("floor", (steps[-1], floor), (0, 4), ha="right", textcoords="offset points")
    size.set(title="effective share of the segments", xlabel="gradient step", ylim=(0, 1.05))
    for panel in (actions, reward, size):
        bare(panel)
    figure.tight_layout(w_pad=2)
    save(figure, arguments.out)


if __name__ == "__main__":
    main()

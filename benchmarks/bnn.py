"""Seconds a test episode of `bnn` takes: reduced budget, and the paper's extrapolated from a block.

Run: python benchmarks/bnn.py [--data build/datasets] [--updates 200]. The model is fitted for a few
updates only: what is timed does not depend on how good it is. One block of ten steps is timed, on
one core; an episode has as many blocks as its limit holds tens. The paper's figures are its own,
on its own machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.family import load_family
from sept_offline.methods import Fitter, resolve_config
from sept_offline.threads import one_thread

PUBLISHED = {"navigation2d": 2.6e3, "acrobot": 2.8e3, "hiv": 1.4e3}
"""Seconds a test episode in the paper."""


def block_seconds(agent: Agent, rows: np.ndarray, every: int) -> float:
    """Processor seconds of the first update of an episode through logged observations."""
    episode = agent.begin(seed=0)
    for observation in rows[:every]:
        episode.act(observation)
    began = time.process_time()
    episode.act(rows[every])
    return time.process_time() - began


def measure(path: Path, updates: int) -> None:
    """Print one line for each budget."""
    with so.load_dataset(path) as data:
        name = data.metadata.family or ""
        family = load_family(name)
        longest = int(data.episode_index.length.argmax())
        rows = data.episodes()[longest].observations
        for preset in ("default", "paper"):
            short = {
                "dynamics": {"updates": updates, "outcome_updates": updates},
                "control": {"updates": updates},
            }
            config = resolve_config(data, preset, short)
            fitter = Fitter(data, "bnn", config, seed=0)
            for _ in fitter:
                pass
            assert fitter.agent is not None
            every = config.bnn.every
            seconds = block_seconds(fitter.agent, rows, every)
            blocks = (family.test_steps - 1) // every
            print(
                f"{name:14} {config.bnn.budget:8} {seconds:8.2f} s a block, "
                f"extrapolated to {blocks} blocks: {seconds * blocks:8.1f} s an episode "
                f"(published: {PUBLISHED.get(name, float('nan')):.0f})",
                flush=True,
            )


def main() -> None:
    """Measure each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--families", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--updates", type=int, default=200)
    options = parser.parse_args()
    with one_thread():
        for name in options.families:
            measure(options.data / f"{name}-0.h5", options.updates)


if __name__ == "__main__":
    main()

"""The library, ONNX and the NumPy runtime: the same actions, and microseconds an action takes.

    python benchmarks/deploy.py [--family hiv] [--json]

An agent with networks of the family's default sizes is fitted briefly to random logs, exported both
ways and led along 10,000 recorded observations. "whole" counts everything in their episodes, the
probe and the inference of the latent too; "control" only what follows in a long one. Seconds are
of this process on one core, the best of several rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.threads import one_thread
from sept_offline.tools.deploy.verification import Recording, recorded

FORMS = ("onnx", "numpy")
BRIEF = {
    "verdict": False,
    "latent": {"updates": 100},
    "probe": {"steps": 20},
    "control": {"updates": 100},
}


def whole(agent: Any, recordings: list[Recording]) -> list[Any]:
    """The actions along all episodes."""
    actions: list[Any] = []
    for recording in recordings:
        episode = agent.begin(recording.seed)
        actions += [episode.act(row) for row in recording.observations]
    return actions


def control(agent: Any, rows: Any, watched: int) -> Callable[[], list[Any]]:
    """One long episode, whose first steps are over."""
    episode = agent.begin(0)
    for row in rows[: watched + 1]:
        episode.act(row)
    return lambda: [episode.act(row) for row in rows]


def best(work: Callable[[], Any], count: int, repeats: int) -> float:
    """Microseconds for each of `count`."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds) / count * 1e6


def _alike(found: list[Any], expected: list[Any]) -> Any:
    """Which actions are the same; in a box, within 1e-6 in every component."""
    apart = np.abs(np.asarray(found, dtype=np.float64) - np.asarray(expected))
    return apart.reshape(len(apart), -1).max(axis=1) <= 1e-6


def measure(family: str, episodes: int, observations: int, repeats: int) -> dict[str, Any]:
    """Fit, export, compare and time."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        logs = {"behaviour": "random", "episodes": episodes}
        data = so.collect_dataset(family, folder / "logs.h5", overrides=logs, seed=0)
        agent = so.fit(data, "sept", BRIEF, seed=0)
        agents: dict[str, Any] = {"library": agent}
        ties = {}
        for form in FORMS:
            done = so.export(agent, folder / form, form, data, observations)
            agents[form], ties[form] = so.load_export(folder / form), done.verified.ties
        recordings = list(recorded(agent, data, observations))
        expected = whole(agent, recordings)
        rows = np.concatenate([recording.observations for recording in recordings])
        result: dict[str, Any] = {"family": family, "observations": len(rows), "forms": {}}
        for name, one in agents.items():
            found = whole(one, recordings)
            result["forms"][name] = {
                "same_actions": int(_alike(found, expected).sum()),
                "ties": ties.get(name, 0),
                "whole": best(lambda one=one: whole(one, recordings), len(rows), repeats),
                "control": best(control(one, rows, agent.probe_steps), len(rows), repeats),
            }
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="hiv")
    parser.add_argument("--episodes", type=int, default=80)
    parser.add_argument("--observations", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    options = parser.parse_args()
    with one_thread():
        result = measure(options.family, options.episodes, options.observations, options.repeats)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['family']}: {result['observations']:,} recorded observations")
    print("           same actions    µs an action: whole    control")
    for name, found in result["forms"].items():
        print(
            f"{name:<10} {found['same_actions']:>12,} {found['whole']:>22.1f} "
            f"{found['control']:>10.1f}"
        )


if __name__ == "__main__":
    main()

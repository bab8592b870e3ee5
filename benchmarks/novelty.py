"""How often an instance is flagged as new: fresh episodes of known instances, and strange ones.

    python benchmarks/novelty.py navigation.h5 acrobot.h5 --seeds 3

Control is not trained: novelty is settled when the probe is over.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.family import known_family

EPISODES = 1000
UNTRAINED = {"verdict": False, "control": {"updates": 10}}


def flagged(agent: Agent, env: Any, turn: int = 0, episodes: int = EPISODES) -> float:
    """The share of fresh probes that are flagged; `turn` renames actions in a ring."""
    flags = []
    for number in range(episodes):
        observation, _ = env.reset(seed=10_000 + number)
        episode = agent.begin(seed=10_000 + number)
        for _ in range(agent.probe_steps):
            action = episode.act(observation)
            observation, *_ = env.step((action + turn) % agent.spaces.num_actions)
        episode.act(observation)
        flags.append(bool(episode.flagged))
    return float(np.mean(flags))


def strange(family: so.Family) -> dict[str, tuple[Any, int]]:
    """Instances that nothing in the logs resembles: an environment and a turn of its actions."""
    if family.name == "navigation2d":
        return {
            f"turned, z = {hidden['z']:.0f}": (family.make(hidden), 1)
            for hidden in family.instances("train")
        }
    if family.name == "acrobot":
        names = family.instances("train")[0]
        return {f"Δ = {d:+}": (family.make(dict.fromkeys(names, d)), 0) for d in (-0.8, 0.8)}
    return {}


def main() -> None:
    """Print one line per seed and family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for path in arguments.datasets:
        with so.load_dataset(path) as data:
            family = known_family(data.metadata.family or "")
            for seed in range(arguments.seeds):
                agent = so.fit(data, "sept", UNTRAINED, seed)
                known = [flagged(agent, family.make(hidden)) for hidden in family.instances()]
                words = [f"known {np.mean(known):.2%}"]
                for split in ("validation", "test"):
                    shares = [flagged(agent, family.make(h)) for h in family.instances(split)[:4]]
                    words.append(f"{split} {np.mean(shares):.1%}")
                for name, (env, turn) in strange(family).items():
                    words.append(f"{name} {flagged(agent, env, turn):.1%}")
                print(f"{family.name}, seed {seed}: " + ", ".join(words), flush=True)


if __name__ == "__main__":
    main()

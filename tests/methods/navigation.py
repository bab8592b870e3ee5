"""Cheap logs of 2D navigation for tests: random walks, and a script that knows the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.data import DatasetWriter
from simulators.families import navigation2d

WEST, NORTH, EAST, SOUTH = range(4)
SMALL: dict[str, Any] = {
    "probe_steps": 1,
    "verdict": False,
    "latent": {"dim": 2, "updates": 300, "hidden": 48, "transitions": 256, "segments": 64},
    "probe": {"steps": 60},
    "control": {
        "hidden": [64, 64],
        "updates": 2000,
        "batch_size": 128,
        "learning_rate": 2e-3,
        "target_rate": 0.02,
        "average_decay": 0.99,
        "gamma": 0.95,
        "reward_form": "raw",
        "reward_scale": 0.001,
        "goal_shift": 1.0,
        "members": 1,
    },
}
"""Settings that learn navigation well enough in some five seconds."""


def way(observation: NDArray[Any], z: float, against_the_wall: bool) -> int:
    """The action of someone who knows z: round the wall into the goal, or straight at the wall."""
    x, y = observation
    if z == 1:
        upwards = x > 0.1 if against_the_wall else y <= 0.1
        return NORTH if upwards else EAST
    sideways = y > 0.1 if against_the_wall else x <= 0.1
    return WEST if sideways else SOUTH


def chances(
    behaviour: str, observation: NDArray[Any], z: float, epsilon: float
) -> NDArray[np.float64]:
    """[4]: where the behaviour goes with probability 1 − ε, anything else by chance."""
    if behaviour == "random":
        return np.full(4, 0.25)
    result = np.full(4, epsilon / 4)
    result[way(observation, z, against_the_wall=behaviour == "wall")] += 1 - epsilon
    return result


def log_navigation(
    path: Path,
    episodes: int = 1200,
    seed: int = 0,
    probing: int = 1,
    limit: int = 25,
    epsilon: float = 0.3,
) -> Path:
    """A third of the episodes each are random, go the way, and run against the wall.

    Without the last nobody would know that the wall is there. All begin with `probing` random
    steps; those that go somewhere take a random one with the probability `epsilon`.
    """
    rng = np.random.default_rng(seed)
    hidden = {f"train-{i}": dict(h) for i, h in enumerate(navigation2d.instances())}
    with DatasetWriter(
        path,
        num_actions=4,
        family="navigation2d",
        observation_names=navigation2d.observation_names,
        action_names=navigation2d.action_names,
        hidden=hidden,
        probe_steps=probing,
    ) as writer:
        for name in hidden:
            env = navigation2d.make(hidden[name])
            for number in range(episodes // len(hidden)):
                behaviour = ("random", "way", "wall")[number % 3]
                first, _ = env.reset(seed=int(rng.integers(2**31)))
                observations, actions, rewards, propensities = [first], [], [], []
                ended = False
                while not ended and len(actions) < limit:
                    now = behaviour if len(actions) >= probing else "random"
                    chance = chances(now, observations[-1], hidden[name]["z"], epsilon)
                    # as rng.choice draws, which looks at its arguments for longer than it draws
                    summed = chance.cumsum()
                    action = int((summed / summed[-1]).searchsorted(rng.random(), side="right"))
                    observation, reward, ended, _, _ = env.step(action)
                    observations.append(observation)
                    actions.append(action)
                    rewards.append(float(reward))
                    propensities.append(chance)
                writer.append(
                    instance=name,
                    observations=np.stack(observations),
                    actions=np.array(actions),
                    rewards=np.array(rewards),
                    terminated=ended,
                    truncated=not ended,
                    propensities=np.stack(propensities),
                    behaviour=behaviour,
                    seed=number,
                )
    return path

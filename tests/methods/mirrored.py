"""A family of continuous actions whose answer is known by hand: a push goes one way or the other.

Observation: x, which starts anywhere in [−1, 1]. An action a in [−1, 3] moves it to
x + sign · (a − 1) / 2 and costs the square of where it ends; `sign` is hidden, −1 or +1. Who knows
the sign reaches 0 with the first step: a = 1 − 2 · sign · x. Who does not does best to stay, a = 1,
at a cost of 1/3 per step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.data import DatasetWriter

SPACE = so.Box.of([-1.0], [3.0], ["push"])
SIGNS = (-1.0, 1.0)
STEPS = 4
COST = STEPS / 3
"""Of staying, on average."""


def move(x: NDArray[Any], actions: NDArray[Any], sign: NDArray[Any]) -> NDArray[Any]:
    """The next x, `[n]` each."""
    return np.asarray(x + sign * (actions - 1) / 2)


def log_mirrored(path: Path, episodes: int = 200, permuted: bool = False) -> Path:
    """Log uniform actions, evenly over both signs; permuted: with rewards in random order."""
    rng = np.random.default_rng(5)
    sign = np.resize(SIGNS, episodes)
    x, actions = [rng.uniform(-1, 1, episodes)], rng.uniform(-1, 3, (episodes, STEPS))
    for step in range(STEPS):
        x.append(move(x[-1], actions[:, step], sign))
    seen = np.stack(x, axis=1)
    rewards = -(seen[:, 1:] ** 2)
    if permuted:
        rewards = rng.permutation(rewards.ravel()).reshape(rewards.shape)
    hidden = {f"train-{i}": {"sign": sign} for i, sign in enumerate(SIGNS)}
    with DatasetWriter(
        path, action_space=SPACE, family="mirrored", hidden=hidden, probe_steps=1
    ) as writer:
        for number in range(episodes):
            writer.append(
                instance=f"train-{number % 2}",
                observations=seen[number][:, None],
                actions=actions[number][:, None],
                rewards=rewards[number],
                terminated=False,
                truncated=True,
                log_densities=np.full(STEPS, -np.log(4.0)),
                behaviour="random",
                seed=number,
            )
    return path


def cost_of(agent: Agent, episodes: int = 100) -> float:
    """The mean cost of an episode, half of them with each sign."""
    x = np.random.default_rng(9).uniform(-1, 1, episodes)
    sign, cost = np.resize(SIGNS, episodes), np.zeros(episodes)
    hidden = [{"sign": one} for one in sign] if "hidden" in agent.needs else None
    running = agent.begin_batch(range(episodes), hidden=hidden)
    for _ in range(STEPS):
        actions = running.act(x[:, None].astype(np.float32))
        assert actions.shape == (episodes, 1) and not SPACE.outside(actions).any()
        x = move(x, actions[:, 0], sign)
        cost += x**2
    return float(cost.mean())

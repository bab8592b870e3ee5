"""Golden traces: short episodes of every family, as numbers to compare later versions with.

`python tests/simulators/golden/regenerate.py` writes traces.json anew; do so only when a change of
the dynamics is meant.
"""

import json
from pathlib import Path

import gymnasium
import numpy as np

import simulators

TRACES = Path(__file__).parent / "traces.json"
STEPS = 15
HIDDEN = {
    "sept/Navigation2D-v0": {"z": 2},
    "sept/Navigation2DSwitch-v0": {"z": 1},
    "sept/Acrobot-v0": {"m1": 0.3, "m2": -0.2, "l1": 0.1, "l2": -0.35},
    "sept/HIV-v0": {"lambda1": 0.4, "k2": -0.3, "m1": 0.2, "bE": 0.1, "Kd": -0.4},
    "sept/Pendulum-v0": {"mass": 0.7, "length": 1.2, "sign": -1},
    "sept/PointRobotWind-v0": {"wind_x": 0.03, "wind_y": -0.05},
}


def trace(env_id: str) -> dict[str, list[object]]:
    """Actions, observations and rewards of the first steps under a fixed seed."""
    env = gymnasium.make(env_id, hidden=HIDDEN[env_id])
    dynamics, random = simulators.IDS[env_id], np.random.default_rng(12)
    if dynamics.action_low is None:
        actions = random.integers(0, len(dynamics.action_names), STEPS).tolist()
    else:
        shape = (STEPS, len(dynamics.action_low))
        actions = random.uniform(dynamics.action_low, dynamics.action_high, shape).tolist()
    observation, _ = env.reset(seed=12)
    observations, rewards = [observation.tolist()], []
    for action in actions:
        observation, reward, _, _, _ = env.step(action)
        observations.append(observation.tolist())
        rewards.append(reward)
    return {"actions": actions, "observations": observations, "rewards": rewards}


if __name__ == "__main__":
    text = json.dumps({env_id: trace(env_id) for env_id in HIDDEN}, indent=1)
    TRACES.write_text(text + "\n", encoding="utf-8")

"""Speed of the simulators, as ratios against named rivals measured in the same run on one core."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import simulators
from simulators import hiv

BATCH = 4096
ROUNDS = 5
SECONDS = 0.4  # the least time one measurement lasts


@dataclass(frozen=True)
class Ratio:
    """Steps per second of ours and of a rival, and the ratio that was asked for."""

    what: str
    rival: str
    ours_per_second: float
    rival_per_second: float
    ratio: float
    target: float


def steps_per_second(run: Callable[[], int]) -> float:
    """Steps per second of `run`, which takes some steps and says how many."""
    run()
    start, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < SECONDS:
        steps += run()
    return steps / spent


def scalar_loop(env_id: str, steps: int = 500) -> Callable[[], int]:
    """A loop over the environment as `gymnasium.make` gives it, random actions, with resets."""
    env = gymnasium.make(env_id)
    env.reset(seed=0)
    count = int(env.action_space.n)  # type: ignore[attr-defined]  # every one here is Discrete
    actions = np.random.default_rng(0).integers(0, count, steps).tolist()

    def run() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps

    return run


def vector_loop(env: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int) -> Callable[[], int]:
    """A loop over a batch, random actions; rows that were only reset do not count as steps."""
    count = int(env.single_action_space.n)  # type: ignore[attr-defined]  # Discrete
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, count, (steps, env.num_envs))

    def run() -> int:
        resets = 0
        for chosen in actions:
            _, _, terminated, truncated, _ = env.step(chosen)
            resets += int(np.count_nonzero(terminated | truncated))
        return actions.size - resets

    return run


def vectorised(env_id: str, steps: int = 50) -> Callable[[], int]:
    """A loop over the true batch of a registered family at its nominal instance."""
    return vector_loop(gymnasium.make_vec(env_id, num_envs=BATCH), steps)


def patients() -> list[dict[str, float]]:
    """The training patients, over whom both sides of the HIV comparison run."""
    return simulators.family("hiv").instances("train")


def lsoda_loop(steps: int = 20) -> Callable[[], int]:
    """A loop of SciPy's LSODA over the same patients, start, length of step and random drugs."""
    rng = np.random.default_rng(0)
    rows = [hiv.HIV.hidden_row(patient) for patient in patients()]
    start = np.array(hiv.START)

    def run() -> int:
        row = rows[int(rng.integers(len(rows)))]
        populations = start
        for action in rng.integers(0, 4, steps).tolist():
            solution = solve_ivp(
                population_rates,
                (0.0, hiv.DAYS),
                populations,
                method="LSODA",
                rtol=1e-6,
                args=(row, action),
            )
            populations = np.maximum(solution.y[:, -1], 1e-30)
        return steps

    return run


def population_rates(
    _: float, x: NDArray[np.float64], p: NDArray[np.float64], action: int
) -> tuple[float, ...]:
    """The model in raw units and plain Python floats, the quickest form SciPy can call."""
    t1, t2, i1, i2, v, e = x.tolist()
    q = (1.0 + p).tolist()
    rti = 0.7 if action in (1, 3) else 0.0
    pi = 0.3 if action >= 2 else 0.0
    new1 = (1.0 - rti) * 8e-7 * q[2] * v * t1
    new2 = (1.0 - 0.34 * q[4] * rti) * 1e-4 * q[3] * v * t2
    s = i1 + i2
    return (
        1e4 * q[0] - 0.01 * t1 - new1,
        31.98 * q[1] - 0.01 * t2 - new2,
        new1 - 0.7 * i1 - 1e-5 * q[5] * e * i1,
        new2 - 0.7 * i2 - 1e-5 * q[6] * e * i2,
        (1.0 - pi) * 70.0 * s - 13.0 * v - new1 - new2,
        q[7]
        + 0.3 * q[8] * s / (s + 100.0 * q[9]) * e
        - 0.25 * q[10] * s / (s + 500.0 * q[11]) * e
        - 0.1 * e,
    )


def hiv_batch(steps: int = 20) -> Callable[[], int]:
    """The batch of training patients, each repeated, over the steps that LSODA is given."""
    hiddens = patients() * (BATCH // 8 // len(patients()))
    env = gymnasium.make_vec(
        "sept/HIV-v0", num_envs=len(hiddens), hidden=hiddens, max_episode_steps=steps
    )
    return vector_loop(env, steps + 1)


def compare(
    what: str, ours: Callable[[], int], rival: str, theirs: Callable[[], int], target: float
) -> Ratio:
    """The median of several rounds, each side measured in turn, so that both share the noise."""
    pairs = [(steps_per_second(ours), steps_per_second(theirs)) for _ in range(ROUNDS)]
    mine, other = sorted(pairs, key=lambda pair: pair[0] / pair[1])[ROUNDS // 2]
    return Ratio(what, rival, mine, other, mine / other, target)


def main() -> None:
    """Measure everything and print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line, one object")
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    scalar = scalar_loop("sept/Navigation2D-v0")
    ratios = [
        compare(
            "vectorised Acrobot",
            vectorised("sept/Acrobot-v0"),
            'loop over gymnasium.make("Acrobot-v1")',
            scalar_loop("Acrobot-v1"),
            100.0,
        ),
        compare(
            "vectorised HIV", hiv_batch(), "loop of SciPy LSODA, rtol 1e-6", lsoda_loop(), 100.0
        ),
        compare(
            "vectorised navigation",
            vectorised("sept/Navigation2D-v0"),
            "its own scalar environment",
            scalar,
            100.0,
        ),
        compare(
            "scalar navigation",
            scalar,
            'loop over gymnasium.make("CartPole-v1")',
            scalar_loop("CartPole-v1"),
            0.25,
        ),
    ]
    if arguments.json:
        print(json.dumps({"batch": BATCH, "ratios": [asdict(ratio) for ratio in ratios]}))
        return
    print(f"{'':24}{'steps/s':>12}{'rival/s':>12}{'ratio':>9}{'asked':>8}  rival")
    for r in ratios:
        print(
            f"{r.what:24}{r.ours_per_second:12,.0f}{r.rival_per_second:12,.0f}"
            f"{r.ratio:9.2f}{r.target:8g}  {r.rival}"
        )


if __name__ == "__main__":
    main()

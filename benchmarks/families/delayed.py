"""A heated tank: what the heater does comes late, and only a lagged, noisy thermometer is seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

LONGEST = 4
"""Steps that the heat may take to arrive."""
LOSS, OUTSIDE = 0.1, -2.0
"""Share of the difference to the outside lost in a step; the wanted temperature is 0."""
FOLLOW, PROCESS_NOISE, READING_NOISE = 0.5, 0.02, 0.05
"""Share of the difference that the thermometer makes up in a step, and two deviations."""


def start(draws: Array) -> Array:
    """Rows: temperature, what the thermometer holds, its reading, heat on its way."""
    temperature = 2 * draws[0] - 1
    on_the_way = np.zeros((LONGEST, draws.shape[1]))
    return np.stack([temperature, temperature, temperature, *on_the_way])


def advance(
    state: Array, action: NDArray[np.int64], hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Heat of `delay` steps ago arrives; the thermometer follows; far from 0 is bad."""
    gain, delay = hidden
    # The last heat is in front, so that the heat of `delay` steps ago is at that place.
    heat = np.concatenate([(action / 3.0)[None], state[3:]])
    arrives = heat[delay.astype(np.int64), np.arange(len(action))]
    warmed = state[0] + LOSS * (OUTSIDE - state[0]) + gain * arrives + PROCESS_NOISE * noise[0]
    held = state[1] + FOLLOW * (warmed - state[1])
    reading = held + READING_NOISE * noise[1]
    after = np.concatenate([np.stack([warmed, held, reading]), heat[:-1]])
    return after, -np.abs(warmed), np.zeros(len(action), dtype=np.bool_)


PROCESS = Process(
    hidden=("gain", "delay"),
    observation_names=("reading",),
    action_names=("off", "low", "high", "full"),
    draws=1,
    noises=2,
    start=start,
    advance=advance,
    observe=lambda state: state[2:3],
)


def tanks(gains: Sequence[float], delays: Sequence[int]) -> list[dict[str, float]]:
    """Every gain with every delay."""
    return [{"gain": gain, "delay": float(delay)} for gain in gains for delay in delays]


family = process_family(
    "delayed",
    PROCESS,
    splits={
        "train": tanks((0.25, 0.35, 0.5, 0.7), (1, 2, 4)),
        "validation": tanks((0.3, 0.6), (1, 4)),
        "test": tanks((0.28, 0.42, 0.65), (1, 3)),
    },
    train_steps=60,
    test_steps=60,
    probe_steps=10,
    latent_dim=2,
)

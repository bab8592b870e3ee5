"""A drug to be infused, at a continuous rate, to the level that a monitor's reading calls for.

The drug passes from the blood to the place where it acts, and only its effect is measured. Hidden
are the patient's clearance and sensitivity; too much is worse than too little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.batch import Array, Process, process_family

TIME = 0.5
TRANSFER = 0.6
"""Share of the difference that passes from the blood to the place of action in a unit of time."""
NOISE = 0.02
"""Deviation of the measured effect, between 0 and 1."""


def start(draws: Array) -> Array:
    """Rows: level in the blood, level where it acts, measured effect, effect that is wanted."""
    zeros = np.zeros_like(draws)
    return np.concatenate([zeros, zeros, zeros, 0.35 + 0.3 * draws])


def advance(
    state: Array, action: Array, hidden: Array, noise: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Infusion, clearance, transfer; the effect saturates."""
    blood, inside, _, wanted = state
    clearance, sensitivity = hidden
    blood = blood + TIME * (action[0] - clearance * blood)
    inside = inside + TIME * TRANSFER * (blood - inside)
    dose = sensitivity * inside
    effect = dose**2 / (1 + dose**2)
    error = effect - wanted
    bad = np.where(error > 0, 3 * error, -error)
    measured = effect + NOISE * noise[0]
    return np.stack([blood, inside, measured, wanted]), -bad, np.zeros(len(bad), dtype=np.bool_)


PROCESS = Process(
    hidden=("clearance", "sensitivity"),
    observation_names=("effect", "wanted effect"),
    action_names=("rate",),
    bounds=((0.0,), (2.0,)),
    draws=1,
    noises=1,
    start=start,
    advance=advance,
    observe=lambda state: state[2:],
)


def patients(
    clearances: tuple[float, ...], sensitivities: tuple[float, ...]
) -> list[dict[str, float]]:
    """Every combination."""
    return [
        {"clearance": clearance, "sensitivity": sensitivity}
        for clearance in clearances
        for sensitivity in sensitivities
    ]


family = process_family(
    "infused",
    PROCESS,
    splits={
        "train": patients((0.15, 0.3, 0.5, 0.8), (0.4, 0.9, 2.0)),
        "validation": patients((0.2, 0.65), (0.6, 1.5)),
        "test": patients((0.22, 0.4, 0.7), (0.5, 1.3)),
    },
    train_steps=60,
    test_steps=60,
    probe_steps=4,
    latent_dim=2,
)

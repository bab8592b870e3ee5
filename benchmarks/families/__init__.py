"""Families that the library has never seen: each module's `family` is a `sept_offline.Family`.

    sept-offline collect benchmarks.families.delayed:family -o delayed.h5

They stand for what users bring: other people's simulators, delays, noise, few episodes of many
instances, a hidden factor that does not matter, continuous actions. `benchmarks/testbed.py` runs
the methods on them.
"""

from __future__ import annotations

NAMES = (
    "cartpole",
    "delayed",
    "glucose",
    "glucose_dose",
    "indifferent",
    "infused",
    "lander",
    "many",
    "mountain_car",
    "reversed_torque",
    "slow_noisy",
    "steered",
)
"""The modules, each with one `family`."""

"""The names a user may type, available without importing the library.

Shell completion must be fast, and torch takes seconds to load; a test keeps these lists in sync.
"""

from __future__ import annotations

METHODS = (
    "sept",
    "avg",
    "oracle",
    "epopt",
    "maml",
    "bnn",
    "dpt",
    "sept-np",
    "totalvar",
    "maxent",
    "dynasept",
    "history",
    "focal",
    "unicorn",
    "csro",
)
PRESETS = ("default", "paper", "segment")
ALGORITHMS = (
    "auto",
    "double_dqn",
    "discrete_cql",
    "discrete_bcq",
    "discrete_iql",
    "nfq",
    "rebrac",
    "td3_plus_bc",
    "iql",
    "cql",
    "awac",
)
BEHAVIOURS = ("random", "replay", "medium", "expert")
ENGINES = ("local", "ray")
SPLITS = ("train", "validation", "test")
AXES = ("behaviour", "episodes", "instances", "propensities")
"""Axes of `bench --vary`, besides every setting of `fit`."""

"""The names a user may type, known without loading what they name.

A shell waits for a completion, and torch takes seconds; a test holds these lists to the library's.
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
)
PRESETS = ("default", "paper", "segment")
ALGORITHMS = ("auto", "double_dqn", "discrete_cql", "discrete_bcq", "nfq")
BEHAVIOURS = ("random", "replay", "medium", "expert")
ENGINES = ("local", "ray")
SPLITS = ("train", "validation", "test")
AXES = ("behaviour", "episodes", "instances", "propensities")
"""Of `bench --vary`, beside every setting of `fit`."""

"""Control: d3rlpy's discrete value learners on [state, latent], fed from contiguous tensors.

torch and d3rlpy are loaded with the first name that needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sept_offline.control.learner import Learner
    from sept_offline.control.replay import Batch, Replay
    from sept_offline.control.rewards import prepare_rewards
    from sept_offline.control.stage import ControlStage

__all__ = ["Batch", "ControlStage", "Learner", "Replay", "prepare_rewards"]

_LAZY = {
    "Batch": "replay",
    "ControlStage": "stage",
    "Learner": "learner",
    "Replay": "replay",
    "prepare_rewards": "rewards",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)

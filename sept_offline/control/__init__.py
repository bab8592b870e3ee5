"""Control: d3rlpy's discrete value learners on [state, latent], fed from contiguous tensors."""

from sept_offline.control.config import ALGORITHMS, ControlConfig
from sept_offline.control.learner import Learner
from sept_offline.control.replay import Batch, Replay
from sept_offline.control.rewards import prepare_rewards
from sept_offline.control.stage import ControlStage

__all__ = [
    "ALGORITHMS",
    "Batch",
    "ControlConfig",
    "ControlStage",
    "Learner",
    "Replay",
    "prepare_rewards",
]

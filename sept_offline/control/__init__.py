"""Control: d3rlpy's learners on [state, latent], fed from contiguous tensors."""

from sept_offline.control.learner import EARLY as EARLY
from sept_offline.control.learner import Learner as Learner
from sept_offline.control.replay import Batch as Batch
from sept_offline.control.replay import Replay as Replay
from sept_offline.control.rewards import prepare_rewards as prepare_rewards
from sept_offline.control.stage import ControlStage as ControlStage

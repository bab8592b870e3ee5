"""The probe: a policy for the first steps of an episode, learned from logged segments alone."""

from sept_offline.probe.behaviour import Behaviour as Behaviour
from sept_offline.probe.behaviour import estimate_behaviour as estimate_behaviour
from sept_offline.probe.behaviour import logged_or_estimated as logged_or_estimated
from sept_offline.probe.feedback_loop import PaperLoopStage as PaperLoopStage
from sept_offline.probe.stage import ProbeResult as ProbeResult
from sept_offline.probe.stage import ProbeStage as ProbeStage
from sept_offline.probe.stage import segment_rewards as segment_rewards

"""What is deployed: small networks that act, without torch, d3rlpy or a simulator."""

from sept_offline.agent.agent import Agent, Spaces
from sept_offline.agent.contexts import (
    AdaptedContext,
    HiddenContext,
    HistoryContext,
    NoContext,
    RefinedContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
from sept_offline.agent.control import Control
from sept_offline.agent.episode import AgentEpisode, BatchEpisode
from sept_offline.agent.novelty import InstancePrior, Novelty, segment_elbo
from sept_offline.agent.probes import NetworkProbe, TableProbe, UniformProbe
from sept_offline.agent.store import load_agent, save_agent

__all__ = [
    "AdaptedContext",
    "Agent",
    "AgentEpisode",
    "BatchEpisode",
    "Control",
    "HiddenContext",
    "HistoryContext",
    "InstancePrior",
    "NetworkProbe",
    "NoContext",
    "Novelty",
    "RefinedContext",
    "SegmentContext",
    "Spaces",
    "TableProbe",
    "UniformProbe",
    "UnprobedContext",
    "WindowContext",
    "load_agent",
    "save_agent",
    "segment_elbo",
]

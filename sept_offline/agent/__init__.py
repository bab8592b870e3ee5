"""The deployed agent: small networks in NumPy, without torch, d3rlpy or a simulator."""

from .agent import Agent, Spaces
from .contexts import (
    HiddenContext,
    HistoryContext,
    NoContext,
    RefinedContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
from .contexts.adapted import AdaptedContext
from .control import Actor, Control
from .episode import AgentEpisode, BatchEpisode
from .novelty import InstancePrior, Novelty, segment_elbo
from .probes import NetworkProbe, NormalProbe, TableProbe, UniformBoxProbe, UniformProbe
from .store import load_agent, save_agent

__all__ = [
    "Actor",
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
    "NormalProbe",
    "Novelty",
    "RefinedContext",
    "SegmentContext",
    "Spaces",
    "TableProbe",
    "UniformBoxProbe",
    "UniformProbe",
    "UnprobedContext",
    "WindowContext",
    "load_agent",
    "save_agent",
    "segment_elbo",
]

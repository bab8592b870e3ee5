"""Contexts: what an agent's control sees beside the state, and how it comes by it in an episode.

A context makes one tracker an episode. A tracker is shown each observation and either answers with
an action of its own, as a probe does, or leaves the step to control, which then reads its vector;
it may also hand over another control, which it has learned in the episode.
A method with another idea of context (a window of steps, an adapted belief) adds one file here and
names its class in `KINDS`; one that needs more than this runtime has (torch, a model) lives with
what it needs and is found by its entry point.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from sept_offline.agent.contexts.adapted import AdaptedContext
from sept_offline.agent.contexts.base import Context, Tracker
from sept_offline.agent.contexts.hidden import HiddenContext
from sept_offline.agent.contexts.history import HistoryContext
from sept_offline.agent.contexts.none import NoContext
from sept_offline.agent.contexts.refined import RefinedContext
from sept_offline.agent.contexts.segment import SegmentContext
from sept_offline.agent.contexts.unprobed import UnprobedContext
from sept_offline.agent.contexts.window import WindowContext
from sept_offline.agent.networks import Arrays
from sept_offline.agent.reading import field
from sept_offline.errors import AgentError

KINDS: dict[str, Callable[[Arrays, Any, str], Context]] = {
    NoContext.kind: NoContext.from_arrays,
    HiddenContext.kind: HiddenContext.from_arrays,
    HistoryContext.kind: HistoryContext.from_arrays,
    RefinedContext.kind: RefinedContext.from_arrays,
    SegmentContext.kind: SegmentContext.from_arrays,
    UnprobedContext.kind: UnprobedContext.from_arrays,
    AdaptedContext.kind: AdaptedContext.from_arrays,
    WindowContext.kind: WindowContext.from_arrays,
}
"""How each kind is read from weights, description and the weights' prefix."""
ENTRY_POINTS = "sept_offline.contexts"


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """Whichever context `description` names."""
    kind = field(description, "kind", str)
    if kind in KINDS:
        return KINDS[kind](arrays, description, prefix)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind):
        context: Context = point.load().from_arrays(arrays, description, prefix)
        return context
    raise AgentError(f"The agent names an unknown context {kind!r}; is it of a later version?")


__all__ = [
    "AdaptedContext",
    "Context",
    "HiddenContext",
    "HistoryContext",
    "NoContext",
    "RefinedContext",
    "SegmentContext",
    "Tracker",
    "UnprobedContext",
    "WindowContext",
    "context_from_arrays",
]

"""Contexts: what an agent's control sees beside the state, and how it comes by it in an episode.

A context makes one tracker an episode. A tracker is shown each observation and either answers with
an action of its own, as a probe does, or leaves the step to control, which then reads its vector;
it may also hand over another control, which it has learned in the episode.
A method with another idea of context (a window of steps, an adapted belief) adds one file here and
names its class in `FORWARD` if a forward pass makes it; one that needs more than this runtime has
(torch, a model) lives with what it needs and is found by its entry point.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

from ...errors import AgentError
from ..fields import field
from ..networks import Arrays
from .base import Context, Tracker
from .hidden import HiddenContext
from .history import HistoryContext
from .none import NoContext
from .refined import RefinedContext
from .segment import SegmentContext
from .unprobed import UnprobedContext
from .window import WindowContext

Forward = (
    NoContext
    | HiddenContext
    | HistoryContext
    | RefinedContext
    | SegmentContext
    | UnprobedContext
    | WindowContext
)
FORWARD: dict[str, type[Forward]] = {
    NoContext.kind: NoContext,
    HiddenContext.kind: HiddenContext,
    HistoryContext.kind: HistoryContext,
    RefinedContext.kind: RefinedContext,
    SegmentContext.kind: SegmentContext,
    UnprobedContext.kind: UnprobedContext,
    WindowContext.kind: WindowContext,
}
"""The contexts that are a forward pass: an agent with one of them can be exported."""
ADAPTED = "adapted"
ENTRY_POINTS = "sept_offline.contexts"


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """Whichever context `description` names."""
    kind = field(description, "kind", str)
    if kind in FORWARD:
        return FORWARD[kind].from_arrays(arrays, description, prefix)
    if kind == ADAPTED:
        # learns in its episode: not a part of exports, which have forward passes alone
        from .adapted import AdaptedContext

        return AdaptedContext.from_arrays(arrays, description, prefix)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind):
        context: Context = point.load().from_arrays(arrays, description, prefix)
        return context
    raise AgentError(f"The agent names an unknown context {kind!r}; is it of a later version?")


__all__ = [
    "FORWARD",
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

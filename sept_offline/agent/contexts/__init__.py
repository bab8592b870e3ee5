"""Contexts: control's input besides the state, and how an episode computes it.

A context makes one tracker per episode. A tracker is shown each observation. It either returns an
action, as a probe does, or leaves the step to control, which then reads the tracker's vector. It
may also replace control by one that it has learned in the episode.
A method with a new kind of context adds one file here, and its class to `FORWARD` if the context is
a forward pass. A context that needs more than NumPy (torch, a model) is in another package and is
found by its entry point.
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
ADAPTED, REWARDED = "adapted", "rewarded"
ENTRY_POINTS = "sept_offline.contexts"


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """The context that `description` names."""
    kind = field(description, "kind", str)
    if kind in FORWARD:
        return FORWARD[kind].from_arrays(arrays, description, prefix)
    if kind == ADAPTED:
        # learns in its episode: not part of exports, which have forward passes only
        from .adapted import AdaptedContext

        return AdaptedContext.from_arrays(arrays, description, prefix)
    if kind == REWARDED:
        # needs rewards: not part of exports, which are given none
        from .rewarded import RewardedContext

        return RewardedContext.from_arrays(arrays, description, prefix)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=kind):
        context: Context = point.load().from_arrays(arrays, description, prefix)
        return context
    raise AgentError(f"There is no context {kind!r}; a later version may have written this agent.")


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

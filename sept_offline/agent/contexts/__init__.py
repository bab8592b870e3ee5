"""Contexts: control's input besides the state, and how an episode computes it.

A context makes one tracker per episode. A tracker is shown each observation. It either returns an
action, as a probe does, or leaves the step to control, which then reads the tracker's vector. It
may also replace control by one that it has learned in the episode.
A method with a new kind of context adds its class here, to `FORWARD` if the context is a forward
pass, else to `ELSEWHERE`. A context that needs more than NumPy (torch, a model) is in another
package.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..networks import Arrays
from ..records import named
from .base import Context, HiddenContext, HistoryContext, NoContext, Tracker
from .latent import (
    RefinedContext,
    RewardedContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)

FORWARD: dict[str, type[Context]] = {
    each.kind: each
    for each in (
        NoContext,
        HiddenContext,
        HistoryContext,
        RefinedContext,
        SegmentContext,
        UnprobedContext,
        WindowContext,
    )
}
"""The contexts that are a forward pass: an agent with one of them can be exported."""
ELSEWHERE = {
    "adapted": ("sept_offline.agent.contexts.adapted", "AdaptedContext"),
    "candidates": ("sept_offline.agent.contexts.candidates", "CandidateContext"),
    "planning": ("sept_offline.dynamics.contexts", "PlanningContext"),
    "inferred": ("sept_offline.dynamics.contexts", "InferredContext"),
    "rewarded": ("sept_offline.agent.contexts.latent", "RewardedContext"),
}
"""Module and class of the others, which learn or compare in their episode or need rewards: never
exported."""


def context_from_arrays(arrays: Arrays, description: Any, prefix: str) -> Context:
    """The context that `description` names."""
    kinds: dict[str, Any] = {**FORWARD, **ELSEWHERE}
    kind = named(kinds, description, "context")
    if isinstance(kind, tuple):
        # imported only now: two of them need torch, which acting does not
        module, name = kind
        kind = getattr(importlib.import_module(module), name)
    context: Context = kind.from_arrays(arrays, description, prefix)
    return context


__all__ = [
    "FORWARD",
    "Context",
    "HiddenContext",
    "HistoryContext",
    "NoContext",
    "RefinedContext",
    "RewardedContext",
    "SegmentContext",
    "Tracker",
    "UnprobedContext",
    "WindowContext",
    "context_from_arrays",
]

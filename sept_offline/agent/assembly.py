"""An agent as named arrays and a JSON-ready description, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError
from .agent import Agent, Spaces
from .contexts import context_from_arrays
from .control import Control
from .fields import field, strings
from .networks import Arrays, Standardiser, network_from_arrays, take

LEARNED_FROM = "record.learned_from"


def agent_arrays(agent: Agent) -> dict[str, NDArray[Any]]:
    """All arrays of an agent, by the names they have on disk."""
    arrays = {
        "spaces.low": np.asarray(agent.spaces.low, dtype=np.float32),
        "spaces.high": np.asarray(agent.spaces.high, dtype=np.float32),
        **agent.context.to_arrays("context"),
    }
    for name, control in (("control", agent.control), ("fallback", agent.fallback)):
        if control is not None:
            arrays |= control.scaler.to_arrays(f"{name}.scaler")
            arrays |= control.network.to_arrays(f"{name}.network")
    return arrays


def assemble(description: dict[str, Any], arrays: Arrays) -> Agent:
    """The agent of a description and the arrays of `agent_arrays`."""
    spaces = Spaces(
        strings(description, "observation_names"),
        strings(description, "action_names"),
        take(arrays, "spaces.low", 1),
        take(arrays, "spaces.high", 1),
    )
    agent = Agent(
        method=field(description, "method", str),
        family=field(description, "family", str),
        spaces=spaces,
        context=context_from_arrays(arrays, field(description, "context", dict), "context"),
        control=_control(arrays, "control"),
        fallback=_control(arrays, "fallback") if field(description, "fallback", bool) else None,
        record=field(description, "record", dict),
        learned_from=_learned_from(arrays),
        # agents of earlier versions do not stack
        stack=field({"stack": 1} | description, "stack", int),
    )
    if sorted(agent.needs) != list(strings(description, "needs")):
        raise AgentError(
            f"`needs` in its description, {description['needs']}, contradicts its context."
        )
    # agents of earlier versions never learn, and lack the field
    if agent.learns != description.get("learns", False):
        raise AgentError("`learns` in its description contradicts its context.")
    if agent.probe_steps != field(description, "probe_steps", int):
        raise AgentError("`probe_steps` in its description contradicts its encoder.")
    return agent


def _learned_from(arrays: Arrays) -> NDArray[np.uint64] | None:
    """The digests of training episodes; None for agents of earlier versions."""
    digests = arrays.get(LEARNED_FROM)
    if digests is not None and (digests.dtype != np.uint64 or digests.ndim != 1):
        raise AgentError(f"Its weights hold {LEARNED_FROM!r} as {digests.dtype}, expected uint64.")
    return digests


def _control(arrays: Arrays, name: str) -> Control:
    return Control(
        Standardiser.from_arrays(arrays, f"{name}.scaler"),
        network_from_arrays(arrays, f"{name}.network"),
    )

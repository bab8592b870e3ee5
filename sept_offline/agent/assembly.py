"""An agent as named arrays and a JSON-ready description, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..actions import ActionSpace, Box, Finite, space_from
from ..errors import AgentError, ConfigError
from .agent import Agent, Spaces
from .contexts import context_from_arrays
from .control import Actor, Control
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
    space = read_space(description)
    spaces = Spaces(
        strings(description, "observation_names"),
        space,
        take(arrays, "spaces.low", 1),
        take(arrays, "spaces.high", 1),
    )
    fallback = None
    if field(description, "fallback", bool):
        fallback = _control(arrays, "fallback", space)
    agent = Agent(
        method=field(description, "method", str),
        family=field(description, "family", str),
        spaces=spaces,
        context=context_from_arrays(arrays, field(description, "context", dict), "context"),
        control=_control(arrays, "control", space),
        fallback=fallback,
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


def _control(arrays: Arrays, name: str, space: ActionSpace) -> Control:
    scaler = Standardiser.from_arrays(arrays, f"{name}.scaler")
    network = network_from_arrays(arrays, f"{name}.network")
    return Actor(scaler, network, space) if isinstance(space, Box) else Control(scaler, network)


def describe_space(space: ActionSpace) -> dict[str, Any]:
    """The actions in a description; `read_space` reads them. A finite set has names alone."""
    if isinstance(space, Finite):
        return {"action_names": list(space.names)}
    return {"action_space": space.describe()}


def read_space(description: dict[str, Any]) -> ActionSpace:
    """What `describe_space` wrote."""
    if "action_space" not in description:
        return Finite(strings(description, "action_names"))
    try:
        return space_from(description["action_space"])
    except ConfigError as error:
        raise AgentError(str(error)) from error

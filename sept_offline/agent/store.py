"""Agents on disk: JSON and safetensors, written at once or not at all, and nothing unpickled."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from sept_offline import __version__
from sept_offline.agent.agent import Agent, Spaces
from sept_offline.agent.contexts import context_from_arrays
from sept_offline.agent.control import Control
from sept_offline.agent.networks import Standardiser, network_from_arrays, take
from sept_offline.agent.reading import field, strings
from sept_offline.errors import AgentError
from sept_offline.files import refuse_foreign, replace_folder
from sept_offline.limits import read_whole
from sept_offline.seals import JSON_BYTES, parse_json, sealed_json, unsealed

FORMAT = 1
DESCRIPTION, WEIGHTS = "agent.json", "weights.safetensors"
LEARNED_FROM = "record.learned_from"
OURS = re.compile(r"agent\.json|weights\.safetensors")
"""The files of an agent's folder; one that holds others is not replaced."""


def save_agent(agent: Agent, directory: str | Path) -> Path:
    """Write `agent` as the folder `directory`, in place of an agent that stood there."""
    target = Path(directory)
    refuse_foreign(target, OURS, AgentError)
    arrays = agent_arrays(agent)
    if agent.learned_from is not None:
        # eight bytes an episode: too long for a description that people read
        arrays[LEARNED_FROM] = agent.learned_from
    weights = safetensors.numpy.save(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    )
    text = _dump(_describe(agent, weights))
    replace_folder(target, {WEIGHTS: weights, DESCRIPTION: text.encode()}, OURS)
    return target


def load_agent(path: str | Path) -> Agent:
    """The agent of a run directory, or of its agent/ folder."""
    given = Path(path)
    folder = given if (given / DESCRIPTION).is_file() else given / "agent"
    if not (folder / DESCRIPTION).is_file():
        raise AgentError(
            f"There is no agent in {given}: neither {DESCRIPTION} nor agent/{DESCRIPTION} is there."
        )
    description = _read_description(folder / DESCRIPTION)
    arrays = _read_weights(folder / WEIGHTS, field(description, "weights_sha256", str))
    try:
        return _assemble(description, arrays)
    except AgentError as error:
        raise AgentError(f"{folder}: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise AgentError(
            f"{folder}: the agent is not put together as expected: {error}."
        ) from error


def agent_arrays(agent: Agent) -> dict[str, NDArray[Any]]:
    """All an agent acts by in numbers, by the names under which it is written."""
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


def _describe(agent: Agent, weights: bytes) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "library": __version__,
        "method": agent.method,
        "family": agent.family,
        "needs": sorted(agent.needs),
        "learns": agent.learns,
        "probe_steps": agent.probe_steps,
        "stack": agent.stack,
        "observation_names": list(agent.spaces.observation_names),
        "action_names": list(agent.spaces.action_names),
        "context": agent.context.describe(),
        "fallback": agent.fallback is not None,
        "record": agent.record,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }


def _dump(description: dict[str, Any]) -> str:
    """Canonical JSON with a checksum of itself, so that a flipped bit cannot pass for a setting."""
    try:
        json.dumps(description, allow_nan=False)
        return sealed_json(description, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise AgentError(f"The agent's record cannot be written as JSON: {error}.") from error


def _read_description(path: Path) -> dict[str, Any]:
    raw = read_whole(path, AgentError, JSON_BYTES)
    content = parse_json(raw, path, AgentError)
    if not isinstance(content, dict):
        raise AgentError(f"{path} does not describe an agent.")
    version = content.get("format")
    if version != FORMAT:
        raise AgentError(
            f"{path} has format {version!r}, this library reads {FORMAT}; "
            "fit the agent again, or use the library version that wrote it."
        )
    body = unsealed(content, path, AgentError, required=True)
    if raw != _dump(body).encode():
        raise AgentError(f"{path} is not spelled as it was written: it is damaged or was edited.")
    return body


def _read_weights(path: Path, sha256: str) -> dict[str, NDArray[Any]]:
    content = read_whole(path, AgentError)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise AgentError(f"{path} does not match its checksum in {DESCRIPTION}: it is damaged.")
    try:
        return dict(safetensors.numpy.load(content))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AgentError(f"{path} is not a safetensors file: {error}.") from error


def _assemble(description: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Agent:
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
        # agents of earlier versions stack nothing
        stack=field({"stack": 1} | description, "stack", int),
    )
    if sorted(agent.needs) != list(strings(description, "needs")):
        raise AgentError(f"It declares the needs {description['needs']}, its parts have others.")
    # agents of earlier versions never learn, and do not say so
    if agent.learns != description.get("learns", False):
        raise AgentError("It declares otherwise than its parts whether it learns in its episode.")
    if agent.probe_steps != field(description, "probe_steps", int):
        raise AgentError("It declares another number of probe steps than its encoder reads.")
    return agent


def _learned_from(arrays: dict[str, NDArray[Any]]) -> NDArray[np.uint64] | None:
    """The digests, which agents of earlier versions do not have."""
    digests = arrays.get(LEARNED_FROM)
    if digests is not None and (digests.dtype != np.uint64 or digests.ndim != 1):
        raise AgentError(f"Its weights hold {LEARNED_FROM!r} as {digests.dtype}, expected uint64.")
    return digests


def _control(arrays: dict[str, NDArray[Any]], name: str) -> Control:
    return Control(
        Standardiser.from_arrays(arrays, f"{name}.scaler"),
        network_from_arrays(arrays, f"{name}.network"),
    )

"""Agents on disk: JSON and safetensors, written atomically; nothing is unpickled."""

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

from .. import __version__
from ..errors import AgentError
from ..files import refuse_foreign, replacing
from ..limits import read_whole
from ..seals import JSON_BYTES, parse_json, sealed_json, unsealed
from .agent import LEARNED_FROM, Agent, agent_arrays, assemble, describe_space
from .records import field

FORMATS = {"finite": 1, "box": 2}
"""The format of an agent by the kind of its actions: earlier versions know no boxes."""
DESCRIPTION, WEIGHTS = "agent.json", "weights.safetensors"
OURS = re.compile(r"agent\.json|weights\.safetensors")
"""The files of an agent's folder; a folder with any other is not replaced."""


def save_agent(agent: Agent, directory: str | Path) -> Path:
    """Write `agent` to the folder `directory`, replacing an agent there."""
    target = Path(directory)
    refuse_foreign(target, OURS, AgentError)
    arrays = agent_arrays(agent)
    if agent.learned_from is not None:
        # eight bytes per episode: too long for a description that people read
        arrays[LEARNED_FROM] = agent.learned_from
    weights = safetensors.numpy.save(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    )
    text = _dump(_describe(agent, weights))
    with replacing(target, OURS) as folder:
        (folder / WEIGHTS).write_bytes(weights)
        (folder / DESCRIPTION).write_bytes(text.encode())
    return target


def load_agent(path: str | Path) -> Agent:
    """Load the agent from a run directory of `fit`, or from a folder of `save_agent`."""
    given = Path(path)
    folder = given if (given / DESCRIPTION).is_file() else given / "agent"
    if not (folder / DESCRIPTION).is_file():
        raise AgentError(
            f"There is no agent in {given}: it has neither {DESCRIPTION} nor agent/{DESCRIPTION}."
        )
    description = _read_description(folder / DESCRIPTION)
    arrays = _read_weights(folder / WEIGHTS, field(description, "weights_sha256", str))
    try:
        return assemble(description, arrays)
    except AgentError as error:
        raise AgentError(f"{folder}: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise AgentError(f"{folder}: the agent's parts do not fit together: {error}.") from error


def _describe(agent: Agent, weights: bytes) -> dict[str, Any]:
    return {
        "format": FORMATS[agent.spaces.actions.kind],
        "library": __version__,
        "method": agent.method,
        "family": agent.family,
        "needs": sorted(agent.needs),
        "learns": agent.learns,
        "probe_steps": agent.probe_steps,
        "stack": agent.stack,
        "observation_names": list(agent.spaces.observation_names),
        **describe_space(agent.spaces.actions),
        "context": agent.context.describe(),
        "fallback": agent.fallback is not None,
        "record": agent.record,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }


def _dump(description: dict[str, Any]) -> str:
    """Canonical JSON with its own checksum, so that a flipped bit is detected."""
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
    if version not in FORMATS.values():
        raise AgentError(
            f"{path} has format {version!r}, this library reads 1 to {max(FORMATS.values())}; "
            "fit the agent again, or use the library version that wrote it."
        )
    body = unsealed(content, path, AgentError, required=True)
    try:
        canonical = raw == _dump(body).encode()
    except AgentError:  # a number that JSON does not have
        canonical = False
    if not canonical:
        raise AgentError(f"{path} is not in canonical form: it is damaged or was edited.")
    return body


def _read_weights(path: Path, sha256: str) -> dict[str, NDArray[Any]]:
    content = read_whole(path, AgentError)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise AgentError(f"{path} does not match its checksum in {DESCRIPTION}: it is damaged.")
    try:
        return dict(safetensors.numpy.load(content))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise AgentError(f"{path} is not a safetensors file: {error}.") from error

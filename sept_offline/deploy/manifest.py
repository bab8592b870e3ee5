"""What lies beside an exported agent: how to feed it, and the checksums of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sept_offline import __version__
from sept_offline.agent import (
    Agent,
    HiddenContext,
    HistoryContext,
    NoContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
from sept_offline.errors import AgentError
from sept_offline.files import read_json

FORMAT = 1
MANIFEST = "manifest.json"
PLAIN = (
    NoContext,
    HiddenContext,
    HistoryContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
"""The contexts that are a forward pass: those of other agents learn during the episode."""


def check_exportable(agent: Agent) -> None:
    """Raise for an agent that acts by more than forward passes of its networks."""
    if agent.learns or not isinstance(agent.context, PLAIN):
        raise AgentError(
            f"An agent of the method {agent.method} learns or infers by gradient steps in its "
            "episode and cannot be exported; serve it with sept-offline act."
        )


def describe(agent: Agent, form: str) -> dict[str, Any]:
    """What both forms of an export say of the agent, JSON-ready."""
    spaces, context = agent.spaces, agent.context
    lowest, highest = spaces.limits
    described = context.describe()
    if form == "onnx":
        described |= _initial(agent)
    return {
        "format": FORMAT,
        "form": form,
        "library": __version__,
        "method": agent.method,
        "family": agent.family,
        "needs": sorted(agent.needs),
        "observation_names": list(spaces.observation_names),
        "action_names": list(spaces.action_names),
        "range": {"lowest": lowest.tolist(), "highest": highest.tolist()},
        "probe_steps": agent.probe_steps,
        "context": described,
        "fallback": agent.fallback is not None,
    }


def _initial(agent: Agent) -> dict[str, Any]:
    """With what an episode starts: `start[k]`, control's context, and the steps that are kept."""
    context = agent.context
    if isinstance(context, HistoryContext):
        return {"steps": context.steps, "start": [0.0] * context.dim}
    if isinstance(context, WindowContext):
        size = context.encoder.latent_dim
        start = [0.0] * size + [1.0]
        return {"steps": context.encoder.steps, "start": start, "largest": [1.0] * size}
    if isinstance(context, UnprobedContext):
        return {"steps": context.encoder.steps, "start": context.start.tolist()}
    if isinstance(context, SegmentContext):
        return {"steps": context.encoder.steps}
    return {}


def sha256(content: bytes) -> str:
    """The checksum of a file."""
    return hashlib.sha256(content).hexdigest()


def is_export(folder: Path) -> bool:
    """Whether an export of ours stands there."""
    try:
        found = read_json(folder / MANIFEST, AgentError)
    except AgentError:
        return False
    return isinstance(found, dict) and found.get("form") in ("onnx", "numpy")


def read_manifest(folder: Path, form: str) -> dict[str, Any]:
    """The manifest of an export, whose files are checked against it."""
    found = read_json(folder / MANIFEST, AgentError)
    if not isinstance(found, dict) or (found.get("format"), found.get("form")) != (FORMAT, form):
        raise AgentError(f"{folder} holds no agent exported as {form} that can be read here.")
    for name, checksum in found["files"].items():
        if not (folder / name).is_file() or sha256((folder / name).read_bytes()) != checksum:
            raise AgentError(f"{folder / name} is missing or does not match its checksum.")
    return found

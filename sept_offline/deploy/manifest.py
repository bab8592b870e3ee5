"""What lies beside an exported agent: how to feed it, and the checksums of its files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline import __version__
from sept_offline.agent import (
    Agent,
    HistoryContext,
    RefinedContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
from sept_offline.agent.contexts import FORWARD
from sept_offline.errors import AgentError, ConfigError
from sept_offline.files import foreign
from sept_offline.limits import read_whole
from sept_offline.seals import read_json, read_sealed

FORMATS = {"onnx": 1, "numpy": 2}
"""What is written of each form; exports of all formats up to it are read."""
MANIFEST = "manifest.json"
GRAPHS = ("probe", "encoder", "novelty", "control", "fallback")
MODULES = (
    "errors",
    "limits",
    "seeding",
    "stacking",
    "agent/agent",
    "agent/assembly",
    "agent/control",
    "agent/decoder",
    "agent/encoder",
    "agent/episode",
    "agent/exported",
    "agent/fields",
    "agent/networks",
    "agent/novelty",
    "agent/probes",
    "agent/contexts/__init__",
    "agent/contexts/base",
    "agent/contexts/encoded",
    "agent/contexts/hidden",
    "agent/contexts/history",
    "agent/contexts/none",
    "agent/contexts/refined",
    "agent/contexts/segment",
    "agent/contexts/unprobed",
    "agent/contexts/window",
)
"""The library's own modules that act, in an export for NumPy alone: what `agent/exported` needs."""
SHIPPED = {f"modules/{name}.py": name for name in MODULES}
FILES = {"onnx": {f"{name}.onnx" for name in GRAPHS}, "numpy": {"runtime.py", "weights.npz"}}
MODULE = re.compile(r"modules/([a-z_]+/)*[a-z_]+\.py")
"""A module of an export, which may be of another version and have others than these."""
OURS = re.compile(
    "|".join(map(re.escape, (MANIFEST, *FILES["onnx"], *FILES["numpy"], *SHIPPED)))
    + r"|modules/(agent/(contexts/)?)?"
)
"""The files and folders of an export; a folder that holds others is not replaced."""


def check_exportable(agent: Agent) -> None:
    """Raise for an agent that acts by more than forward passes of its networks."""
    if agent.learns or not isinstance(agent.context, tuple(FORWARD.values())):
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
        "format": FORMATS[form],
        "form": form,
        "library": __version__,
        "method": agent.method,
        "family": agent.family,
        "needs": sorted(agent.needs),
        "observation_names": list(spaces.observation_names),
        "action_names": list(spaces.action_names),
        "range": {"lowest": lowest.tolist(), "highest": highest.tolist()},
        "probe_steps": agent.probe_steps,
        "stack": agent.stack,
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
    if isinstance(context, RefinedContext):
        nothing = np.zeros(context.dim, dtype=np.float32)
        start = context.latent_scaler(nothing).tolist()
        return {"steps": context.encoder.steps, "start": start, "nothing": nothing.tolist()}
    if isinstance(context, SegmentContext):
        return {"steps": context.encoder.steps}
    return {}


def sha256(content: bytes) -> str:
    """The checksum of a file."""
    return hashlib.sha256(content).hexdigest()


def is_export(folder: Path) -> bool:
    """Whether an export of ours stands there, whole or not."""
    try:
        found = read_json(folder / MANIFEST, AgentError)
    except AgentError:
        return False
    return isinstance(found, dict) and found.get("form") in tuple(FILES)


def refuse_other(folder: Path) -> None:
    """Refuse to put an export where anything else stands, or in place of what is not part of it."""
    if not folder.exists():
        return
    if not is_export(folder):
        raise ConfigError(f"{folder} is there and holds no export; give another place.")
    for name in foreign(folder, OURS):
        # Python leaves its own copy of a module where that has been imported.
        if Path(name).name != "__pycache__":
            raise ConfigError(
                f"{folder} holds {name} beside an older export, and nothing of yours is "
                "deleted; move it away, or give another place."
            )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an export, whose files are checked against it, each by its own name."""
    found = read_sealed(folder / MANIFEST, AgentError)
    form, files = found.get("form"), found.get("files")
    if not isinstance(form, str) or found.get("format") not in range(1, FORMATS.get(form, 0) + 1):
        raise AgentError(f"{folder} holds no exported agent that can be read here.")
    if not isinstance(files, dict) or not files:
        raise AgentError(f"{folder / MANIFEST} names no files; it is damaged.")
    named = {name for name in files if form != "numpy" or not MODULE.fullmatch(name)}
    if not named <= FILES[form]:
        raise AgentError(f"{folder / MANIFEST} names files that no export has; it is damaged.")
    for name, checksum in files.items():
        if sha256(read_whole(folder / name, AgentError)) != checksum:
            raise AgentError(f"{folder / name} does not match its checksum: it is damaged.")
    if form == "numpy" and named != FILES[form]:
        raise AgentError(f"{folder / MANIFEST} lacks files of an export; it is damaged.")
    if form == "onnx":
        _check_graphs(folder, found, files)
    return found


def _check_graphs(folder: Path, manifest: dict[str, Any], files: dict[str, Any]) -> None:
    """Every graph is the file of its own name, which has been checked, and says what it takes."""
    graphs = manifest.get("graphs")
    if not isinstance(graphs, dict) or {f"{name}.onnx" for name in graphs} != set(files):
        raise AgentError(f"{folder / MANIFEST} does not name the graphs that are there.")
    for name, graph in graphs.items():
        if not isinstance(graph, dict) or graph.get("file") != f"{name}.onnx":
            raise AgentError(
                f"{folder / MANIFEST} names another file than {name}.onnx for the graph {name}."
            )
        if not all(isinstance(graph.get(way), dict) for way in ("inputs", "outputs")):
            raise AgentError(f"{folder / MANIFEST} does not say what the graph {name} takes.")

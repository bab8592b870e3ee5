"""The manifest of an export: what its parts read, and the checksums of its files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sept_offline import __version__
from sept_offline.actions import Box
from sept_offline.agent import (
    Agent,
    HistoryContext,
    RefinedContext,
    SegmentContext,
    UnprobedContext,
    WindowContext,
)
from sept_offline.agent.agent import describe_space
from sept_offline.agent.contexts import FORWARD
from sept_offline.errors import AgentError, ConfigError
from sept_offline.files import foreign
from sept_offline.limits import read_whole
from sept_offline.seals import read_json, read_sealed

FORMATS = {"onnx": 1, "numpy": 2}
"""The format written for each form; earlier formats can be read too. That of a box is one more."""
MANIFEST = "manifest.json"
GRAPHS = ("probe", "encoder", "novelty", "control", "fallback")
MODULES = (
    "actions/__init__",
    "actions/box",
    "actions/finite",
    "actions/policies",
    "actions/space",
    "elementary",
    "errors",
    "limits",
    "seeding",
    "stacking",
    "agent/agent",
    "agent/control",
    "agent/encoders",
    "agent/episode",
    "agent/exported",
    "agent/networks",
    "agent/novelty",
    "agent/probes",
    "agent/records",
    "agent/contexts/__init__",
    "agent/contexts/base",
    "agent/contexts/latent",
)
"""The library's modules that a NumPy export contains: all that `agent/exported` imports."""
SHIPPED = {f"modules/{name}.py": name for name in MODULES}
FILES = {"onnx": {f"{name}.onnx" for name in GRAPHS}, "numpy": {"runtime.py", "weights.npz"}}
MODULE = re.compile(r"modules/([a-z_]+/)*[a-z_]+\.py")
"""The path of a module; an export of another version may have other modules than these."""
OURS = (MANIFEST, *FILES["onnx"], *FILES["numpy"], *SHIPPED)
"""The files of an export of this version."""


def check_exportable(agent: Agent) -> None:
    """Raise if acting takes more than forward passes of the agent's networks."""
    if agent.learns or not isinstance(agent.context, tuple(FORWARD.values())):
        raise AgentError(
            f"An agent of the method {agent.method} learns or infers by gradient steps in its "
            "episode and cannot be exported; serve it with sept-offline act."
        )
    if "reward" in agent.needs:
        raise AgentError(
            f"This agent of the method {agent.method} reads rewards and cannot be exported; serve "
            "it with sept-offline act."
        )


def describe(agent: Agent, form: str) -> dict[str, Any]:
    """The description of the agent in both forms of an export, JSON-ready."""
    spaces, context = agent.spaces, agent.context
    lowest, highest = spaces.limits
    described = context.describe()
    if form == "onnx":
        described |= _initial(agent)
    return {
        "format": FORMATS[form] + isinstance(spaces.actions, Box),
        "form": form,
        "library": __version__,
        "method": agent.method,
        "family": agent.family,
        "needs": sorted(agent.needs),
        "observation_names": list(spaces.observation_names),
        **describe_space(spaces.actions),
        "range": {"lowest": lowest.tolist(), "highest": highest.tolist()},
        "probe_steps": agent.probe_steps,
        "stack": agent.stack,
        "context": described,
        "fallback": agent.fallback is not None,
    }


def _initial(agent: Agent) -> dict[str, Any]:
    """The initial state of an episode: `start[k]`, control's context, and the steps kept."""
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
    """Whether the folder contains an export, complete or not."""
    try:
        found = read_json(folder / MANIFEST, AgentError)
    except AgentError:
        return False
    return isinstance(found, dict) and found.get("form") in tuple(FILES)


def refuse_other(folder: Path) -> re.Pattern[str]:
    """Raise if writing an export to `folder` would replace anything but an export.

    Returns what an export there consists of: its files, and its folders with a slash at the end.
    """
    if not folder.exists():
        return _pattern(OURS)
    if not is_export(folder):
        raise ConfigError(f"{folder} exists and is not an export; choose another folder.")
    ours = _pattern((*OURS, *_unchanged_modules(folder)))
    for name in foreign(folder, ours):
        # Python writes __pycache__ beside a module that was imported.
        if Path(name).name != "__pycache__":
            raise ConfigError(
                f"{folder} contains {name}, which is not part of an export and would be lost; "
                "move it away, or choose another folder."
            )
    return ours


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Matches these files, and the folders that they lie in."""
    files = set(names)
    folders = {f"{parent}/" for name in files for parent in PurePosixPath(name).parents}
    return re.compile("|".join(map(re.escape, files | (folders - {"./"}))))


def _unchanged_modules(folder: Path) -> list[str]:
    """The modules of an export of another version, as its manifest lists them."""
    listed = read_json(folder / MANIFEST, AgentError).get("files")
    if not isinstance(listed, dict):
        return []
    found = [name for name in listed if MODULE.fullmatch(name) and (folder / name).is_file()]
    return [n for n in found if sha256(read_whole(folder / n, AgentError)) == listed[n]]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an export; every file is checked against its checksum."""
    found = read_sealed(folder / MANIFEST, AgentError)
    form, files = found.get("form"), found.get("files")
    if not isinstance(form, str) or found.get("format") not in range(1, FORMATS.get(form, -1) + 2):
        raise AgentError(f"{folder} does not contain an export that this version can read.")
    if not isinstance(files, dict) or not files:
        raise AgentError(f"{folder / MANIFEST} does not list any files; it is damaged.")
    named = {name for name in files if form != "numpy" or not MODULE.fullmatch(name)}
    if not named <= FILES[form]:
        raise AgentError(
            f"{folder / MANIFEST} lists files that do not belong to an export; it is damaged."
        )
    for name, checksum in files.items():
        if sha256(read_whole(folder / name, AgentError)) != checksum:
            raise AgentError(f"{folder / name} does not match its checksum: it is damaged.")
    if form == "numpy" and named != FILES[form]:
        raise AgentError(
            f"{folder / MANIFEST} does not list all files of an export; it is damaged."
        )
    if form == "onnx":
        _check_graphs(folder, found, files)
    return found


def _check_graphs(folder: Path, manifest: dict[str, Any], files: dict[str, Any]) -> None:
    """Raise unless every graph names its own file, which has been checked, and its inputs."""
    graphs = manifest.get("graphs")
    if not isinstance(graphs, dict) or {f"{name}.onnx" for name in graphs} != set(files):
        raise AgentError(f"{folder / MANIFEST} does not list the graphs that the folder contains.")
    for name, graph in graphs.items():
        if not isinstance(graph, dict) or graph.get("file") != f"{name}.onnx":
            raise AgentError(
                f"{folder / MANIFEST} names another file for the graph {name}; expected "
                f"{name}.onnx."
            )
        if not all(isinstance(graph.get(way), dict) for way in ("inputs", "outputs")):
            raise AgentError(f"{folder / MANIFEST} does not list the inputs of the graph {name}.")

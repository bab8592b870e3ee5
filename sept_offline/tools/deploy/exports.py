"""Exports of an agent: described in a manifest, verified, then moved into place; and read again."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from sept_offline import __version__
from sept_offline.actions import Box
from sept_offline.agent import (
    Agent,
    HistoryContext,
    RefinedContext,
    WindowContext,
    load_agent,
)
from sept_offline.agent.agent import agent_arrays, describe_space
from sept_offline.agent.contexts import FORWARD, Context
from sept_offline.agent.contexts.latent import LatentContext
from sept_offline.agent.exported import MANIFEST, WEIGHTS, ExportedAgent, read_weights
from sept_offline.data import Dataset, opened
from sept_offline.errors import AgentError, ConfigError, one_line
from sept_offline.files import foreign, replacing
from sept_offline.limits import LONGEST_SEGMENT, VARIABLE, read_whole
from sept_offline.seals import read_json, read_sealed, sealed_json
from sept_offline.tools.deploy.verification import Verified, made_up, recorded, verify

OBSERVATIONS = 10_000
LIBRARY = Path(__file__).parents[2]
FORMATS = {"onnx": 1, "numpy": 2}
"""The format written for each form; earlier formats can be read too. That of a box is one more."""
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
FILES = {"onnx": {f"{name}.onnx" for name in GRAPHS}, "numpy": {"runtime.py", WEIGHTS}}
MODULE = re.compile(r"modules/([a-z_]+/)*[a-z_]+\.py")
"""The path of a module; an export of another version may have other modules than these."""
OURS = (MANIFEST, *FILES["onnx"], *FILES["numpy"], *SHIPPED)
"""The files of an export of this version."""


@dataclass(frozen=True)
class Exported:
    """An export: its folder, its manifest, and the result of its verification."""

    path: Path
    manifest: dict[str, Any]
    verified: Verified


def export(
    agent: Agent | str | Path,
    out: str | Path,
    form: str = "onnx",
    verify_on: Dataset | str | Path | None = None,
    observations: int = OBSERVATIONS,
    seed: int = 0,
) -> Exported:
    """Export `agent` to the folder `out`: ONNX graphs, or NumPy weights and modules.

    The export is compared with the agent on `observations` observations, from the episodes of
    `verify_on` or drawn from the range of the training data; a different action is an error.
    """
    if form not in FORMATS:
        raise ConfigError(f"The export form is {form!r}; expected one of {', '.join(FORMATS)}.")
    if observations < 1:
        raise ConfigError(f"observations is {observations}; expected at least 1.")
    known = agent if isinstance(agent, Agent) else load_agent(agent)
    _check_exportable(known)
    target = Path(out)
    ours = _refuse_other(target)
    contents, manifest = (_onnx if form == "onnx" else _numpy)(known)
    with replacing(target, ours) as folder:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        _write_manifest(folder, manifest)
        verified, against = _verify(known, load_export(folder), verify_on, observations, seed)
        figures = {name: value for name, value in asdict(verified).items() if value is not None}
        manifest["verified"] = figures | {"against": against}
        _write_manifest(folder, manifest)
    return Exported(target, manifest, verified)


def _onnx(agent: Agent) -> tuple[dict[str, bytes], dict[str, Any]]:
    from sept_offline.tools.deploy.graphs import graphs_of

    manifest = _description(agent, "onnx") | {"graphs": {}, "files": {}}
    contents = {}
    for name, graph in graphs_of(agent).items():
        content, file = graph.finished(), f"{name}.onnx"
        contents[file] = content
        manifest["graphs"][name] = {"file": file, **graph.signature}
        manifest["files"][file] = _sha256(content)
    return contents, manifest


def _numpy(agent: Agent) -> tuple[dict[str, bytes], dict[str, Any]]:
    weights = io.BytesIO()
    np.savez(weights, **agent_arrays(agent))  # type: ignore[arg-type]  # names are not options
    contents = {
        "runtime.py": Path(__file__).with_name("runtime.py").read_bytes(),
        WEIGHTS: weights.getvalue(),
        **{file: (LIBRARY / f"{name}.py").read_bytes() for file, name in SHIPPED.items()},
    }
    files = {name: _sha256(content) for name, content in contents.items()}
    return contents, _description(agent, "numpy") | {"files": files}


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_bytes(sealed_json(manifest).encode())


def load_export(folder: str | Path) -> Any:
    """Load an export: its `begin(seed, hidden)` starts an episode, which has `act`.

    Every file is checked first. No code in the folder is run, not even its modules: the library's
    own modules are used instead.
    """
    place = Path(folder)
    if not _is_export(place):
        raise AgentError(f"{place} does not contain an exported agent.")
    manifest = _read_manifest(place)
    try:
        exported: Any
        if manifest["form"] == "numpy":
            exported = ExportedAgent(manifest, read_weights(place / WEIGHTS))
        else:
            from sept_offline.tools.deploy.onnx_agent import OnnxAgent

            exported = OnnxAgent(place, manifest)
        _try_out(exported, manifest)
        return exported
    except (AgentError, ConfigError):
        raise
    except Exception as problem:  # onnxruntime has its own class for each failure
        words = one_line(problem)
        if "Available memory of" in words:
            raise AgentError(
                f"{place} needs more memory than the limit for the graphs of an export; if you "
                f"trust it, raise {VARIABLE}."
            ) from problem
        raise AgentError(f"{place} is not a valid export ({words:.200}).") from problem


def _try_out(exported: Any, manifest: dict[str, Any]) -> None:
    """Act once in every phase, so that parts that do not fit fail here and not in an episode."""
    context, probe = manifest["context"], int(manifest["probe_steps"])
    hidden = dict.fromkeys(context["names"], 0.0) if context["kind"] == "hidden" else None
    episode = exported.begin(0, hidden)
    row = np.zeros(len(manifest["observation_names"]), dtype=np.float32)
    if not 0 <= probe <= LONGEST_SEGMENT:
        raise AgentError(f"An export claims a probe of {probe:,} steps; it is damaged.")
    for _ in range(probe + 1):
        episode.act(row)


def _verify(
    agent: Agent,
    exported: Any,
    data: Dataset | str | Path | None,
    observations: int,
    seed: int,
) -> tuple[Verified, str]:
    if data is None:
        return verify(agent, exported, made_up(agent, observations, seed)), "range"
    with opened(data, check=True) as logs:
        return verify(agent, exported, recorded(agent, logs, observations, seed)), logs.content_hash


def _check_exportable(agent: Agent) -> None:
    """Raise if acting takes more than forward passes of the agent's networks."""
    if agent.learns or not isinstance(agent.context, tuple(FORWARD.values())):
        raise AgentError(
            f"An agent of the method {agent.method} does more in its episode than forward passes "
            "of networks and cannot be exported; serve it with sept-offline act."
        )
    if "reward" in agent.needs:
        raise AgentError(
            f"This agent of the method {agent.method} reads rewards and cannot be exported; serve "
            "it with sept-offline act."
        )


def _description(agent: Agent, form: str) -> dict[str, Any]:
    """The description of the agent in both forms of an export, JSON-ready."""
    spaces, context = agent.spaces, agent.context
    lowest, highest = spaces.limits
    described = context.describe()
    if form == "onnx":
        described |= _initial(context)
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


def _initial(context: Context) -> dict[str, Any]:
    """The initial state of an episode: `start[k]`, control's context, and the steps kept."""
    if isinstance(context, HistoryContext):
        return {"steps": context.steps, "start": [0.0] * context.dim}
    if not isinstance(context, LatentContext):
        return {}
    initial: dict[str, Any] = {"steps": context.encoder.steps}
    if len(context.start):
        initial["start"] = context.start.tolist()
    if isinstance(context, WindowContext):
        initial["largest"] = [1.0] * context.encoder.latent_dim
    if isinstance(context, RefinedContext):
        initial["nothing"] = [0.0] * context.dim
    return initial


def _sha256(content: bytes) -> str:
    """The checksum of a file."""
    return hashlib.sha256(content).hexdigest()


def _is_export(folder: Path) -> bool:
    """Whether the folder contains an export, complete or not."""
    try:
        manifest = read_json(folder / MANIFEST, AgentError)
    except AgentError:
        return False
    return isinstance(manifest, dict) and manifest.get("form") in tuple(FILES)


def _refuse_other(folder: Path) -> re.Pattern[str]:
    """Raise if writing an export to `folder` would replace anything but an export.

    Returns what an export there consists of: its files, and its folders with a slash at the end.
    """
    if not folder.exists():
        return _pattern(OURS)
    if not _is_export(folder):
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
    """Matches these files and their folders."""
    files = set(names)
    folders = {f"{parent}/" for name in files for parent in PurePosixPath(name).parents}
    return re.compile("|".join(map(re.escape, files | (folders - {"./"}))))


def _unchanged_modules(folder: Path) -> list[str]:
    """The modules of an export of another version, as its manifest lists them."""
    listed = read_json(folder / MANIFEST, AgentError).get("files")
    if not isinstance(listed, dict):
        return []
    modules = [name for name in listed if MODULE.fullmatch(name) and (folder / name).is_file()]
    return [
        name for name in modules if _sha256(read_whole(folder / name, AgentError)) == listed[name]
    ]


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an export; every file is checked against its checksum."""
    manifest = read_sealed(folder / MANIFEST, AgentError)
    form, files = str(manifest.get("form")), manifest.get("files")
    newest = FORMATS[form] + 1 if form in FORMATS else 0
    if manifest.get("format") not in range(1, newest + 1):
        raise AgentError(f"{folder} does not contain an export that this version can read.")
    if not isinstance(files, dict) or not files:
        raise AgentError(f"{folder / MANIFEST} does not list any files; it is damaged.")
    named = {name for name in files if form != "numpy" or not MODULE.fullmatch(name)}
    if not named <= FILES[form]:
        raise AgentError(
            f"{folder / MANIFEST} lists files that do not belong to an export; it is damaged."
        )
    for name, checksum in files.items():
        if _sha256(read_whole(folder / name, AgentError)) != checksum:
            raise AgentError(f"{folder / name} does not match its checksum: it is damaged.")
    if form == "numpy" and named != FILES[form]:
        raise AgentError(
            f"{folder / MANIFEST} does not list all files of an export; it is damaged."
        )
    if form == "onnx":
        _check_graphs(folder, manifest, files)
    return manifest


def _check_graphs(folder: Path, manifest: dict[str, Any], files: dict[str, Any]) -> None:
    """Raise unless every graph names its own file, which has been checked, and its inputs."""
    graphs = manifest.get("graphs")
    if not isinstance(graphs, dict) or {f"{name}.onnx" for name in graphs} != set(files):
        raise AgentError(f"{folder / MANIFEST} does not list the graphs that the folder contains.")
    for name, graph in graphs.items():
        if not isinstance(graph, dict) or graph.get("file") != f"{name}.onnx":
            raise AgentError(
                f"{folder / MANIFEST} names a different file for the graph {name}; expected "
                f"{name}.onnx."
            )
        if not all(isinstance(graph.get(way), dict) for way in ("inputs", "outputs")):
            raise AgentError(f"{folder / MANIFEST} does not list the inputs of the graph {name}.")

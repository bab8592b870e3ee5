"""Exports of an agent: written to a temporary folder, verified, then moved into place."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.agent import Agent, load_agent
from sept_offline.agent.agent import agent_arrays
from sept_offline.agent.exported import WEIGHTS, ExportedAgent, read_weights
from sept_offline.data import Dataset, opened
from sept_offline.deploy.manifest import (
    MANIFEST,
    SHIPPED,
    check_exportable,
    describe,
    is_export,
    read_manifest,
    refuse_other,
    sha256,
)
from sept_offline.deploy.verification import Verified, made_up, recorded, verify
from sept_offline.errors import AgentError, ConfigError
from sept_offline.files import replacing
from sept_offline.limits import LONGEST_SEGMENT, VARIABLE
from sept_offline.seals import sealed_json

FORMS = ("onnx", "numpy")
OBSERVATIONS = 10_000
LIBRARY = Path(__file__).parents[1]


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
    if form not in FORMS:
        raise ConfigError(f"The export form is {form!r}; expected one of {', '.join(FORMS)}.")
    if observations < 1:
        raise ConfigError(f"observations is {observations}; expected at least 1.")
    known = agent if isinstance(agent, Agent) else load_agent(agent)
    check_exportable(known)
    target = Path(out)
    ours = refuse_other(target)
    contents, manifest = (_onnx if form == "onnx" else _numpy)(known)
    with replacing(target, ours) as folder:
        for name, content in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        _describe(folder, manifest)
        verified, against = _verify(known, load_export(folder), verify_on, observations, seed)
        figures = {name: value for name, value in asdict(verified).items() if value is not None}
        manifest["verified"] = figures | {"against": against}
        _describe(folder, manifest)
    return Exported(target, manifest, verified)


def _onnx(agent: Agent) -> tuple[dict[str, bytes], dict[str, Any]]:
    from sept_offline.deploy.graphs import graphs_of

    manifest = describe(agent, "onnx") | {"graphs": {}, "files": {}}
    contents = {}
    for name, graph in graphs_of(agent).items():
        content, file = graph.finished(), f"{name}.onnx"
        contents[file] = content
        manifest["graphs"][name] = {"file": file, **graph.signature()}
        manifest["files"][file] = sha256(content)
    return contents, manifest


def _numpy(agent: Agent) -> tuple[dict[str, bytes], dict[str, Any]]:
    weights = io.BytesIO()
    np.savez(weights, **agent_arrays(agent))  # type: ignore[arg-type]  # names are not options
    contents = {
        "runtime.py": Path(__file__).with_name("runtime.py").read_bytes(),
        WEIGHTS: weights.getvalue(),
        **{file: (LIBRARY / f"{name}.py").read_bytes() for file, name in SHIPPED.items()},
    }
    files = {name: sha256(content) for name, content in contents.items()}
    return contents, describe(agent, "numpy") | {"files": files}


def _describe(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_bytes(sealed_json(manifest).encode())


def load_export(folder: str | Path) -> Any:
    """Load an export: its `begin(seed, hidden)` starts an episode, which has `act`.

    Every file is checked first. No code in the folder is run, not even its modules: the library's
    own modules are used instead.
    """
    place = Path(folder)
    if not is_export(place):
        raise AgentError(f"{place} does not contain an exported agent.")
    manifest = read_manifest(place)
    try:
        found: Any
        if manifest["form"] == "numpy":
            found = ExportedAgent(manifest, read_weights(place / WEIGHTS))
        else:
            from sept_offline.deploy.onnx_agent import OnnxAgent

            found = OnnxAgent(place, manifest)
        _try_out(found, manifest)
        return found
    except (AgentError, ConfigError):
        raise
    except Exception as problem:  # onnxruntime has its own class for each failure
        words = " ".join(str(problem).split())
        if "Available memory of" in words:
            raise AgentError(
                f"{place} needs more memory than the limit for the graphs of an export; if you "
                f"trust it, raise {VARIABLE}."
            ) from problem
        raise AgentError(f"{place} is not a valid export ({words:.200}).") from problem


def _try_out(found: Any, manifest: dict[str, Any]) -> None:
    """Act once in every phase, so that parts that do not fit fail here and not in an episode."""
    context, probe = manifest["context"], int(manifest["probe_steps"])
    hidden = dict.fromkeys(context["names"], 0.0) if context["kind"] == "hidden" else None
    episode = found.begin(0, hidden)
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

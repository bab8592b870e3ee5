"""Exporting an agent: written beside its place, verified there, and only then put into it."""

from __future__ import annotations

import io
import json
import shutil
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.agent import Agent, load_agent
from sept_offline.agent.store import agent_arrays
from sept_offline.data import Dataset, load_dataset
from sept_offline.deploy import runtime
from sept_offline.deploy.manifest import (
    MANIFEST,
    check_exportable,
    describe,
    is_export,
    sha256,
)
from sept_offline.deploy.verifying import Verified, made_up, recorded, verify
from sept_offline.errors import AgentError, ConfigError

FORMS = ("onnx", "numpy")
OBSERVATIONS = 10_000


@dataclass(frozen=True)
class Exported:
    """An export: the folder, what its manifest says, and how it was compared with the library."""

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
    """Write `agent` as the folder `out`: ONNX graphs, or weights with a runtime of one file.

    It is led beside the library along `observations` observations of the episodes of `verify_on`,
    or drawn from the training data's range; an action that differs is an error.
    """
    if form not in FORMS:
        raise ConfigError(f"An agent is exported as {' or '.join(FORMS)}, not as {form!r}.")
    if observations < 1:
        raise ConfigError("An export is verified on at least 1 observation.")
    known = agent if isinstance(agent, Agent) else load_agent(agent)
    check_exportable(known)
    target = Path(out)
    if target.exists() and not is_export(target):
        raise ConfigError(f"{target} is there and holds no export; give another place.")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged, old = (target.with_name(f".{target.name}-{uuid.uuid4().hex}") for _ in range(2))
    try:
        staged.mkdir()
        manifest = (_write_onnx if form == "onnx" else _write_numpy)(known, staged)
        found, against = _verify(known, staged, verify_on, observations, seed)
        manifest["verified"] = asdict(found) | {"against": against}
        _write_manifest(staged, manifest)
        if target.exists():
            target.rename(old)
        staged.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(staged, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return Exported(target, manifest, found)


def _write_onnx(agent: Agent, folder: Path) -> dict[str, Any]:
    from sept_offline.deploy.graphs import graphs_of

    manifest = describe(agent, "onnx") | {"graphs": {}, "files": {}}
    for name, graph in graphs_of(agent).items():
        content, file = graph.finished(), f"{name}.onnx"
        (folder / file).write_bytes(content)
        manifest["graphs"][name] = {"file": file, **graph.signature()}
        manifest["files"][file] = sha256(content)
    _write_manifest(folder, manifest)
    return manifest


def _write_numpy(agent: Agent, folder: Path) -> dict[str, Any]:
    weights = io.BytesIO()
    np.savez(weights, **agent_arrays(agent))  # type: ignore[arg-type]  # names are no options
    contents = {
        "runtime.py": Path(runtime.__file__).read_bytes(),
        "weights.npz": weights.getvalue(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    files = {name: sha256(content) for name, content in contents.items()}
    manifest = describe(agent, "numpy") | {"files": files}
    _write_manifest(folder, manifest)
    return manifest


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=2, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def load_export(folder: str | Path) -> Any:
    """An export as something that acts: `begin(seed, hidden)` gives episodes with `act`."""
    place = Path(folder)
    if not is_export(place):
        raise AgentError(f"{place} holds no exported agent.")
    form = json.loads((place / MANIFEST).read_text(encoding="utf-8"))["form"]
    if form == "numpy":
        return runtime.load(place)
    from sept_offline.deploy.onnx_agent import OnnxAgent

    return OnnxAgent(place)


def _verify(
    agent: Agent,
    folder: Path,
    data: Dataset | str | Path | None,
    observations: int,
    seed: int,
) -> tuple[Verified, str]:
    if data is not None and not isinstance(data, Dataset):
        with load_dataset(data) as opened:
            return _verify(agent, folder, opened, observations, seed)
    exported = load_export(folder)
    if data is None:
        return verify(agent, exported, made_up(agent, observations, seed)), "range"
    return verify(agent, exported, recorded(agent, data, observations, seed)), data.content_hash

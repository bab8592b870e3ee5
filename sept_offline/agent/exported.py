"""An exported agent: read from its folder, it acts with NumPy alone."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AgentError, SeptError
from ..limits import read_whole
from .agent import assemble
from .contexts import FORWARD
from .episode import AgentEpisode
from .networks import plain_networks
from .records import field

if TYPE_CHECKING:
    from ..family import Hidden

FORM = "numpy"
FORMATS = (1, 2, 3)
"""Exports of format 1 have a runtime in one file, and the same manifest and weights; those of
format 3 act in a box."""
MANIFEST, WEIGHTS = "manifest.json", "weights.npz"


class ExportedAgent:
    """An exported agent. It never changes, and computes in plain NumPy on every machine."""

    def __init__(self, manifest: dict[str, Any], weights: dict[str, NDArray[Any]]) -> None:
        kind = field(field(manifest, "context", dict), "kind", str)
        if kind not in FORWARD:
            raise AgentError(f"An exported agent has no context of kind {kind!r:.40}.")
        with plain_networks():
            self.agent = assemble({**manifest, "record": {}}, weights)
        self.manifest = manifest
        self.observation_names = self.agent.spaces.observation_names
        self.action_names = self.agent.spaces.action_names
        self.probe_steps = self.agent.probe_steps
        lowest, highest = (bound.tolist() for bound in self.agent.spaces.limits)
        if field(manifest, "range", dict) != {"lowest": lowest, "highest": highest}:
            raise AgentError("The observed range in the manifest contradicts the weights.")

    def begin(self, seed: int = 0, hidden: Hidden | None = None) -> ExportedEpisode:
        """A new episode; `hidden` only for an agent that needs the hidden parameters."""
        return ExportedEpisode(self.agent, seed, hidden)


class ExportedEpisode(AgentEpisode):
    """One episode; call `act` with each observation."""

    # an exported agent never needs rewards
    def act(  # type: ignore[override]
        self, observation: NDArray[Any], mask: NDArray[Any] | None = None, bounds: Any = None
    ) -> Any:
        """The action in `observation[d]`, of those that a mask, or bounds in a box, allow."""
        return super().act(observation, mask=mask, bounds=bounds)


def load(folder: str | Path) -> ExportedAgent:
    """The agent that was exported to `folder`."""
    place = Path(folder)
    try:
        manifest = _read_manifest(place / MANIFEST)
        weights = read_weights(place / WEIGHTS, manifest["files"][WEIGHTS])
        return ExportedAgent(manifest, weights)
    except SeptError as error:
        raise AgentError(f"{place}: {error}") from error
    except (
        OSError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        raise AgentError(f"{place} is damaged: {error}.") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(read_whole(path, AgentError))
    if manifest.get("format") not in FORMATS or manifest.get("form") != FORM:
        raise AgentError(f"{path.name} does not describe an agent that this runtime can read.")
    checksum = manifest.pop("checksum", None)
    body = json.dumps(manifest, indent=2).encode()
    # exports of earlier versions have none
    if checksum is not None and checksum != hashlib.sha256(body).hexdigest():
        raise AgentError(f"{path.name} is damaged or was edited.")
    return manifest


def read_weights(path: Path, checksum: str | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an export, stored uncompressed: more bytes than the file has are refused."""
    content = read_whole(path, AgentError)
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        raise AgentError(f"{path} does not match its checksum: it is damaged.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            claimed = sum(entry.file_size for entry in packed.infolist())
        if claimed > len(content):
            raise AgentError(f"{path} claims {claimed:,} bytes of arrays; it is damaged.")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise AgentError(f"{path} is damaged: {error}.") from error

"""Agents and exports from before pooled encoders and shared modules still act as they did.

`format_1.zip` holds agents fitted briefly to `datasets/sample.h5` by a library that wrote encoders
block-diagonal and exports with a runtime of one file, and in `expected.npz` what that library did:
its actions along 10,000 recorded observations, and the latent at the end of each episode. Of
these, the first 2,000 are looked at, and all of them in a long test.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.agent.encoders import FlatEncoder
from sept_offline.agent.exported import load
from sept_offline.threads import one_thread
from sept_offline.tools.deploy import export, load_export
from sept_offline.tools.deploy.verification import Recording, recorded

HERE = Path(__file__).parent
SAMPLE = HERE.parents[1] / "datasets" / "sample.h5"
OBSERVATIONS = 10_000
LOADERS = {
    "agent": lambda place: so.load_agent(place / "agent"),
    "numpy": lambda place: load_export(place / "numpy"),
    "runtime": lambda place: load(place / "numpy"),
    "onnx": lambda place: load_export(place / "onnx"),
}
CASES = [
    (name, form) for name in ("dynasept", "sept", "lstm") for form in LOADERS if form != "onnx"
] + [("dynasept", "onnx"), ("sept", "onnx")]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("format_1")
    with zipfile.ZipFile(HERE / "format_1.zip") as archive:
        archive.extractall(folder)
    return folder


def recordings(agent: Agent) -> Iterator[Recording]:
    """The sample's episodes, again and again in other orders and with other masks."""
    left = OBSERVATIONS
    with so.load_dataset(SAMPLE) as data:
        for seed in range(3):
            for recording in recorded(agent, data, left, seed):
                left -= len(recording.observations)
                yield recording
    assert left == 0


@pytest.mark.parametrize("least", [2_000, pytest.param(OBSERVATIONS, marks=pytest.mark.long)])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_same_actions_and_latents_as_before(
    old: Path, name: str, form: str, least: int
) -> None:
    acting: Any = LOADERS[form](old / name)
    actions, latents = [], []
    with one_thread():
        for recording in recordings(so.load_agent(old / name / "agent")):
            episode = acting.begin(recording.seed)
            for time, row in enumerate(recording.observations):
                mask = None if recording.masks is None else recording.masks[time]
                actions.append(episode.act(row, mask=mask))
            latents.append(episode.latent)
            if len(actions) >= least:
                break
    with np.load(old / "expected.npz") as expected:
        np.testing.assert_array_equal(actions, expected[f"{name}.actions"][: len(actions)])
        before = expected[f"{name}.latents"][: len(latents)]
        np.testing.assert_allclose(latents, before, rtol=0, atol=1e-5)
    assert least <= len(actions) <= OBSERVATIONS and len(set(actions)) == 4


def test_an_old_agent_is_exported_and_an_old_export_replaced(old: Path) -> None:
    agent = so.load_agent(old / "dynasept" / "agent")
    assert isinstance(agent.context.encoder, FlatEncoder)
    place = old / "lstm" / "numpy"
    done = export(agent, place, "numpy", SAMPLE, 500)
    assert done.manifest["format"] == 2 and (place / "modules" / "agent" / "agent.py").is_file()
    load_export(place)

"""Agents and exports that claim absurd sizes: one sentence, before anything is allocated."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import log, save_modelled
from sept_offline.agent import AdaptedContext, Agent, SegmentContext, load_agent, save_agent
from sept_offline.agent.probes import TableProbe, UniformProbe
from sept_offline.agent.rewards import RewardForm
from sept_offline.errors import AgentError, ConfigError, DataError, SeptError
from sept_offline.seals import sealed_json
from sept_offline.settings import FitConfig, LatentConfig
from sept_offline.tools.deploy import export, load_export
from sept_offline.tools.deploy.onnx_agent import refuse_external
from tests.agent.builders import make_agent

NAN = float("nan")


def reseal(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a JSON file on purpose, with its checksum."""
    content = json.loads(path.read_text())
    content.pop("checksum")
    change(content)
    path.write_text(sealed_json(content, sort_keys="weights_sha256" in content))


def put(content: dict[str, Any], place: str, value: Any) -> None:
    """Set `content[a][b][c]` for the place a.b.c, which must be there."""
    *outer, name = place.split(".")
    for key in outer:
        content = content[key]
    assert name in content
    content[name] = value


REFINED = [
    ("stack", 10**9),
    ("stack", 0),
    ("context.refine_steps", 10**18),
    ("context.refine_steps", -1),
    ("context.encoder.steps", 10**12),
    ("context.encoder.steps", 10**18),
    ("context.encoder.steps", -3),
    ("context.encoder.num_actions", 10**12),
    ("context.encoder.residual_range", -1.0),
    ("context.encoder.log_precision_range", [8.0, -10.0]),
    ("context.encoder.log_precision_range", [0, 10**400]),
    ("context.novelty.decoder.log_var_range", [1.0, 1.0]),
    ("context.novelty.decoder.latent_dim", 10**18),
]


@pytest.mark.parametrize(("place", "value"), REFINED)
def test_an_agent_with_absurd_sizes_is_refused(tmp_path: Path, place: str, value: Any) -> None:
    save_agent(make_agent("refined", stack=2), tmp_path / "agent")
    reseal(tmp_path / "agent" / "agent.json", lambda content: put(content, place, value))
    with pytest.raises(AgentError) as refused:
        load_agent(tmp_path / "agent")
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [NAN, float("inf"), [NAN, NAN]])
@pytest.mark.parametrize(
    "place", ["context.encoder.residual_range", "context.encoder.log_precision_range"]
)
def test_ranges_that_are_not_numbers_are_refused(tmp_path: Path, place: str, value: Any) -> None:
    agent = make_agent("refined", stack=2)
    save_agent(agent, tmp_path / "agent")
    export(agent, tmp_path / "numpy", "numpy", observations=5)
    for name in ("agent/agent.json", "numpy/manifest.json"):
        reseal(tmp_path / name, lambda content: put(content, place, value))
    with pytest.raises(AgentError):
        load_agent(tmp_path / "agent")
    with pytest.raises(AgentError):
        load_export(tmp_path / "numpy")


@pytest.mark.parametrize("form", ["numpy", "onnx"])
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("stack", 10**9),
        ("context.refine_steps", 10**18),
        ("context.encoder.steps", 10**12),
        ("context.uncertainty_scale", NAN),
    ],
)
def test_an_export_with_absurd_sizes_is_refused(
    tmp_path: Path, form: str, place: str, value: Any
) -> None:
    if form == "onnx":
        pytest.importorskip("onnx")
    export(make_agent("refined", stack=2), tmp_path / "out", form, observations=5)
    reseal(tmp_path / "out" / "manifest.json", lambda content: put(content, place, value))
    with pytest.raises(AgentError) as refused:
        load_export(tmp_path / "out")
    assert "memory" not in str(refused.value).lower() and "\n" not in str(refused.value)


@pytest.mark.parametrize("steps", [10**12, 0, -1, True, 2.0])
@pytest.mark.parametrize("method", ["sept-np", "dynasept", "history", "maml"])
def test_no_context_keeps_any_number_of_steps(tmp_path: Path, method: str, steps: Any) -> None:
    agent = make_agent("avg" if method == "maml" else method)
    if method == "maml":
        agent = replace(agent, context=AdaptedContext(2, 0.1, RewardForm(False, 1.0, None, 0.9)))
    save_agent(agent, tmp_path / "agent")
    place = "context.encoder.steps" if method in ("sept-np", "dynasept") else "context.steps"
    reseal(tmp_path / "agent" / "agent.json", lambda content: put(content, place, steps))
    with pytest.raises(AgentError):
        load_agent(tmp_path / "agent")


def probed(probe: Any) -> Agent:
    """An agent with this probe."""
    agent = make_agent("refined")
    context = agent.context
    assert hasattr(context, "encoder")
    parts = context.encoder, context.latent_scaler
    return replace(agent, context=SegmentContext(probe, *parts))


@pytest.mark.parametrize("actions", [0, 10**9, 10**18])
def test_a_probe_that_claims_many_actions_is_refused(tmp_path: Path, actions: int) -> None:
    save_agent(probed(UniformProbe(3)), tmp_path / "agent")
    reseal(
        tmp_path / "agent" / "agent.json",
        lambda content: put(content, "context.probe.num_actions", actions),
    )
    with pytest.raises(AgentError, match="num_actions"):
        load_agent(tmp_path / "agent")


def test_a_probe_without_a_row_is_refused() -> None:
    with pytest.raises(AgentError, match="one row of probabilities"):
        TableProbe(np.empty((0, 3)))


def test_settings_keep_to_what_an_agent_may_have() -> None:
    with pytest.raises(ConfigError, match="refine_steps"):
        LatentConfig(refine_steps=10**18)
    with pytest.raises(ConfigError, match="probe_steps"):
        FitConfig(probe_steps=10**9)


def test_a_small_graph_takes_little_memory(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    export(make_agent("avg"), tmp_path / "out", "onnx", observations=5)
    path = tmp_path / "out" / "control.onnx"
    model = onnx.load(path)
    shape = onnx.numpy_helper.from_array(np.array([3 * 10**8]), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.insert(0, onnx.helper.make_node("ConstantOfShape", ["shape"], ["huge"]))
    model.graph.node.insert(1, onnx.helper.make_node("ReduceMax", ["huge"], ["most"], keepdims=0))
    number = onnx.helper.make_tensor_value_info("most", onnx.TensorProto.FLOAT, [])
    model.graph.output.append(number)
    content = model.SerializeToString()
    path.write_bytes(content)

    def change(manifest: dict[str, Any]) -> None:
        manifest["files"]["control.onnx"] = hashlib.sha256(content).hexdigest()
        manifest["graphs"]["control"]["outputs"]["most"] = {"type": "float32", "shape": []}

    reseal(tmp_path / "out" / "manifest.json", change)
    with pytest.raises(AgentError, match="needs more memory"):
        load_export(tmp_path / "out")


@pytest.mark.parametrize("key", [b"\x0a\x08location", b"\x0a\x88\x00location"])
def test_a_graph_names_no_other_file_however_it_is_spelled(key: bytes) -> None:
    with pytest.raises(AgentError, match="another file"):
        refuse_external(b"\x70\x81\x00" + key, Path("control.onnx"))


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", ["logs.h5", "logs.parquet"])
def test_a_header_with_numbers_that_are_none_is_refused(
    tmp_path: Path, name: str, number: str
) -> None:
    from sept_offline.data.source import parse_header

    with so.DatasetWriter(tmp_path / name, num_actions=2, extra={"x": 123456}) as writer:
        writer.append(
            instance="a",
            observations=np.zeros((2, 1)),
            actions=[0],
            rewards=[0.0],
            terminated=True,
            truncated=False,
        )
    with so.load_dataset(tmp_path / name) as data:
        text = data._source.header.to_json()
    assert "123456" in text
    with pytest.raises(DataError, match="header"):
        parse_header(text.replace("123456", number), tmp_path / name)


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents of `bnn` and `dpt`, which learn in their episode."""
    folder = tmp_path_factory.mktemp("modelled")
    log(folder / "logs.h5")
    save_modelled(folder)
    return folder / "agents"


@pytest.mark.parametrize(
    ("method", "place", "value"),
    [
        ("dpt", "context.model.hidden", [10**9]),
        ("dpt", "context.model.hidden", [100_000, 100_000]),
        ("dpt", "context.model.dim", 10**18),
        ("dpt", "context.model.num_actions", 10**9),
        ("dpt", "context.settings.samples", 10**9),
        ("dpt", "context.settings.infer_steps", 10**9),
        ("bnn", "context.fiction.hidden", [10**12]),
        ("bnn", "context.plan.episodes", 10**12),
        ("bnn", "context.control.hidden", [10**9]),
        ("bnn", "context.control.members", 10**9),
        ("bnn", "context.control.critics", 2**31),
        ("bnn", "context.control.batch_size", 10**12),
    ],
)
def test_a_model_with_absurd_sizes_is_refused(
    modelled: Path, tmp_path: Path, method: str, place: str, value: Any
) -> None:
    shutil.copytree(modelled / method, tmp_path / "agent")
    load_agent(tmp_path / "agent").begin()
    reseal(tmp_path / "agent" / "agent.json", lambda content: put(content, place, value))
    with pytest.raises(SeptError):
        load_agent(tmp_path / "agent").begin()

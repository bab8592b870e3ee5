"""What is exported takes the same actions as the library, and what would not is not written."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import (
    AdaptedContext,
    Agent,
    Control,
    InstancePrior,
    NoContext,
    Novelty,
    SegmentContext,
    TableProbe,
    UniformBoxProbe,
    UniformProbe,
)
from sept_offline.agent.networks import MLP, Constrained
from sept_offline.agent.rewards import RewardForm
from sept_offline.errors import AgentError, ConfigError, DataError, SeptError
from sept_offline.seals import read_sealed, sealed_json
from sept_offline.tools.deploy import export, load_export
from sept_offline.tools.deploy.exports import SHIPPED
from sept_offline.tools.deploy.verification import made_up, recorded, verify
from tests.agent import builders

METHODS = ["sept", "lstm", "changes", "avg", "oracle", "history", "sept-np", "dynasept"]
METHODS += ["refined", "unprobed", "read-once", "pooled"]
FORMS = ["onnx", "numpy"]


def variant(name: str) -> Agent:
    """Agents with the parts that the small agents do not have by themselves."""
    agent, rng = builders.make_agent("sept", fallback=True), np.random.default_rng(1)
    if name == "imitated":
        parts = (builders.mlp(rng, [6, 24, 3], norm=True) for _ in range(2))
        return replace(agent, control=Control(agent.control.scaler, Constrained(*parts, 0.4)))
    if name == "tanh":
        layers = builders.mlp(rng, [6, 24, 3]).layers
        return replace(agent, control=Control(agent.control.scaler, MLP(layers, activation="tanh")))
    old = agent.context
    probe, measure = old.probe, old.novelty
    if name == "table":
        probe = TableProbe(np.array([[0.2, 0.3, 0.5], [1, 0, 0]]))
    if name == "uniform":
        probe = UniformProbe(3)
    if name == "prior":
        centres = rng.normal(size=(5, 2)).astype(np.float32)
        prior = InstancePrior(centres, np.full((5, 2), 0.3, np.float32))
        held_out = so.agent.segment_elbo(
            old.encoder, measure.decoder, *builders.segments(rng, 200), prior
        )
        measure = Novelty(measure.decoder, held_out, 0.3, prior)
    if name == "unmeasured":
        measure = None
    return replace(agent, context=SegmentContext(probe, old.encoder, old.latent_scaler, measure))


VARIANTS = ["imitated", "tanh", "table", "uniform", "prior", "unmeasured"]
STACKED = [f"{method} stacked" for method in METHODS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [*METHODS, *VARIANTS, *STACKED])
def test_the_same_actions_for_every_kind_of_agent(kind: str, form: str, tmp_path: Path) -> None:
    if kind in VARIANTS:
        agent = variant(kind)
    else:
        agent = builders.make_agent(
            kind.removesuffix(" stacked"), stack=3 if kind in STACKED else 1
        )
    # novelty is rare
    count = 200 if kind == "prior" else 46
    done = export(agent, tmp_path / "out", form, observations=count)
    assert done.verified.observations == count and done.verified.ties == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read_sealed(tmp_path / "out" / "manifest.json", AgentError) == done.manifest
    # novelty decides in some episodes who acts: both must be seen where `prior` measures it
    exported = load_export(tmp_path / "out")
    flags = []
    for recording in made_up(agent, count):
        ours = agent.begin(recording.seed, recording.hidden)
        theirs = exported.begin(recording.seed, recording.hidden)
        for row in 3 * recording.observations:
            assert ours.phase == theirs.phase
            assert ours.act(row) == theirs.act(row)
            assert ours.flagged == theirs.flagged
            for name in ("latent", "uncertainty", "novelty"):
                one, other = getattr(ours, name), getattr(theirs, name)
                assert (one is None) == (other is None)
                if one is not None:
                    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
        flags.append(ours.flagged)
    if kind == "prior":
        assert any(flags)


BOXES = ["sept", "lstm", "avg", "oracle", "history", "sept-np", "dynasept", "refined", "unprobed"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [*BOXES, "uniform", "refined stacked", "sept stacked"])
def test_the_same_actions_in_a_box(kind: str, form: str, tmp_path: Path) -> None:
    method, box = kind.removesuffix(" stacked"), builders.BOX
    stack = 3 if kind.endswith("stacked") else 1
    whole = "sept" if kind == "uniform" else method
    agent = builders.make_agent(whole, fallback=True, stack=stack, space=box)
    if kind == "uniform":
        old = agent.context
        parts = old.encoder, old.latent_scaler, old.novelty
        agent = replace(agent, context=SegmentContext(UniformBoxProbe(2), *parts))
    done = export(agent, tmp_path / "out", form, observations=60)
    assert done.verified.observations == 60 and done.verified.ties == 0
    assert done.verified.apart is not None and done.verified.apart < 1e-6
    assert done.manifest["action_space"] == box.describe()
    assert done.manifest["verified"]["apart"] == done.verified.apart
    # what was compared is not always the same action
    exported = load_export(tmp_path / "out")
    found = []
    for recording in made_up(agent, 60):
        episode = exported.begin(recording.seed, recording.hidden)
        found += [episode.act(row) for row in recording.observations]
        with pytest.raises(AgentError, match="leave an action"):
            episode.act(recording.observations[0], bounds=([1.0, 0.3], [0.0, 0.2]))
        with pytest.raises(AgentError, match="not a mask"):
            episode.act(recording.observations[0], mask=[True, False])
    actions = np.array(found)
    assert actions.dtype == np.float32 and not box.outside(actions).any()
    assert (actions.std(axis=0) > 0.02).all()


def test_more_observations_in_a_box(tmp_path: Path) -> None:
    agent = builders.make_agent("refined", fallback=True, space=builders.BOX)
    for form, count in (("onnx", 600), ("numpy", 300)):
        done = export(agent, tmp_path / form, form, observations=count)
        assert done.verified.observations == count
        assert done.verified.apart is not None and done.verified.apart < 1e-6


def test_an_export_whose_bounds_are_damaged_is_refused(tmp_path: Path) -> None:
    agent = builders.make_agent("avg", space=builders.BOX)
    for form in FORMS:
        place = export(agent, tmp_path / form, form, observations=20).path
        manifest = read_sealed(place / "manifest.json", AgentError)
        for wrong in ({"low": [3.0, 0.0]}, {"high": "far"}, {"kind": "ball"}, {"names": ["a"]}):
            changed = {**manifest, "action_space": manifest["action_space"] | wrong}
            (place / "manifest.json").write_text(sealed_json(changed))
            with pytest.raises(AgentError):
                load_export(place)


def test_recorded_observations(fitted: Path, tmp_path: Path) -> None:
    assert inspect.signature(so.export).parameters["observations"].default == 10_000
    agent, data = so.load_agent(fitted / "runs" / "nav"), so.load_dataset(fitted / "nav.h5")
    counts = {"onnx": 2_000, "numpy": 1_000}
    for form in FORMS:
        done = so.export(fitted / "runs" / "nav", tmp_path / form, form, data, counts[form])
        assert done.manifest["verified"] == {
            "observations": counts[form],
            "episodes": done.verified.episodes,
            "ties": 0,
            "against": data.content_hash,
        }
    taken: dict[str, list[int]] = {"library": [], "onnx": [], "numpy": []}
    agents: dict[str, Any] = {form: load_export(tmp_path / form) for form in FORMS}
    for name, one in [("library", agent), *agents.items()]:
        for recording in recorded(agent, data, 1_000, seed=1):
            episode = one.begin(recording.seed)
            taken[name] += [episode.act(row) for row in recording.observations]
    assert len(taken["library"]) == 1_000
    assert taken["library"] == taken["onnx"] == taken["numpy"]
    assert len(set(taken["library"])) > 1


@pytest.mark.parametrize("form", FORMS)
def test_an_export_that_acts_otherwise_is_not_written(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = builders.make_agent("sept")
    first = export(agent, tmp_path / "out", form, observations=100)
    other = builders.make_agent("sept", seed=1)
    with pytest.raises(AgentError, match="would take action"):
        verify(other, load_export(first.path), made_up(other, 200))
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    # from here on another agent's parts are written under this agent's name
    module = sys.modules["sept_offline.tools.deploy.exports"]
    name = f"_{form}"
    write = getattr(module, name)
    monkeypatch.setattr(module, name, lambda _: write(other))
    with pytest.raises(AgentError, match="nothing is written"):
        export(agent, tmp_path / "out", form, observations=200)
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_changed_latent_alone_is_found(tmp_path: Path) -> None:
    agent = builders.make_agent("sept")
    export(agent, tmp_path / "out", "numpy", observations=100)
    exported = load_export(tmp_path / "out")
    exported.agent.context.encoder.network.layers[1][1][:2] += 0.01
    # a control that never looks: no action tells
    constant = MLP([(np.zeros((3, 6)), np.array([0.0, 1.0, 0.0]))])
    blind = replace(agent, control=Control(agent.control.scaler, constant))
    exported.agent = replace(exported.agent, control=blind.control)
    with pytest.raises(AgentError, match="a different latent"):
        verify(blind, exported, made_up(blind, 200))


def test_equal_actions_are_counted_not_refused(tmp_path: Path) -> None:
    agent = builders.make_agent("avg")
    row = np.random.default_rng(0).normal(size=(1, 4))
    network = MLP([(np.repeat(row, 3, axis=0), np.zeros(3))])
    level = replace(agent, control=Control(agent.control.scaler, network))
    export(level, tmp_path / "out", "numpy", observations=40)
    exported = load_export(tmp_path / "out")
    exported.agent.control.network.layers[0][1][2] += np.float32(1e-6)
    found = verify(level, exported, made_up(level, 100))
    # the third of three equal actions, where it is not masked, in every episode's first step
    assert found.ties == found.episodes > 3


@pytest.mark.parametrize("form", FORMS)
def test_same_agent_same_bytes(form: str, tmp_path: Path) -> None:
    agent = builders.make_agent("sept", fallback=True)
    for name in ("a", "b", "a"):
        export(agent, tmp_path / name, form, observations=50)
    files = sorted(
        str(path.relative_to(tmp_path / "a"))
        for path in (tmp_path / "a").rglob("*")
        if path.is_file()
    )
    expected = {
        "onnx": ["control.onnx", "encoder.onnx", "fallback.onnx", "manifest.json", "probe.onnx"],
        "numpy": ["manifest.json", *sorted(SHIPPED), "runtime.py", "weights.npz"],
    }
    assert files == expected[form]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_graphs_take_many_rows_and_say_what_they_take(tmp_path: Path) -> None:
    import onnxruntime

    agent = builders.make_agent("sept", fallback=True)
    done = export(agent, tmp_path / "agent.onnx", observations=100)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(50, 4)).astype(np.float32)
    context = rng.normal(size=(50, 2)).astype(np.float32)
    mask = rng.random((50, 3)) < 0.6
    mask[:, 1] |= ~mask.any(axis=1)
    given = {"observation": rows, "context": context, "mask": mask}
    described = done.manifest["graphs"]["control"]
    assert {name: [x["type"], x["shape"]] for name, x in described["inputs"].items()} == {
        "observation": ["float32", ["n", 4]],
        "context": ["float32", ["n", 2]],
        "mask": ["bool", ["n", 3]],
    }
    session = onnxruntime.InferenceSession(tmp_path / "agent.onnx" / described["file"])
    values, actions = session.run(list(described["outputs"]), given)
    inputs = np.concatenate([agent.control.scaler(rows), context], axis=1)
    np.testing.assert_allclose(values, agent.control.values(inputs), rtol=1e-4, atol=1e-5)
    assert (actions == agent.control.greedy(inputs, mask)).all()
    assert mask[np.arange(50), actions].all()


BARE = """
import importlib.abc, sys
import numpy as np, numpy.random

class OnlyNumPy(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        first = name.split(".")[0]
        if first not in {"numpy", "runtime", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"{name} is hidden")

sys.meta_path.insert(0, OnlyNumPy())
before = set(sys.modules)
"""


def run_alone(folder: Path, code: str) -> list[Any]:
    """What `code` prints in an interpreter in which NumPy is the only package."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", BARE + code],
        cwd=folder,
        env={"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [ast.literal_eval(line) for line in done.stdout.splitlines()]


def imported_at_once(source: str) -> set[str]:
    """The packages that a module imports when it is imported itself; its own are left out."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found


def test_the_runtime_is_the_library_itself_and_needs_numpy_alone(tmp_path: Path) -> None:
    agent = builders.make_agent("sept", fallback=True)
    export(agent, tmp_path / "out", "numpy", observations=50)
    library = Path(so.__file__).parent
    sources = {"runtime.py": "tools/deploy/runtime"} | SHIPPED
    others = set()
    for file, name in sources.items():
        source = (tmp_path / "out" / file).read_text(encoding="utf-8")
        assert source == (library / f"{name}.py").read_text(encoding="utf-8")
        assert "from sept_offline" not in source and "import sept_offline" not in source
        others |= imported_at_once(source) - set(sys.stdlib_module_names)
    assert others == {"numpy"}
    rows = np.random.default_rng(3).normal(size=(12, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    actions, modules = run_alone(
        tmp_path / "out",
        "from runtime import load\n"
        "episode = load('.').begin(seed=5)\n"
        "print([episode.act(row) for row in np.load('../rows.npy')])\n"
        "print(sorted(set(sys.modules) - before))\n",
    )
    episode = agent.begin(seed=5)
    assert actions == [episode.act(row) for row in rows]
    packages = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names)
    assert packages == {"runtime", "numpy"}, "the runtime loaded more than NumPy"
    # nothing is shipped that no agent needs
    used = {name.removeprefix("runtime.").replace(".", "/") for name in modules}
    assert {name.removesuffix("/__init__") for name in SHIPPED.values()} <= used


def test_every_kind_of_agent_acts_on_numpy_alone(tmp_path: Path) -> None:
    """All in one interpreter, by the runtime of the first: it is the same file in every export."""
    code, expected = "from runtime import load\n", []
    for kind in METHODS:
        agent = builders.make_agent(kind)
        export(agent, tmp_path / kind, "numpy", observations=50)
        recording = next(made_up(agent, 23, seed=2))
        np.save(tmp_path / f"{kind}.npy", recording.observations)
        code += (
            f"episode = load('../{kind}').begin({recording.seed}, {recording.hidden})\n"
            f"print([episode.act(row) for row in np.load('../{kind}.npy')])\n"
        )
        episode = agent.begin(recording.seed, recording.hidden)
        expected.append([episode.act(row) for row in recording.observations])
    assert run_alone(tmp_path / METHODS[0], code) == expected


def own_runtime(folder: Path, name: str) -> Any:
    """The runtime that lies in an export, imported under another name."""
    spec = importlib.util.spec_from_file_location(name, folder / "runtime.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_runtime_without_its_modules_says_so(tmp_path: Path) -> None:
    export(builders.make_agent("avg"), tmp_path / "out", "numpy", observations=50)
    shutil.rmtree(tmp_path / "out" / "modules")
    with pytest.raises(ImportError, match="copy the whole folder"):
        own_runtime(tmp_path / "out", "runtime_without_modules")


def test_an_export_of_other_modules_is_replaced(tmp_path: Path) -> None:
    agent, out = builders.make_agent("avg"), tmp_path / "out"
    export(agent, out, "numpy", observations=50)
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "modules" / "agent" / "reading.py").write_text("old = True\n")
    listed = hashlib.sha256(b"old = True\n").hexdigest()
    manifest["files"]["modules/agent/reading.py"] = listed
    del manifest["checksum"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    export(agent, out, "numpy", observations=50)
    assert not (out / "modules" / "agent" / "reading.py").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    # one that the manifest does not list, or lists otherwise, is the user's
    (out / "modules" / "agent" / "reading.py").write_text("mine = True\n")
    with pytest.raises(ConfigError, match=r"reading\.py"):
        export(agent, out, "numpy", observations=50)


def test_an_impossible_number_of_observations_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="observations is 0"):
        export(builders.make_agent("avg"), tmp_path / "out", observations=0)


def test_a_limit_that_cannot_be_read_is_an_error_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(builders.make_agent("avg"), tmp_path / "out", "numpy", observations=50)
    runtime = own_runtime(tmp_path / "out", "runtime_with_a_limit")
    monkeypatch.setenv("SEPT_OFFLINE_LIMIT_MB", "abc")
    with pytest.raises(runtime.AgentError, match="SEPT_OFFLINE_LIMIT_MB"):
        runtime.load(tmp_path / "out")


def test_the_runtime_checks_what_it_is_given(tmp_path: Path) -> None:
    agent = builders.make_agent("sept")
    export(agent, tmp_path / "out", "numpy", observations=50)
    runtime = own_runtime(tmp_path / "out", "runtime_that_checks")
    episode = runtime.load(tmp_path / "out").begin()
    for observation in (np.zeros(3), [0, 0, np.nan, 0], "abc", [0, 0, 0, "x"], [[0], 0, 0, 0], {}):
        with pytest.raises(runtime.AgentError):
            episode.act(observation)
    for mask in ([True, True], [False] * 3, [0.5, 1.0, 1.0], [2, 0, 0], "abc", [[True], 1, 0]):
        with pytest.raises(runtime.AgentError):
            episode.act(np.zeros(4), mask)
    assert episode.steps == 0 and issubclass(runtime.AgentError, ValueError)
    hosted = load_export(export(agent, tmp_path / "graphs", observations=50).path).begin()
    for observation in (np.zeros(3), [0, 0, np.nan, 0], "abc", [[0], 0, 0, 0]):
        with pytest.raises(AgentError):
            hosted.act(observation)
    for mask in ([True, True], [False] * 3, [[True], 1, 0]):
        with pytest.raises(AgentError):
            hosted.act(np.zeros(4), mask)
    assert hosted.steps == 0
    episode.act([0, 1e6, 0, 0])
    assert episode.out_of_range == ("observation_1",)
    with pytest.raises(runtime.AgentError, match="did not declare that it needs 'hidden'"):
        runtime.load(tmp_path / "out").begin(hidden={"mass": 1.0})
    weights = tmp_path / "out" / "weights.npz"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(runtime.AgentError, match="checksum"):
        runtime.load(tmp_path / "out")


@pytest.mark.parametrize("wrong", ["abc", None, [1.0, 2.0], np.nan])
def test_the_runtime_takes_hidden_parameters_that_are_numbers(
    wrong: object, tmp_path: Path
) -> None:
    agent = builders.make_agent("oracle")
    export(agent, tmp_path / "out", "numpy", observations=50)
    runtime = own_runtime(tmp_path / "out", "runtime_of_an_oracle")
    own = runtime.load(tmp_path / "out")
    hidden: dict[str, Any] = dict.fromkeys(agent.context.names, 0.5)
    own.begin(hidden=hidden)
    with pytest.raises(runtime.AgentError, match=r"hidden|Hidden"):
        own.begin(hidden=hidden | {agent.context.names[0]: wrong})


def test_graphs_are_given_the_hidden_parameters_by_name(tmp_path: Path) -> None:
    agent = builders.make_agent("oracle")
    hosted = load_export(export(agent, tmp_path / "out", observations=50).path)
    names = agent.context.names
    hosted.begin(hidden=dict.fromkeys(names, 0.5))
    for wrong in (
        {},
        dict.fromkeys((*names, "more"), 0.5),
        dict.fromkeys(names[1:], 0.5),
        dict.fromkeys(names, np.nan),
        dict.fromkeys(names, "abc"),
        dict.fromkeys(names, (1.0, 2.0)),
    ):
        with pytest.raises(AgentError, match=r"hidden|Hidden"):
            hosted.begin(hidden=wrong)


def test_an_export_that_cannot_be_put_in_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, target, rename = builders.make_agent("avg"), tmp_path / "out", Path.rename
    before = export(agent, target, "numpy", observations=50).manifest
    refused: list[Path] = []

    def once(self: Path, place: Path) -> Path:
        if place == target and not refused:
            refused.append(self)
            raise OSError("the disk is gone")
        return rename(self, place)

    monkeypatch.setattr(Path, "rename", once)
    monkeypatch.setattr("sept_offline.files._exchange", lambda *_: False)
    with pytest.raises(DataError, match="the disk is gone"):
        export(agent, target, "numpy", observations=60)
    assert refused and [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read_sealed(target / "manifest.json", AgentError) == before


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    export(builders.make_agent("sept"), tmp_path / "out", observations=50)
    path = tmp_path / "out" / "probe.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(AgentError, match="checksum"):
        load_export(tmp_path / "out")


@pytest.mark.parametrize("form", FORMS)
def test_agents_that_learn_in_their_episode_are_refused(form: str, tmp_path: Path) -> None:
    agent = builders.make_agent("avg")
    form_of = RewardForm(log=False, scale=1.0, goal=None, gamma=0.9)
    maml = replace(agent, method="maml", context=AdaptedContext(2, 0.1, form_of))

    class Belief(NoContext):
        """Stands for any context that this version does not know as a forward pass."""

    belief = Belief()
    belief.learns = True
    for learner in (maml, replace(agent, context=belief)):
        with pytest.raises(AgentError, match="cannot be exported"):
            export(learner, tmp_path / "out", form)
    assert not list(tmp_path.iterdir())


def test_nothing_else_is_overwritten(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = builders.make_agent("avg")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    (tmp_path / "file.onnx").write_text("also mine")
    for place in ("mine", "file.onnx"):
        with pytest.raises(ConfigError, match="is not an export"):
            export(agent, tmp_path / place)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    wrong: list[dict[str, Any]] = [
        {"form": "pickle"},
        {"observations": 0},
        {"verify_on": fitted / "nav.h5"},
    ]
    for options in wrong:
        with pytest.raises(SeptError):
            export(agent, tmp_path / "out", **options)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"sept-offline\[onnx\]"):
        export(agent, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.onnx", "mine"]

"""What `fit` promises beyond learning: novelty, refusals, estimated behaviours, algorithms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from benchmarks.novelty import flagged
from sept_offline.agent import Agent
from sept_offline.agent.contexts import RefinedContext, SegmentContext
from sept_offline.cli import main
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.errors import ConfigError, DataError, TrainingError
from sept_offline.latent.identification import linear
from sept_offline.methods import rehearsal
from sept_offline.methods.hold_out import unfitted_episodes
from sept_offline.methods.knowledge import learn_jointly
from sept_offline.methods.preset import preset_values, resolve_config
from sept_offline.methods.run import read_record
from sept_offline.seals import write_json
from sept_offline.settings import FitConfig, build, merge
from sept_offline.stage import train_all
from simulators.families import acrobot, navigation2d
from tests.margins import Margins
from tests.methods.navigation import SMALL, log_navigation

QUICK = merge(SMALL, {"held_out": 0.3, "control": {"updates": 40, "hidden": [16]}})
"""The latent and the probe of the learning test; control is not looked at here."""
TINY = merge(QUICK, {"latent": {"updates": 20}, "probe": {"steps": 5}})
CHOSEN: dict[str, Any] = {"control": {"algorithm": "double_dqn"}}
"""Set, so that no behaviour is estimated to choose it, as test_choices.py does."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_navigation(tmp_path_factory.mktemp("fit") / "navigation.h5", episodes=400)


@pytest.fixture(scope="module")
def data(path: Path) -> Dataset:
    return so.load_dataset(path)


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """As many steps in more episodes: what is rare in first steps takes many of them."""
    path = tmp_path_factory.mktemp("fit") / "starts.h5"
    return so.load_dataset(log_navigation(path, episodes=3600, limit=8))


@pytest.fixture(scope="module")
def agent(starts: Dataset, training_seed: int) -> Agent:
    settings = merge(QUICK, {"latent": {"updates": 600}})
    return so.fit(starts, "sept", settings, seed=training_seed)


def fresh_navigation(agent: Agent, episodes: int, turn: int) -> float:
    shares = [
        flagged(agent, navigation2d.make(hidden), turn, episodes // 2)
        for hidden in navigation2d.instances()
    ]
    return float(np.mean(shares))


def test_known_instances_are_not_flagged(agent: Agent, margin: Margins) -> None:
    margin("flagged", fresh_navigation(agent, 400, turn=0), at_most=0.05)


def test_control_reads_the_latent_within_the_range_of_two_instances(agent: Agent) -> None:
    context = agent.context
    assert isinstance(context, RefinedContext | SegmentContext)
    scaler, far = context.latent_scaler, np.full(context.dim, 1e6)
    assert scaler.limits is not None
    np.testing.assert_array_equal(scaler(np.stack([-far, far])), scaler.limits)
    # the prior's mean, with which an episode starts, is in the range
    start = (0 - scaler.mean) * scaler.inverse
    np.testing.assert_array_equal(scaler(np.zeros(context.dim)), start)


def test_a_navigation_turned_by_a_right_angle_is_flagged(agent: Agent, margin: Margins) -> None:
    margin("flagged", fresh_navigation(agent, 200, turn=1), at_least=0.9)


@pytest.mark.long
def test_known_navigation_is_flagged_about_once_in_a_hundred(
    tmp_path_factory: pytest.TempPathFactory, training_seed: int, margin: Margins
) -> None:
    path = log_navigation(tmp_path_factory.mktemp("novelty") / "many.h5", episodes=6000)
    agent = so.fit(path, "sept", QUICK, seed=training_seed)
    margin("flagged, turned", fresh_navigation(agent, 2_000, turn=1), at_least=0.9)
    known = fresh_navigation(agent, 10_000, turn=0)
    margin("flagged, known", known, at_least=0.003, at_most=0.03)


@pytest.mark.long
def test_a_strange_acrobot_is_flagged(tmp_path: Path, training_seed: int, margin: Margins) -> None:
    data = so.collect_dataset(
        "acrobot", tmp_path / "acrobot.h5", overrides={"behaviour": "random", "episodes": 2000}
    )
    # a verdict on a control that hardly learned could leave the agent without a latent
    untrained = {"verdict": False, "control": {"updates": 40, "hidden": [16]}}
    settings = {"held_out": 0.3, "probe": {"use": "always"}, **untrained}
    agent = so.fit(data, "sept", settings, seed=training_seed)
    shares = [
        flagged(agent, acrobot.make(hidden), episodes=1000) for hidden in acrobot.instances("train")
    ]
    margin("flagged, known", float(np.mean(shares)), at_least=0.003, at_most=0.03)
    names = acrobot.instances("train")[0]
    for delta in (-0.8, 0.8):
        strange = acrobot.make(dict.fromkeys(names, delta))
        margin(f"flagged, {delta}", flagged(agent, strange, episodes=300), at_least=0.9)


def test_a_latent_that_is_read_once_comes_from_the_first_steps_only(data: Dataset) -> None:
    """Whatever follows the probe, also steps of other episodes, the latent stays."""
    agent = so.fit(data, "sept", merge(TINY, {"latent": {"refine": False}}), seed=0)
    assert isinstance(agent.context, SegmentContext)
    rng = np.random.default_rng(0)
    logged = [e for e in data.episodes("train-0") if len(e.actions) > 5][:20]
    for number, own in enumerate(logged):
        other = logged[rng.integers(len(logged))]
        latents = []
        for later in (own, other):
            episode = agent.begin(seed=number)
            for observation in own.observations[: agent.probe_steps + 1]:
                episode.act(observation)
            for observation in rng.permutation(later.observations[agent.probe_steps + 1 :]):
                episode.act(observation)
            latents.append(episode.latent)
        assert np.array_equal(*latents)


def test_the_latent_does_not_tell_who_acted(agent: Agent, starts: Dataset, margin: Margins) -> None:
    assert isinstance(agent.context, RefinedContext)
    segments = starts.segments(1)
    taken = agent.spaces.actions.encode(segments.actions)
    latent, _ = agent.context.encoder.encode(segments.observations, taken)
    names = np.array(starts.metadata.behaviours)
    behaviour = names[starts.episode_index.behaviour][segments.episode]
    for instance in range(2):
        own = np.flatnonzero((segments.instance == instance) & (behaviour != "wall"))
        labels = (behaviour[own] == "way").astype(np.int64)
        order = np.random.default_rng(instance).permutation(len(own))
        fitted, asked = np.array_split(order, 2)
        guessed = linear(latent[own[fitted]], labels[fitted], latent[own[asked]])
        right = (guessed == labels[asked]).mean()
        margin(f"from chance, instance {instance}", abs(right - 0.5), below=0.13)


def test_logs_without_probabilities(
    agent: Agent, data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    probing = merge(TINY, {"probe": {"use": "always"}}, CHOSEN)
    few_episodes = data.select(np.arange(0, 400, 4))
    estimated = so.fit(few_episodes.without_propensities(), "sept", probing, seed=0)
    assert estimated.record["behaviour_estimated"] is True
    assert agent.record["behaviour_estimated"] is False

    bare = tmp_path / "bare.h5"
    with DatasetWriter(bare, num_actions=4, probe_steps=1, observation_dim=2) as writer:
        for e in list(data.episodes())[::4]:
            writer.append(
                instance=e.instance,
                observations=e.observations,
                actions=e.actions,
                rewards=e.rewards,
                terminated=e.terminated,
                truncated=e.truncated,
            )
    few = [
        "verdict=false",
        "latent.updates=10",
        "probe.steps=5",
        "probe.use=always",
        "control.algorithm=double_dqn",
        "control.updates=20",
        "control.hidden=[16]",
    ]
    code, out, _ = command(capsys, bare, tmp_path / "run", few, "--json")
    assert code == 0
    assert json.loads(out)["record"]["behaviour_estimated"] is True


@pytest.mark.parametrize("algorithm", ["double_dqn", "discrete_cql", "discrete_bcq", "nfq"])
def test_every_control_algorithm_fits_and_acts(
    algorithm: str, data: Dataset, tmp_path: Path
) -> None:
    chosen = merge(TINY, {"control": {"algorithm": algorithm}})
    so.fit(data.select(np.arange(0, 400, 4)), "sept", chosen, seed=0, out=tmp_path / "run")
    agent = so.load_agent(tmp_path / "run")
    results = so.evaluate(agent, "navigation2d", max_steps=5)
    assert all(0 <= action < 4 for episode in results.episodes for action in episode.actions)
    assert (tmp_path / "run" / "run.json").read_text().count(f'"{algorithm}"') == 1


@pytest.mark.parametrize("family", ["navigation2d", "acrobot", "hiv", None])
def test_the_preset_segment_is_the_papers_stages_with_the_defaults_control(
    family: str | None,
) -> None:
    segment, default = (
        build(FitConfig, {"probe_steps": 3} | preset_values(family, preset))
        for preset in ("segment", "default")
    )
    assert segment.latent.objective == "segment" and segment.latent.changes
    assert segment.probe.reward == "elbo" and 0 < segment.probe.warmup < segment.latent.updates
    assert segment.control == replace(default.control, algorithm="double_dqn")
    assert not segment.latent.refine
    paper = build(FitConfig, {"probe_steps": 3} | preset_values(family, "paper"))
    assert not paper.latent.changes and paper.probe.warmup == 0 and not paper.control.average_decay


def test_the_preset_segment_reads_the_first_steps_once(data: Dataset, tmp_path: Path) -> None:
    quick = {"latent": {"updates": 12}, "probe": {"warmup": 6}, "control": {"updates": 40}}
    chosen = merge(quick, {"verdict": False, "control": {"hidden": [16, 16]}, "probe_steps": 2})
    agent = so.fit(data, "sept", chosen, preset="segment", out=tmp_path / "run")
    assert isinstance(agent.context, SegmentContext) and agent.probe_steps == 2
    rows = np.random.default_rng(0).random((8, 2)).astype(np.float32)
    other = rows.copy()
    other[3:] = rows[3:][::-1]
    latents = []
    for seen in (rows, other):
        episode = agent.begin(seed=3)
        for row in seen:
            episode.act(row)
        latents.append(episode.latent)
    np.testing.assert_array_equal(*latents)
    for form in ("onnx", "numpy"):
        done = so.export(tmp_path / "run", tmp_path / form, form, verify_on=data, observations=300)
        assert done.manifest["verified"]["observations"] == 300
        assert done.manifest["verified"]["ties"] == 0


def test_fresh_segments_are_weighed_by_the_probe_as_the_others_are(data: Dataset) -> None:
    quick = {"latent": {"updates": 12}, "probe": {"warmup": 2, "learning_rate": 0.05}}
    config = resolve_config(data, "segment", quick)
    segments = data.segments(config.probe_steps)
    unfitted = unfitted_episodes(data, config.held_out, 0)
    fresh = np.isin(segments.episode, data.episode_index.number[unfitted])
    known = train_all(learn_jointly(data.select(~unfitted), segments, fresh, config, 0))
    assert not known.weights[fresh].any() and known.likely[fresh].all()
    for code in np.unique(segments.instance):
        own = ~fresh & (segments.instance == code)
        one, other = (part[own] / part[own].sum() for part in (known.weights, known.likely))
        np.testing.assert_allclose(one, other, rtol=1e-3)
        assert one.max() > 1.1 * one.min()


def test_an_unknown_name_gets_a_suggestion(data: Dataset) -> None:
    with pytest.raises(ConfigError, match="did you mean 'sept'"):
        so.fit(data, "spet")
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        so.fit(data, "sept", preset="papre")


def command(
    capsys: pytest.CaptureFixture[str], data: Path, out: Path, settings: list[str], *more: str
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `sept-offline fit`."""
    chosen = [part for setting in settings for part in ("--set", setting)]
    with pytest.raises(SystemExit) as end:
        main(["fit", str(data), "-o", str(out), "--quiet", *chosen, *more])
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def written(
    path: Path,
    instances: int = 2,
    length: int = 4,
    actions: int = 3,
    probe_steps: int | None = 2,
) -> Path:
    """Small random logs with three actions, of which the first `actions` are ever taken."""
    rng = np.random.default_rng(0)
    with DatasetWriter(path, num_actions=3, probe_steps=probe_steps) as writer:
        for number in range(20):
            writer.append(
                instance=f"pump-{number % instances}",
                observations=rng.normal(size=(length + 1, 2)).astype(np.float32),
                actions=np.arange(length) % actions,
                rewards=rng.normal(size=length),
                terminated=False,
                truncated=True,
            )
    return path


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ({"instances": 1}, "holds 1 instance; at least 2 are needed"),
        ({"actions": 1}, "only action 0 was ever logged"),
        ({"actions": 2}, "action 2 of the 3 actions, counted from 0, was never logged"),
    ],
)
def test_data_nobody_can_learn_from(
    shape: dict[str, int], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "pumps.h5", **shape)
    code, _, said = command(capsys, data, tmp_path / "run", [])
    assert code == 2
    assert sentence in said and str(data) in said
    assert said.count("\n") == 1 and "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "more", "sentence"),
    [
        (["control.batchsize=3"], [], "did you mean"),
        (["control.batch_size=many"], [], "control.batch_size"),
        (["held_out=0.9"], [], "held_out is 0.9"),
        ([], ["--method", "spet"], "did you mean 'sept'"),
        ([], ["--preset", "papre"], "did you mean 'paper'"),
        ([], ["--control", "doubledqn"], "did you mean 'double_dqn'"),
    ],
)
def test_settings_that_do_not_exist(
    settings: list[str],
    more: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = written(tmp_path / "pumps.h5")
    code, _, said = command(capsys, data, tmp_path / "run", settings, *more)
    assert code == 2
    assert sentence in said and "Traceback" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("shape", "more", "sentence"),
    [
        ({}, "--method oracle", "hidden parameters"),
        ({}, "--method bnn --set dynamics.angles=['heading']", "dynamics.angles names 'heading'"),
        ({"instances": 20}, "--method maml --set probe_steps=4", "log more episodes"),
        ({"instances": 10}, "--hold-out 0.95", "leaves 0"),
        ({"instances": 9}, "--method sept --set probe_steps=5", "probe_steps=4."),
    ],
)
def test_what_is_refused_is_refused_before_the_run_begins(
    shape: dict[str, int],
    more: str,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = written(tmp_path / "pumps.h5", **shape)
    code, _, said = command(capsys, data, tmp_path / "run", [], *more.split())
    assert code == 2 and sentence in said, said
    assert not (tmp_path / "run").exists()


def test_a_refused_restart_leaves_the_run_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = written(tmp_path / "pumps.h5"), tmp_path / "run"
    few = ["verdict=false", "control.updates=5", "control.hidden=[16]"]
    assert command(capsys, data, run, few, "--method", "avg")[0] == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, _, said = command(capsys, data, run, few, "--method", "oracle", "--restart")
    assert code == 2 and "hidden parameters" in said
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert command(capsys, data, run, few, "--method", "avg", "--restart")[0] == 0


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        (["--method", "septt"], "'sept'"),
        (["--set", "control.update=3"], "'updates'"),
        (["--set", "control.updates=many"], "control.updates"),
        (["--set", "held_out=0.9"], "held_out is 0.9"),
    ],
)
def test_a_missing_probe_length_hides_no_mistyped_name(
    mistyped: list[str], meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "pumps.h5", probe_steps=None)
    code, _, said = command(capsys, data, tmp_path / "run", [], *mistyped)
    assert code == 2 and meant in said and "probe" not in said


def test_a_missing_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = command(capsys, tmp_path / "none.h5", tmp_path / "run", [])
    assert code == 2
    assert "none.h5" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("control.learning_rate=1e30", ("control stage", "update", "control.learning_rate")),
        ("latent.learning_rate=1e30", ("latent stage", "update", "latent.learning_rate")),
    ],
)
def test_a_loss_that_is_not_finite_stops_with_stage_step_and_cause(
    setting: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path / "pumps.h5")
    few = [
        "verdict=false",
        "latent.updates=40",
        "probe.steps=5",
        "control.updates=200",
        "control.hidden=[16]",
    ]
    code, _, said = command(capsys, data, tmp_path / "run", [*few, setting])
    assert code == 1
    for word in words:
        assert word in said
    assert "Traceback" not in said


def test_enormous_rewards_are_named_as_the_cause(data: Dataset) -> None:
    huge = {"reward_form": "raw", "reward_scale": 3e35, "updates": 200, "goal_shift": None}
    with pytest.raises(TrainingError, match=r"control stage.*rewards as large as"):
        so.fit(data, "avg", merge(TINY, {"control": huge}))


def test_a_view_fits_like_the_same_episodes_in_a_file(data: Dataset, tmp_path: Path) -> None:
    """Episodes keep their numbers in a view: nothing may take them for positions."""
    keep = np.arange(data.num_episodes) % 3 == 1
    view = data.select(keep)
    path = tmp_path / "part.h5"
    with DatasetWriter(path, num_actions=4, family="navigation2d", probe_steps=2) as writer:
        for episode in view.episodes():
            writer.copy(episode)
    first, second = (so.fit(d, "sept", TINY, seed=0) for d in (view, so.load_dataset(path)))
    so.save_agent(first, tmp_path / "first")
    so.save_agent(second, tmp_path / "second")
    weights = [(tmp_path / n / "weights.safetensors").read_bytes() for n in ("first", "second")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("method", ["avg", "oracle"])
def test_a_fallback_that_could_never_act_is_refused(data: Dataset, method: str) -> None:
    with pytest.raises(ConfigError, match="fallback"):
        so.fit(data, method, merge(TINY, {"fallback": "avg"}), seed=0)


def test_few_updates_are_not_lost(data: Dataset) -> None:
    """Without an average the last weights act, also when their number is odd."""
    agents = [
        so.fit(data, "avg", merge(TINY, {"control": {"updates": n, "average_decay": 0.0}}), seed=0)
        for n in (1, 9)
    ]
    rows = data.steps().observations[:50]
    values = [agent.control.values(agent.control.scaler(rows)) for agent in agents]
    assert not np.allclose(*values)


# totalvar and maxent hold out by the same code as sept
@pytest.mark.parametrize(
    ("method", "hold_out"), [("sept", None), ("sept", 0.2), ("sept-np", None), ("sept-np", 0.2)]
)
def test_one_episode_of_each_instance_is_enough(
    method: str, hold_out: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can then be kept from the latent to judge it by, and nothing is said about it."""
    monkeypatch.setattr(rehearsal, "ROLLOUTS", 16)
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path / "one.h5", num_actions=2, probe_steps=2) as writer:
        for number in range(12):
            actions = rng.integers(2, size=6)
            writer.append(
                instance=f"patient {number}",
                observations=rng.normal(size=(7, 2)).astype(np.float32),
                actions=actions,
                rewards=rng.normal(size=6),
                terminated=False,
                truncated=True,
                propensities=np.full((6, 2), 0.5),
            )
    few = {
        "latent": {"updates": 2, "dim": 2},
        "probe": {"steps": 2},
        "control": {"updates": 2, "hidden": [8]},
    }
    run = tmp_path / "run"
    so.fit(tmp_path / "one.h5", method, few, out=run, hold_out=hold_out)
    record = so.load_agent(run).record
    assert "identification" not in record
    assert ("held_out" in record) == (hold_out is not None)


def test_a_run_is_not_resumed_with_other_episodes(data: Dataset, tmp_path: Path) -> None:
    """A view has the content hash of its whole file; the run says which part it has read."""
    even = data.select(np.arange(0, 400, 2))
    settings = merge(TINY, CHOSEN)
    so.fit(even, "avg", settings, out=tmp_path / "run")
    so.fit(even, "avg", settings, out=tmp_path / "run", resume=True)
    for other in (data.select(np.arange(1, 400, 2)), even.without_propensities()):
        with pytest.raises(DataError, match="other episodes of the logs"):
            so.fit(other, "avg", settings, out=tmp_path / "run", resume=True)


def test_a_run_with_a_removed_setting_is_resumed(data: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    so.fit(data, "avg", TINY, out=run)
    record = read_record(run)
    record["config"]["probe"]["progress_weight"] = 0.0
    write_json(run / "run.json", record)
    agent = so.fit(data, "avg", TINY, out=run, resume=True)
    assert agent.method == so.load_agent(run).method == "avg"
    record["config"]["probe"]["steps"] += 1
    write_json(run / "run.json", record)
    with pytest.raises(DataError, match="other settings"):
        so.fit(data, "avg", TINY, out=run, resume=True)

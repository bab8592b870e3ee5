"""Agents whose worth is known by hand, judged from random logs of the two-step family."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refused, run, run_json

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.agent import Agent, Control, HiddenContext, NoContext, Spaces, save_agent
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.errors import ConfigError, DataError
from sept_offline.methods.hold_out import choose_hold_out, in_ranges, to_ranges
from sept_offline.tools.ope.estimators import Evidence, Overlap, verdict
from tests.margins import Margins
from tests.methods.two_step import log_two_step

QUICK = so.OpeConfig(updates=120, hidden=(32,), replicates=300, learning_rate=1e-2)
HASTY = replace(QUICK, updates=10)
"""Where it does not matter how good the fitted Q is."""
FAR = {"fitted_on": {"content_hash": "other logs", "episodes": []}}
NAMES = {"fqe", "dm", "pdis", "wpdis", "dr", "wdr"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_two_step(tmp_path_factory.mktemp("judging") / "two.h5")


@pytest.fixture(scope="module")
def data(path: Path) -> Dataset:
    return so.load_dataset(path)


def spaces() -> Spaces:
    return Spaces(("face", "time"), Finite(("other", "same")), np.full(2, -1.0), np.full(2, 1.0))


def stubborn(action: int) -> Agent:
    """Takes one action, always: right in every second instance, worth 1/2."""
    bias = np.eye(2)[action]
    control = Control(Standardiser.identity(2), MLP([(np.zeros((2, 2)), bias)]))
    return Agent("stubborn", "two-step", spaces(), NoContext(), control, record=FAR)


def knowing() -> Agent:
    """Is given the mode and names it, worth 1."""
    weight = np.array([[0, 0, -1.0], [0, 0, 1.0]])
    control = Control(Standardiser.identity(2), MLP([(weight, np.zeros(2))]))
    context = HiddenContext(("mode",), Standardiser.identity(1))
    return Agent("knowing", "two-step", spaces(), context, control, record=FAR)


@pytest.mark.parametrize(("agent", "worth"), [(stubborn(1), 0.5), (knowing(), 1.0)])
def test_agents_of_known_worth(
    agent: Agent, worth: float, data: Dataset, training_seed: int, margin: Margins
) -> None:
    found = so.judge(agent, data, QUICK, seed=training_seed)
    assert set(found.estimators) == NAMES
    for name, estimate in found.estimators.items():
        margin(f"error of {name}", abs(estimate.mean - worth), below=0.15)
        assert estimate.low <= estimate.mean <= estimate.high
    for name in ("pdis", "dr", "wdr"):
        # a good Q leaves next to no spread, so that a miss by a hair is a miss by chance
        estimate = found.estimators[name]
        outside = max(estimate.low - worth, worth - estimate.high)
        margin(f"outside {name}", outside, at_most=0.02)
    assert found.verdict == "trust", found.reasons
    assert found.overlap.agreement == pytest.approx(0.5, abs=0.06)
    assert found.overlap.followed == pytest.approx(0.25, abs=0.06)
    # even coins: weights are 4 or 0, so their effective number is that of the followed episodes
    assert found.overlap.ess == pytest.approx(found.overlap.followed * 400, rel=0.02)
    assert (found.resampled, found.judged_on) == ("episodes", "other logs")
    assert found.logged_return == pytest.approx(0.5, abs=0.06)


def test_the_same_seed_says_the_same(data: Dataset) -> None:
    first, again, other = (
        json.dumps(so.judge(knowing(), data, HASTY, seed=seed).summary()) for seed in (3, 3, 4)
    )
    assert first == again != other


def test_estimated_probabilities_are_said_and_not_trusted(
    data: Dataset, training_seed: int, margin: Margins
) -> None:
    found = so.judge(stubborn(0), data.without_propensities(), HASTY, seed=training_seed)
    assert found.behaviour_estimated
    assert found.verdict != "trust"
    assert "the behaviour's probabilities are estimates" in found.reasons
    margin("error", abs(found.estimators["wpdis"].mean - 0.5), below=0.15)


def test_logs_that_never_do_what_the_agent_does_cover_nothing(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "one.h5", num_actions=2) as writer:
        for number in range(40):
            writer.append(
                instance=f"i{number % 2}",
                observations=np.random.default_rng(number).normal(size=(4, 2)),
                actions=np.zeros(3, dtype=int),
                rewards=np.arange(3.0),
                terminated=False,
                truncated=True,
                propensities=np.tile([1.0, 0.0], (3, 1)),
            )
    with so.load_dataset(tmp_path / "one.h5") as logs:
        found = so.judge(stubborn(1), logs, HASTY)
        assert found.verdict == "uncovered"
        assert found.overlap.support == found.overlap.ess == found.overlap.mean_weight == 0
        json.dumps(found.summary(), allow_nan=False)
        same = so.judge(stubborn(0), logs, HASTY)
        assert same.overlap.support == 1
        assert same.overlap.ess == pytest.approx(40)
        for name in ("pdis", "wpdis"):
            assert same.estimators[name].mean == pytest.approx(3.0)
        assert same.estimators["dr"].mean == pytest.approx(3.0, abs=1e-6)


def test_a_horizon_beyond_the_logs_is_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"no evaluation episode of .* has more than"):
        so.judge(knowing(), data, replace(HASTY, horizon=3))
    short = so.judge(knowing(), data, replace(HASTY, horizon=1))
    assert short.estimators["pdis"].mean == 0, "the first step earns nothing"


def overlap_of(**values: float) -> Overlap:
    fair: dict[str, Any] = {
        "agreement": 0.5,
        "followed": 0.3,
        "support": 1.0,
        "ess": 100.0,
        "largest_weight": 0.01,
        "mean_weight": 1.0,
        "covered_steps": 10,
        "cut": 0.0,
    }
    return Overlap(**(fair | values))


@pytest.mark.parametrize(
    ("overlap", "evidence", "expected"),
    [
        ({}, {}, "trust"),
        ({"ess": 29.0}, {}, "caution"),
        ({"largest_weight": 0.3}, {}, "caution"),
        ({"support": 0.95}, {}, "caution"),
        ({"support": 0.89}, {}, "uncovered"),
        ({"cut": 0.02}, {}, "caution"),
        ({"ess": 2.0}, {}, "caution"),
        ({"ess": 2.0}, {"agree": False}, "uncovered"),
        ({"ess": 2.0}, {"within": False}, "uncovered"),
        ({"ess": 2.0}, {"travelled": False}, "uncovered"),
        ({"ess": 2.0}, {"narrow": False}, "uncovered"),
        ({}, {"narrow": False}, "trust"),
        ({}, {"travelled": False}, "caution"),
        ({}, {"agree": False}, "caution"),
        ({}, {"estimated": True}, "caution"),
        ({}, {"in_sample": True}, "caution"),
        ({}, {"whole": False}, "caution"),
        ({}, {"crossed": False}, "caution"),
        ({"ess": 0.0}, {"weighted": False}, "caution"),
        ({"ess": 0.0}, {"weighted": False, "agree": False}, "uncovered"),
    ],
)
def test_the_rule_of_the_verdict(
    overlap: dict[str, float], evidence: dict[str, bool], expected: str
) -> None:
    fair = {"agree": True, "travelled": True, "within": True, "narrow": True}
    fair |= {"whole": True, "crossed": True, "weighted": True}
    against = {"estimated": False, "in_sample": False}
    found, reasons = verdict(overlap_of(**overlap), Evidence(**(fair | against | evidence)))
    assert found == expected
    assert bool(reasons) == (expected != "trust")


@pytest.mark.parametrize("horizon", [1, 7, 50, 200])
def test_values_can_travel_the_horizon_unless_updates_are_fewer_than_its_steps(
    horizon: int,
) -> None:
    assert so.OpeConfig().travels(horizon)
    assert so.OpeConfig(updates=2 * horizon).travels(horizon)
    if horizon > 1:
        assert not so.OpeConfig(updates=horizon - 1).travels(horizon)


def test_ranges() -> None:
    numbers = np.array([0, 1, 2, 5, 7, 8])
    assert to_ranges(numbers) == [[0, 3], [5, 6], [7, 9]]
    asked = np.arange(12)
    np.testing.assert_array_equal(in_ranges(asked, to_ranges(numbers)), np.isin(asked, numbers))
    assert to_ranges(numbers[:0]) == []
    assert not in_ranges(asked, []).any()


def many_instances(path: Path, instances: int) -> Dataset:
    rng = np.random.default_rng(0)
    with DatasetWriter(path, num_actions=2, probe_steps=1) as writer:
        for number in range(instances * 3):
            writer.append(
                instance=f"patient {number % instances}",
                observations=rng.normal(size=(4, 2)),
                actions=rng.integers(2, size=3),
                rewards=rng.normal(size=3),
                terminated=False,
                truncated=True,
                propensities=np.full((3, 2), 0.5),
            )
    return so.load_dataset(path)


def test_whole_instances_are_held_out_where_there_are_ten(tmp_path: Path) -> None:
    logs = many_instances(tmp_path / "many.h5", 10)
    held, record = choose_hold_out(logs, 0.2, seed=0)
    assert (record["by"], len(record["instances"]), held.sum()) == ("instances", 2, 6)
    names = {logs.episodes()[int(i)].instance for i in np.flatnonzero(held)}
    assert names == set(record["instances"])
    again, _ = choose_hold_out(logs, 0.2, seed=0)
    others = [choose_hold_out(logs, 0.2, seed)[1]["instances"] for seed in range(1, 6)]
    assert (again == held).all() and any(o != record["instances"] for o in others)
    with pytest.raises(ConfigError, match="leaves 1"):
        choose_hold_out(logs, 0.9, seed=0)


def test_episodes_are_held_out_where_instances_are_few(data: Dataset) -> None:
    held, record = choose_hold_out(data, 0.25, seed=0)
    assert record["by"] == "episodes"
    np.testing.assert_array_equal(np.bincount(data.episode_index.instance[held]), [50, 50])
    np.testing.assert_array_equal(in_ranges(data.episode_index.number, record["episodes"]), held)


TINY: dict[str, Any] = {
    "verdict": False,
    "latent": {"updates": 20, "dim": 2},
    "probe": {"steps": 5},
    "control": {"updates": 20, "hidden": [16]},
}


def test_what_was_held_out_was_not_seen_and_is_what_is_judged(
    data: Dataset, path: Path, tmp_path: Path
) -> None:
    agent = so.fit(data, "sept", TINY, seed=1, hold_out=0.2, out=tmp_path / "run")
    held, record = choose_hold_out(data, 0.2, seed=1)
    apart = so.fit(data.select(~held), "sept", TINY, seed=1)
    for name, weights in agent.control.network.to_arrays("x").items():
        np.testing.assert_array_equal(weights, apart.control.network.to_arrays("x")[name])
    said = json.loads((tmp_path / "run" / "run.json").read_text())["held_out"]
    assert said == record == agent.record["held_out"]
    found = so.judge(tmp_path / "run", path, HASTY)
    assert (found.judged_on, found.episodes, found.instances) == ("held out", 80, 2)
    everything = so.judge(agent, data, HASTY, in_sample=True)
    assert (everything.judged_on, everything.episodes) == ("in sample", 400)
    assert everything.verdict != "trust"


def test_what_was_fitted_is_not_judged_unless_asked(data: Dataset) -> None:
    agent = so.fit(data, "avg", TINY, seed=0)
    with pytest.raises(DataError, match="trained on all episodes"):
        so.judge(agent, data, HASTY)
    with pytest.raises(DataError, match="does not record its training episodes"):
        so.judge(replace(agent, record={}), data, HASTY)
    rest = so.fit(data.select(np.arange(300)), "avg", TINY, seed=0)
    assert so.judge(rest, data, HASTY).episodes == 100


def random_logs(path: Path, episodes: int, seed: int, propensities: str = "all") -> Dataset:
    """Two instances and real numbers; the first episodes are those of shorter logs."""
    rng = np.random.default_rng(seed)
    with DatasetWriter(path, num_actions=3, probe_steps=1) as writer:
        for number in range(episodes):
            # one of the two is done for reasons that the state does not show, the third never
            chance = rng.uniform(0.1, 0.9, size=4)
            actions = (rng.random(4) < chance).astype(int)
            known = np.stack([1 - chance, chance, np.zeros(4)], axis=1)
            if propensities == "taken":
                known[np.arange(3) != actions[:, None]] = np.nan
            observations = rng.normal(size=(5, 2)).astype(np.float32)
            writer.append(
                instance=f"i{number % 2}",
                observations=observations,
                actions=actions,
                rewards=observations[1:, 0].astype(float),
                terminated=False,
                truncated=True,
                propensities=known,
            )
    return so.load_dataset(path)


def test_fitted_episodes_are_known_again_in_longer_logs(tmp_path: Path, data: Dataset) -> None:
    """Whatever the file: by what was observed and done."""
    two = {"verdict": False, "control": {"updates": 2, "hidden": [4]}}
    long = many_instances(tmp_path / "long.h5", 12)
    fitted = np.arange(36) < 30
    with DatasetWriter.like(long, tmp_path / "short.h5") as writer:
        for episode in long.select(fitted).episodes():
            writer.copy(episode)
    so.fit(tmp_path / "short.h5", "avg", two, out=tmp_path / "run")
    found = so.judge(tmp_path / "run", long, HASTY)
    assert (found.judged_on, found.episodes) == ("held out", 6)
    whole = so.judge(tmp_path / "run", long, HASTY, in_sample=True)
    assert (whole.judged_on, whole.episodes) == ("in sample", 36)
    with pytest.raises(DataError, match="trained on all episodes"):
        so.judge(tmp_path / "run", long.select(fitted), HASTY)
    others = so.judge(tmp_path / "run", data, HASTY)
    assert (others.judged_on, others.episodes) == ("other logs", 400)
    # sixteen kinds of episodes in all: to leave out the known ones would leave nothing or the rare
    more = log_two_step(tmp_path / "more.h5", episodes=401)
    with pytest.raises(DataError, match="on identical ones"):
        so.judge(so.fit(data, "avg", two), more, HASTY)


def never_logged() -> Agent:
    control = Control(Standardiser.identity(2), MLP([(np.zeros((3, 2)), np.eye(3)[2])]))
    three = Spaces(("x", "y"), Finite(("a", "b", "c")), np.full(2, -9.0), np.full(2, 9.0))
    return Agent("third", "", three, NoContext(), control, record=FAR)


def test_support_is_not_trusted_where_only_the_taken_actions_chance_is_logged(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    for kind in ("all", "taken"):
        logs = random_logs(tmp_path / f"{kind}.h5", 200, 0, kind)
        found = so.judge(never_logged(), logs, HASTY, seed=training_seed)
        assert not found.behaviour_estimated
        margin(f"support, {kind}", found.overlap.support, below=0.1)
        assert found.verdict == "uncovered"
        said = "probabilities of actions that were not taken are estimates"
        assert (said in found.reasons) == (kind == "taken")


# three episodes are harder to spoil others with than one
@pytest.mark.parametrize(("few", "off"), [(1, 3.0), pytest.param(3, 1.5, marks=pytest.mark.long)])
def test_an_instance_of_few_episodes_does_not_spoil_the_others(
    tmp_path: Path, few: int, off: float, training_seed: int, margin: Margins
) -> None:
    """Every second instance pays 10 a step, whatever is done: for a Q that knows which it is."""
    rng = np.random.default_rng(0)
    counts = [40] * 4 + [few]
    with DatasetWriter(tmp_path / "few.h5", num_actions=2) as writer:
        for number in np.repeat(np.arange(5), counts):
            writer.append(
                instance=f"i{number}",
                observations=rng.normal(size=(3, 2)).astype(np.float32),
                actions=rng.integers(2, size=2),
                rewards=10.0 * (number % 2) + 0.1 * rng.normal(size=2),
                terminated=False,
                truncated=True,
                propensities=np.full((2, 2), 0.5),
            )
    seeds = range(3 * training_seed, 3 * training_seed + 3)
    with so.load_dataset(tmp_path / "few.h5") as logs:
        config = replace(QUICK, updates=300)
        found = [so.judge(stubborn(1), logs, config, seed=seed).estimators for seed in seeds]
    # the mean over five instances, two of which earn 20; the mean of three judgements, since how a
    # Q fills in what it hardly knows is a matter of its first weights
    for name in ("fqe", "dm", "dr"):
        error = np.mean([abs(each[name].mean - 8.0) for each in found])
        margin(f"error of {name}", float(error), at_most=off)
    width = np.mean([each["dr"].high - each["dr"].low for each in found])
    margin("width of dr", float(width), below=4)


def test_a_single_episode_cannot_be_divided_and_that_is_said(tmp_path: Path) -> None:
    logs = random_logs(tmp_path / "one.h5", 1, 0)
    found = so.judge(never_logged(), logs, HASTY)
    assert "the fitted Q corrects the single episode that it was fitted to" in found.reasons


def test_the_command(path: Path, tmp_path: Path) -> None:
    quick = ("--updates", 10, "--quiet")
    save_agent(knowing(), tmp_path / "agent")
    found = run_json("ope", tmp_path / "agent", path, *quick, cwd=tmp_path)
    assert set(found["estimators"]) == NAMES
    assert set(found["estimators"]["dr"]) == {"mean", "low", "high", "ess"}
    assert found["verdict"] in ("trust", "caution", "uncovered")
    shown = run("ope", tmp_path / "agent", path, *quick, cwd=tmp_path)
    assert "doubly robust" in shown.stdout and "verdict: " in shown.stdout
    assert "bootstrap over episodes within instances" in shown.stdout
    quickly = ("--set", "control.updates=5", "--set", "control.hidden=[8]")
    quickly += ("--no-verdict", "--quiet")
    done = run("fit", path, "--method", "avg", *quickly, "-o", "all", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--hold-out" in refused("ope", "all", path, *quick, cwd=tmp_path)
    judged = run_json("ope", "all", path, "--in-sample", *quick, cwd=tmp_path)
    assert judged["judged_on"] == "in sample"
    assert "no run at nothing" in refused("ope", "nothing", path, *quick, cwd=tmp_path)

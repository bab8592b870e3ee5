"""The verdict: its rule, and what it says of logs whose instances differ, and of mixed-up ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from benchmarks.testbed import permuted
from sept_offline.agent import NoContext
from sept_offline.data import DatasetWriter
from sept_offline.methods import rehearsal
from sept_offline.methods.hold_out import choose_hold_out
from sept_offline.methods.rehearsal import bootstrap
from sept_offline.methods.trial import share_held_out
from sept_offline.methods.verdict import Evidence, Interval, Values, Word, reach
from sept_offline.settings import merge
from tests.margins import Margins
from tests.methods.check_method import SMALL as SMALL_TWO_STEP
from tests.methods.check_method import check_repeats, check_resumes
from tests.methods.navigation import SMALL, log_navigation
from tests.methods.two_step import log_two_step

SURE = Interval(0.9, 0.8, 1.0)
GOOD = Evidence(
    separation=SURE,
    separates=True,
    unseen=SURE,
    unseen_separates=True,
    held_out="instances",
    explained=Interval(1.0, 0.5, 1.5),
    values=Values(1.0, 2.0, 2.0),
    above_avg=Interval(0.5, 0.2, 0.8),
    above_logs=Interval(1.0, 0.5, 1.5),
    seeds_differ=0.1,
)
CHANCE = Interval(0.5, 0.4, 0.6)


@pytest.mark.parametrize(
    ("change", "word", "said"),
    [
        ({}, "usable", "earns more than avg"),
        (
            {"separation": CHANCE, "separates": False, "acts_as_avg": True},
            "not usable",
            "acts as avg, without a probe",
        ),
        ({"separation": CHANCE, "separates": False}, "not usable", "chance 50 %. Log"),
        (
            {"unseen": CHANCE, "unseen_separates": False},
            "not usable",
            "does not distinguish unseen instances",
        ),
        (
            {"unseen": Interval(0.52, 0.34, 0.68), "unseen_separates": False},
            "doubtful",
            "is not shown to distinguish unseen instances",
        ),
        ({"above_avg": Interval(-0.5, -0.8, -0.2)}, "not usable", "earns less than avg"),
        (
            {"above_avg": Interval(-0.5, -0.8, -0.2), "agent_above_avg": SURE},
            "doubtful",
            "the agent itself earns more",
        ),
        (
            {
                "above_avg": Interval(-0.5, -0.8, -0.2),
                "agent_above_avg": Interval(0.1, -0.2, 0.4),
            },
            "not usable",
            "earns less than avg",
        ),
        ({"above_avg": Interval(0.1, -0.2, 0.4)}, "doubtful", "not shown to earn clearly more"),
        ({"above_avg": Interval(0.02, 0.01, 0.03)}, "doubtful", "not shown to earn clearly more"),
        ({"above_history": Interval(-0.5, -0.8, -0.2)}, "doubtful", "on the last steps (history)"),
        ({"above_history": Interval(-0.5, -0.8, 0.2)}, "usable", "earns more than avg"),
        ({"above_history": Interval(0.5, 0.2, 0.8)}, "usable", "earns more than history"),
        ({"above_history": Interval(-0.03, -0.04, -0.02)}, "usable", "about as much as history"),
        (
            {"above_avg": Interval(5.0, 4.9, 5.1), "above_history": Interval(-0.2, -0.3, -0.1)},
            "usable",
            "about as much as history",
        ),
        ({"above_logs": Interval(-0.5, -0.8, -0.2)}, "doubtful", "less than the logs"),
        ({"explained": Interval(0.0, -0.1, 0.1)}, "doubtful", "no better with their own latent"),
        ({"values": Values(2.5, 2.0, 2.0)}, "doubtful", "more than the 2 that"),
        ({"values": Values(21.0, 5.0, 5.0)}, "doubtful", "more than the 5 that"),
        (
            {"values": Values(21.0, 5.0, 5.0), "above_avg": Interval(0.1, -0.2, 0.4)},
            "not usable",
            "more than the 5 that",
        ),
        # values of episodes that a limit cut reach beyond it
        ({"values": Values(21.0, 5.0, 5.0, truncated=True)}, "usable", "earns more than avg"),
        (
            {
                "values": Values(21.0, 5.0, 5.0, truncated=True),
                "above_avg": Interval(0.1, -0.2, 0.4),
            },
            "doubtful",
            "more than the 5 that",
        ),
        # the agent that is deployed, not only the second fit
        (
            {"agent_above_avg": Interval(-0.9, -1.0, -0.8)},
            "not usable",
            "even in instances that it was trained on",
        ),
        (
            {"agent_above_history": Interval(-0.9, -1.0, -0.8)},
            "doubtful",
            "on the last steps (history)",
        ),
        ({"above_avg": Interval(np.nan, np.nan, np.nan)}, "doubtful", "not shown to earn"),
        ({"seeds_differ": 1.5}, "doubtful", "fits differ"),
        ({"uncertainty": 0.98}, "doubtful", "its uncertainty is 0.98"),
        ({"knowing_gains": Interval(0.5, 0.3, 0.7)}, "usable", "covers 50% of the way from avg"),
        # agents are not compared in dynamics that do not reproduce the logs
        (
            {"dynamics_off": 0.8, "agent_above_avg": Interval(-0.9, -1.0, -0.8)},
            "doubtful",
            "do not reproduce the logs",
        ),
        ({"missing": "There are too few episodes."}, "doubtful", "too few episodes"),
    ],
)
def test_the_rule(change: dict[str, Any], word: Word, said: str) -> None:
    found = reach(replace(GOOD, **change))
    assert found.verdict == word
    # what speaks against a better word comes first
    assert said in (found.reasons[0] if word != "usable" else " ".join(found.reasons))


@pytest.mark.parametrize("gains", [Interval(0.1, 0.05, 0.2), Interval(0.5, -0.1, 1.1), None])
def test_little_or_uncertain_loss_is_not_mentioned(gains: Interval | None) -> None:
    assert not any(
        "Not knowing" in one for one in reach(replace(GOOD, knowing_gains=gains)).reasons
    )


@pytest.mark.parametrize(("uncertainty", "said"), [(0.1, False), (0.6, True), (None, False)])
def test_sensors_are_advised_only_where_steps_reveal_little(
    uncertainty: float | None, said: bool
) -> None:
    loses = replace(GOOD, knowing_gains=Interval(0.5, 0.3, 0.7), uncertainty=uncertainty)
    assert any("more sensors" in reason for reason in reach(loses).reasons) == said


def test_a_slight_lead_over_history_is_called_a_draw() -> None:
    slight, large = Interval(0.003, 0.001, 0.005), Interval(0.5, 0.3, 0.7)
    for gap, word in ((slight, "about as much as history"), (large, "more than history")):
        assert any(word in reason for reason in reach(replace(GOOD, above_history=gap)).reasons)


def test_the_best_of_those_that_earn_more_acts_instead() -> None:
    worse, much_worse = Interval(-0.5, -0.8, -0.2), Interval(-0.9, -1.0, -0.8)
    assert replace(GOOD, above_history=None).better is None
    assert replace(GOOD, above_avg=much_worse).better == "avg"
    assert replace(GOOD, above_avg=much_worse, dynamics_off=0.8).better is None
    # Errors of the learned dynamics explain so small a difference, beside so large a gain.
    slightly_worse = Interval(-0.03, -0.04, -0.02)
    assert replace(GOOD, above_history=slightly_worse).better is None
    assert replace(GOOD, agent_above_history=slightly_worse).better is None
    assert replace(GOOD, above_avg=slightly_worse).better == "avg"
    assert replace(GOOD, above_avg=worse, above_history=much_worse).better == "history"
    assert replace(GOOD, above_avg=much_worse, above_history=worse).better == "avg"
    contradicted = replace(GOOD, above_avg=much_worse, agent_above_avg=SURE)
    assert contradicted.better is None
    assert replace(contradicted, above_history=worse).better == "history"
    assert replace(GOOD, agent_above_avg=worse).better == "avg"


def test_two_instances_say_little_about_others() -> None:
    """The interval covers the mean over instances, of which there are two; and of one, nothing."""
    rng = np.random.default_rng(0)
    instance = np.repeat([0, 1], 120)
    covered = [0, 0]
    for _ in range(200):
        values = rng.normal(-0.2, 0.5, 2)[instance] + rng.normal(0, 0.1, 240)
        for across in (0, 1):
            found = bootstrap(values, instance, rng, bool(across))
            covered[across] += found.low <= -0.2 <= found.high
    assert covered[0] < 80 and covered[1] >= 180
    similar = np.full(240, 1.0) + rng.normal(0, 0.1, 240)
    assert bootstrap(similar, instance, rng, across=True).low > 0


@pytest.fixture
def few_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For verdicts that do not depend on what the rollouts earn."""
    monkeypatch.setattr(rehearsal, "ROLLOUTS", 16)


def test_equal_returns_compare_nothing(tmp_path: Path) -> None:
    """Differences in units of rounding errors would look certain."""
    path = tmp_path / "equal.h5"
    with DatasetWriter(path, num_actions=2, probe_steps=1, observation_dim=1) as writer:
        for number in range(24):
            rng = np.random.default_rng(number)
            actions = rng.integers(2, size=6)
            sign = 1.0 if number % 2 else -1.0
            moved = np.cumsum(np.append(rng.normal(), sign * (2 * actions - 1)))
            writer.append(
                instance=f"i{number % 2}",
                observations=moved[:, None].astype(np.float32),
                actions=actions,
                rewards=np.full(6, 0.1),
                propensities=np.full((6, 2), 0.5),
                terminated=False,
                truncated=True,
            )
    control = {"updates": 20, "hidden": [16]}
    few = {"latent": {"updates": 100}, "control": control, "probe": {"steps": 5}}
    record = so.fit(path, "sept", {**few, "stack": 1}, seed=0).record
    assert record["verdict"] != "usable"
    assert any("the same return" in reason for reason in record["reasons"])


def log_walks(path: Path, lengths: list[list[int]]) -> Path:
    """Steps of +1 or −1, which the instances with odd numbers take backwards; `lengths` of each."""
    rng = np.random.default_rng(0)
    with DatasetWriter(path, num_actions=2, probe_steps=1, observation_dim=1) as writer:
        for instance, steps in ((i, n) for i, each in enumerate(lengths) for n in each):
            actions = rng.integers(2, size=steps)
            sign = 1.0 if instance % 2 else -1.0
            moved = np.cumsum(np.append(rng.normal(), sign * (2 * actions - 1)))
            writer.append(
                instance=f"i{instance}",
                observations=moved[:, None].astype(np.float32),
                actions=actions,
                rewards=-np.abs(moved[1:]),
                propensities=np.full((steps, 2), 0.5),
                terminated=False,
                truncated=True,
            )
    return path


@pytest.mark.usefixtures("few_rollouts")
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([[3] * 8, [12] * 40], id="one instance has short episodes alone"),
        pytest.param([[20], [20], [5, 20], [5, 20]], id="long episodes are all fresh or none is"),
    ],
)
def test_episodes_may_differ_much_in_length(lengths: list[list[int]], tmp_path: Path) -> None:
    path = log_walks(tmp_path / "walks.h5", lengths)
    control = {"updates": 20, "hidden": [16]}
    few = {"latent": {"updates": 200}, "control": control, "probe": {"use": "never"}}
    record = so.fit(path, "sept", {**few, "stack": 1}, seed=0).record
    assert record["separation"]["better_than_chance"]
    assert record["evidence"]["knowing_gains"] is not None


@pytest.mark.usefixtures("few_rollouts")
def test_one_episode_of_each_instance_leaves_a_doubt(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "two-step.h5", episodes=80)
    with so.load_dataset(path) as data:
        first = np.unique(data.episode_index.instance, return_index=True)[1]
        few = {"latent": {"updates": 20}, "control": {"updates": 20}, "probe": {"steps": 5}}
        agent = so.fit(data.select(np.sort(first)), "sept", {**few, "stack": 1}, seed=0)
    assert agent.record["verdict"] != "usable"
    assert any("single episode" in reason for reason in agent.record["reasons"])


@pytest.mark.parametrize(
    "change", [{"values": Values(2.5, 2.0, 2.0)}, {"above_logs": Interval(-0.5, -0.8, -0.2)}]
)
def test_the_advice_names_an_algorithm_of_the_space(change: dict[str, Any]) -> None:
    evidence = replace(GOOD, **change)
    assert "--control discrete_cql" in reach(evidence).reasons[0]
    assert "--control cql" in reach(evidence, conservative="cql").reasons[0]


def test_nothing_is_said_of_what_was_not_asked() -> None:
    assert reach(Evidence()).reasons == ()


@pytest.mark.parametrize(("instances", "held"), [(10, 4), (14, 4), (20, 4), (21, 4), (200, 40)])
def test_a_second_fit_leaves_out_instances_enough_to_compare(
    tmp_path: Path, instances: int, held: int
) -> None:
    path = tmp_path / "logs.h5"
    with DatasetWriter(path, num_actions=2, observation_dim=1) as writer:
        for number in range(instances):
            writer.append(
                instance=str(number),
                observations=np.zeros((2, 1)),
                actions=np.zeros(1, dtype=np.int64),
                rewards=np.zeros(1),
                terminated=True,
                truncated=False,
            )
    with so.load_dataset(path) as data:
        chosen, record = choose_hold_out(data, share_held_out(instances), seed=0)
    assert record["by"] == "instances" and chosen.sum() == held


LEARNING = merge(
    SMALL, {"verdict": True, "held_out": 0.3, "latent": {"updates": 300}, "probe": {"steps": 30}}
)


@pytest.fixture(scope="module")
def navigation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_navigation(tmp_path_factory.mktemp("verdict") / "logs.h5")


def test_mixed_up_instances_are_not_usable(
    navigation: Path, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    mixed = permuted(navigation, tmp_path / "mixed.h5")
    agent = so.fit(mixed, "sept", merge(LEARNING, {"control": {"updates": 50}}), seed=training_seed)
    assert agent.method == "sept"
    assert agent.record["verdict"] == "not usable"
    assert "does not distinguish instances" in agent.record["reasons"][0]
    margin("uncertainty", agent.record["separation"]["uncertainty"], above=0.9)
    assert isinstance(agent.context, NoContext) and agent.probe_steps == 0
    episode = agent.begin(seed=0)
    episode.act(np.zeros(agent.spaces.observation_dim, dtype=np.float32))
    assert episode.phase == "control"
    assert episode.latent is None and episode.uncertainty == 1.0


def test_a_family_that_is_learned_is_usable(
    navigation: Path, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    agent = so.fit(navigation, "sept", LEARNING, seed=training_seed, out=tmp_path / "run")
    evidence = agent.record["evidence"]
    margin("separation", evidence["separation"]["low"], above=0.8)
    margin("above avg", evidence["above_avg"]["low"], above=0.0)
    assert agent.record["verdict"] == "usable", agent.record["reasons"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["verdict"] == "usable" and record["reasons"] == agent.record["reasons"]


@pytest.mark.usefixtures("few_rollouts")
def test_a_verdict_is_resumed_where_it_was_stopped(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "logs.h5", episodes=80)
    short = {"latent": {"updates": 40}, "control": {"updates": 60, "hidden": [16]}}
    config = merge(SMALL_TWO_STEP, {"verdict": True}, short)
    check_repeats("avg", path, config, tmp_path)
    check_resumes("avg", path, config, tmp_path)
    records = [so.load_agent(tmp_path / name).record for name in ("a", "resumed")]
    assert records[0]["evidence"] == records[1]["evidence"]
    assert records[0]["verdict"] == records[1]["verdict"]


@pytest.mark.usefixtures("few_rollouts")
def test_regions_hold_for_instances_that_the_second_fit_has_not_seen(tmp_path: Path) -> None:
    path, rng = tmp_path / "logs.h5", np.random.default_rng(0)
    with DatasetWriter(path, num_actions=2, observation_dim=1, probe_steps=2) as writer:
        for number in range(60):
            push, actions = number % 12, rng.integers(2, size=4)
            moves = (2 * actions - 1) * push + rng.normal(0, 0.1, 4)
            writer.append(
                instance=str(push),
                observations=np.append(0, np.cumsum(moves))[:, None],
                actions=actions,
                rewards=moves,
                terminated=False,
                truncated=True,
                propensities=np.full((4, 2), 0.5),
            )
    latent = {"updates": 30, "hidden": 32}
    few = {"latent": latent, "control": {"updates": 30, "hidden": [8]}, "stack": 1}
    record = so.fit(path, "sept", {**few, "probe": {"steps": 2}}).record
    unseen = record["evidence"]["unseen_radii"]
    assert len(unseen) == len(record["separation"]["radii"]) == 3
    assert all(np.greater_equal(record["separation"]["radii"], unseen))


def test_what_is_lost_until_the_instance_is_known(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    """Each of two guesses is paid: knowing the mode is worth as much again as learning it."""
    logs = log_two_step(tmp_path / "logs.h5", telling=True)
    longer = {"verdict": True, "probe": {"use": "never"}, "control": {"updates": 1500}}
    config = merge(SMALL_TWO_STEP, longer)
    record = so.fit(logs, "sept", config, training_seed).record
    unit = 0.5**0.5  # of two guesses, each right half of the time
    margin("knowing gains", unit * record["evidence"]["knowing_gains"]["mean"], above=0.3)
    assert any("Not knowing the instance" in one for one in record["reasons"])

"""Numbers checked by hand, round trips of both formats, references, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import simulators
from sept_offline.agent import save_agent
from sept_offline.cli.evaluate import evaluate as command
from sept_offline.errors import DataError, FamilyError, HarnessError
from sept_offline.evaluation import (
    EpisodeResult,
    Results,
    evaluate,
    load_references,
    load_results,
    normalise,
)
from sept_offline.evaluation.results import statistics
from sept_offline.family import Family
from tests.evaluation.navigation_agents import (
    constant_agent,
    mode_one_agent,
    oracle_agent,
    probing_agent,
)

KEYS = [
    "method",
    "family",
    "needs",
    "learns",
    "episodes",
    "solved",
    "steps_to_solve",
    "return",
    "normalised",
    "act_microseconds",
    "behaviour_estimated",
]
REFERENCES = ["score", "random", "best_constant", "best_constant_action"]


def episode(number: int, rewards: tuple[float, ...], **changes: Any) -> EpisodeResult:
    plain = EpisodeResult(
        instance="test-0",
        episode=number,
        actions=(0,) * len(rewards),
        phases=("control",) * len(rewards),
        rewards=rewards,
        terminated=False,
        solved=False,
        steps_to_solve=9,
        normalised=None,
        latent=None,
        uncertainty=None,
        novelty=None,
        flagged=False,
        act_microseconds=10.0,
        seconds=0.1,
    )
    return replace(plain, **changes)


def results_of(*episodes: EpisodeResult) -> Results:
    return Results("sept", "mine", (), "test", 0, 9, episodes)


def test_the_summary_by_hand() -> None:
    results = results_of(
        episode(0, (1.0, 1.0), solved=True, steps_to_solve=2, act_microseconds=10.0),
        episode(0, (1.0, 2.0, 1.0), instance="test-1", normalised=0.5, act_microseconds=20.0),
        episode(0, (9.0,), instance="test-2", normalised=1.0, act_microseconds=40.0),
    )
    summary = results.summary()
    assert list(summary) == KEYS
    assert summary["solved"] == pytest.approx(1 / 3)
    # returns 2, 4, 9: mean 5, squared deviations 9 + 1 + 16 = 26, s² = 13, se = √(13/3)
    assert summary["return"] == {
        "mean": 5.0,
        "se": pytest.approx(math.sqrt(13 / 3)),
        "median": 4.0,
        "count": 3,
    }
    # steps 2, 9, 9: mean 20/3, s² = 49/3, se = 7/3
    assert summary["steps_to_solve"]["mean"] == pytest.approx(20 / 3)
    assert summary["steps_to_solve"]["se"] == pytest.approx(7 / 3)
    # shares 0.5 and 1: s² = 1/8, se = 1/4; the episode without one does not count
    assert summary["normalised"]["mean"] == 0.75
    assert summary["normalised"]["se"] == pytest.approx(0.25)
    assert summary["normalised"]["count"] == 2
    # (2·10 + 3·20 + 1·40) / 6
    assert summary["act_microseconds"] == pytest.approx(20.0)


def test_episodes_of_one_instance_are_averaged_first() -> None:
    """They share what is hidden: four episodes of two instances are two observations, not four."""
    results = results_of(
        episode(0, (1.0,)),
        episode(1, (3.0,)),
        episode(0, (5.0,), instance="test-1"),
        episode(1, (7.0,), instance="test-1"),
    )
    # instance means 2 and 6: mean 4, s² = 8, se = 2
    found = results.summary()["return"]
    assert found == {"mean": 4.0, "se": pytest.approx(2.0), "median": 4.0, "count": 2}


def test_one_episode_has_no_standard_error_and_none_no_mean() -> None:
    assert statistics([3.0]) == {"mean": 3.0, "se": None, "median": 3.0, "count": 1}
    assert statistics([None, None]) is None
    assert results_of(episode(0, (1.0,))).summary()["normalised"] is None


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"results{suffix}"
    for agent in (probing_agent(), oracle_agent()):
        results = evaluate(agent, simulators.family("navigation2d"), max_steps=6)
        results.write(path)
        assert load_results(path) == results
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
def test_what_was_seen_need_not_be_finite(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"results{suffix}"
    results_of(episode(0, (1.0,), observations=((0.5, 1.0), (math.inf, 2.0)))).write(path)
    seen = load_results(path).episodes[0].observations
    assert seen is not None
    assert seen[0] == (0.5, 1.0)
    assert math.isnan(seen[1][0])
    assert seen[1][1] == 2.0


def test_a_run_keeps_its_last_evaluation(tmp_path: Path) -> None:
    save_agent(probing_agent(), tmp_path / "run" / "agent")
    bare = CliRunner().invoke(command, [str(tmp_path / "run" / "agent"), "--max-steps", "3"])
    assert bare.exit_code == 0, bare.output
    assert not list(tmp_path.rglob("*.parquet"))  # an agent alone is no run
    (tmp_path / "run" / "run.json").write_text("{}")
    for steps in ("3", "5"):
        done = CliRunner().invoke(command, [str(tmp_path / "run"), "--max-steps", steps])
        assert done.exit_code == 0, done.output
    assert load_results(tmp_path / "run" / "results.parquet").limit == 5


def test_the_parquet_file_is_a_plain_table(tmp_path: Path) -> None:
    results = evaluate(probing_agent(), simulators.family("navigation2d"))
    results.write(tmp_path / "r.parquet")
    rows = pq.read_table(tmp_path / "r.parquet").to_pylist()
    for row, one in zip(rows, results.episodes, strict=True):
        assert row["return"] == one.total == row["cumulative_reward"][-1]
        assert row["steps"] == len(row["action"]) == len(row["phase"]) == len(row["reward"])


def test_files_that_are_no_results(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a name that ends in \.parquet or \.json"):
        results_of(episode(0, (1.0,))).write(tmp_path / "r.csv")
    with pytest.raises(DataError, match="Cannot read"):
        load_results(tmp_path / "absent.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing more")
    (tmp_path / "bad.json").write_text('{"format": 1}')
    (tmp_path / "late.json").write_text('{"format": 99, "table": []}')
    for name, words in (
        ("bad.parquet", r"bad\.parquet"),
        ("bad.json", "contains no results"),
        ("late.json", "of format 99"),
    ):
        with pytest.raises(DataError, match=words):
            load_results(tmp_path / name)


@pytest.mark.parametrize(
    "changed",
    [
        {"action": [], "phase": [], "reward": []},
        {"reward": [1.0]},
        {"reward": [1.0, None]},
        {"phase": ["probe"]},
        {"observation": [[0.0], [1.0]]},
        {"observation": [[0.0], [1.0], [1.0, 2.0]]},
    ],
)
def test_episodes_whose_lists_do_not_match_are_no_results(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    content = results_of(episode(0, (1.0, 2.0))).to_json()
    content["table"][0] |= changed
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="contains no results"):
        load_results(tmp_path / "r.json")


def test_normalise() -> None:
    assert normalise(5.0, 0.0, 10.0) == 0.5
    assert normalise(0.0, 10.0, -10.0) == 0.5
    assert normalise(-3.0, -1.0, 3.0) == -0.5
    assert normalise(1.0, 0.951, 1.0) is None
    assert normalise(1.0, 0.949, 1.0) == pytest.approx(1.0)
    assert normalise(-1.0, -1.04, -1.0) is None
    assert normalise(1.0, 0.0, 0.0) is None
    assert normalise(1.0, 2.0, 0.0) == 0.5


def with_references(path: Path, entries: list[Any], steps: int = 50) -> Family:
    path.write_text(json.dumps({"made_by": "a test", "steps": steps, "test": entries}))
    return replace(simulators.family("navigation2d"), references=path)


def entry(z: float, random: float, reference: float) -> dict[str, Any]:
    return {
        "hidden": {"z": z},
        "random": random,
        "random_se": 1.0,
        "reference": reference,
        "source": "constant:0",
    }


def test_the_share_of_the_achievable_is_that_of_the_very_instance(tmp_path: Path) -> None:
    family = with_references(
        tmp_path / "r.json", [entry(2.0, 960.0, 1000.0), None, entry(1.0, -200.0, 800.0)]
    )
    results = evaluate(mode_one_agent(), family)
    for index, one in enumerate(results.episodes):
        expected = (one.total + 200) / 1000 if index % 2 == 0 else None
        assert one.normalised == expected
    assert results.summary()["normalised"]["count"] == 5


def test_references_say_nothing_of_other_limits_or_instances(tmp_path: Path) -> None:
    family = with_references(tmp_path / "r.json", [entry(1.0, 0.0, 1000.0)])
    assert evaluate(mode_one_agent(), family).episodes[0].normalised is not None
    shorter = evaluate(mode_one_agent(), family, max_steps=40)
    assert all(one.normalised is None for one in shorter.episodes)
    none = evaluate(mode_one_agent(), replace(family, references=None))
    assert none.summary()["normalised"] is None
    assert load_references(replace(family, references=None)) is None


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"steps": 50, "test": [{"random": 1}]}', '{"steps": 50, "test": [3]}', "{"],
)
def test_damaged_references_are_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(FamilyError, match=r"r\.json is damaged"):
        load_references(replace(simulators.family("navigation2d"), references=path))


@pytest.mark.parametrize("name", ["navigation2d", "navigation2d-switch", "acrobot", "hiv"])
def test_every_shipped_instance_has_its_references(name: str) -> None:
    family = simulators.family(name)
    references = load_references(family)
    assert references is not None and references.steps == family.test_steps
    for split in family.splits:
        for index, hidden in enumerate(family.instances(split)):
            found = references.of(hidden)
            assert found is not None, f"{split}-{index}"
            assert found.reference > found.random, f"{split}-{index}"


def test_the_command(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "results.parquet"
    save_agent(probing_agent(), run / "agent")
    arguments = [str(run), "--seed", "4", "--episodes-per-instance", "2", "-o", str(out)]
    done = CliRunner().invoke(command, [*arguments, "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    assert list(summary) == [*KEYS, *REFERENCES]
    assert summary["method"] == "sept" and summary["episodes"] == 20
    stored = load_results(out)
    assert stored.seed == 4
    assert stored.summary() == {name: summary[name] for name in KEYS}

    shown = CliRunner().invoke(command, [str(run), "--quiet"])
    assert shown.exit_code == 0, shown.output
    assert "only observations" in shown.stdout
    assert "test-9" in shown.stdout and "steps to solve" in shown.stdout


def test_the_command_shows_what_an_agent_needs(tmp_path: Path) -> None:
    save_agent(oracle_agent(), tmp_path / "agent")
    shown = CliRunner().invoke(command, [str(tmp_path), "--family", "navigation2d", "--quiet"])
    assert "needs hidden" in shown.stdout
    save_agent(constant_agent(0), tmp_path / "other")
    refused = CliRunner().invoke(command, [str(tmp_path / "other"), "-o", "results.csv"])
    assert isinstance(refused.exception, DataError)


def test_several_runs_are_compared_by_family_and_named_apart(tmp_path: Path) -> None:
    switched = replace(constant_agent(2), family="navigation2d-switch")
    made = {"east": constant_agent(2), "switch": switched, "north": constant_agent(1)}
    for name, agent in made.items():
        save_agent(agent, tmp_path / name)
    words = [str(tmp_path / name) for name in ("east", "switch", "north")]
    more = ["--episodes-per-instance", "2", "--max-steps", "3", "--quiet"]
    shown = CliRunner().invoke(command, [*words, *more])
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    first = lines.index("navigation2d · test · 2 episodes per instance")
    second = lines.index("navigation2d-switch · test · 2 episodes per instance")
    assert first < second
    assert [line.split()[:3] for line in lines[first + 2 : first + 4]] == [
        ["avg", "·", words[0]],
        ["avg", "·", words[2]],
    ]
    assert lines[second + 2].split()[:2] == ["avg", "–"]
    assert sum(line.startswith("random ") for line in lines) == 3  # one per table, and a note


def test_a_run_that_fails_leaves_the_results_of_those_before_it(tmp_path: Path) -> None:
    for name, family in (("good", "navigation2d"), ("bad", "hiv")):
        save_agent(replace(constant_agent(0), family=family), tmp_path / name / "agent")
        (tmp_path / name / "run.json").write_text("{}")
    words = [str(tmp_path / name) for name in ("good", "bad")]
    done = CliRunner().invoke(command, [*words, "--max-steps", "3", "--quiet"])
    assert isinstance(done.exception, HarnessError)
    assert len(load_results(tmp_path / "good" / "results.parquet").episodes) == 10
    assert not (tmp_path / "bad" / "results.parquet").exists()


def test_results_are_written_before_the_references_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Results) -> None:
        raise FamilyError("the batch is broken")

    monkeypatch.setattr("sept_offline.evaluation.play_references", fail)
    save_agent(constant_agent(0), tmp_path / "agent")
    out = tmp_path / "results.parquet"
    done = CliRunner().invoke(command, [str(tmp_path), "-o", str(out), "--quiet"])
    assert isinstance(done.exception, FamilyError)
    assert len(load_results(out).episodes) == 10

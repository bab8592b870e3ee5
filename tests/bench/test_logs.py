"""The logs of a bench: parts of them, and those that the user has, which are only read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure as Sheet

import sept_offline as so
from sept_offline.errors import ConfigError, DataError, FamilyError
from sept_offline.tools.bench import Plan, make_plan, run_bench
from sept_offline.tools.bench.cell import fresh_identification
from sept_offline.tools.bench.logs import logs_of, provide, provided, thin
from sept_offline.tools.bench.plan import DataSettings
from sept_offline.tools.bench.store import read_table
from tests.bench import coins
from tests.bench.coins import COIN, SMALL
from tests.cli.commands import refused, run_json

WHOLE = [setting for setting in SMALL if not setting.startswith("episodes")]

# Parts of logs: fewer episodes, fewer instances, no probabilities.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "acrobot.h5"
    overrides = {"behaviour": "random", "episodes": 48, "max_steps": 20}
    so.collect_dataset("acrobot", path, overrides=overrides, seed=3).close()
    return path


def part(whole: Path, out: Path, **wanted: object) -> so.Dataset:
    with so.load_dataset(whole) as data:
        thin(data, out, DataSettings(**wanted), seed=0)  # type: ignore[arg-type]
    so.validate(out).raise_if_bad()
    return so.load_dataset(out)


def seeds(data: so.Dataset, instance: str) -> list[int]:
    return [episode.seed for episode in data.episodes(instance)]


def test_fewer_episodes_are_among_more_and_spread_over_the_logs(
    whole: Path, tmp_path: Path
) -> None:
    with (
        so.load_dataset(whole) as data,
        part(whole, tmp_path / "4.h5", episodes=4) as few,
        part(whole, tmp_path / "9.h5", episodes=9) as more,
    ):
        assert few.instances == more.instances == data.instances
        for name in data.instances:
            all_seeds = seeds(data, name)
            assert len(all_seeds) == 12
            assert len(seeds(few, name)) == 4 and len(seeds(more, name)) == 9
            assert set(seeds(few, name)) < set(seeds(more, name)) < set(all_seeds)
        # Not the first ones: a history of learning would lose its end.
        assert any(seeds(few, name) != seeds(data, name)[:4] for name in data.instances)
        episode = few.episodes("train-0")[0]
        twin = next(e for e in data.episodes("train-0") if e.seed == episode.seed)
        np.testing.assert_array_equal(episode.observations, twin.observations)
        np.testing.assert_array_equal(episode.propensities, twin.propensities)


def test_nothing_is_left_of_instances_left_out(whole: Path, tmp_path: Path) -> None:
    with part(whole, tmp_path / "two.h5", instances=2) as few, so.load_dataset(whole) as data:
        assert few.instances == ["train-0", "train-3"]
        assert few.hidden is not None and data.hidden is not None
        np.testing.assert_array_equal(few.hidden.values, data.hidden.values[[0, 3]])
        assert few.num_episodes == 24
        assert few.metadata.probe_steps == data.metadata.probe_steps
        assert few.metadata.extra == data.metadata.extra


def test_without_probabilities(whole: Path, tmp_path: Path) -> None:
    with part(whole, tmp_path / "unknown.h5", propensities="estimated") as data:
        assert not data.has_propensities and data.num_episodes == 48


# Logs that the user has: they are read, never collected, and import nothing.


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("given") / "coin.h5"
    so.collect_dataset(COIN, path, overrides={"episodes": 80}, seed=5).close()
    return path


def plan(logs: Path | str, *settings: str, **more: Any) -> Plan:
    return make_plan(
        [COIN], ["avg"], seeds=2, settings=[*WHOLE, *settings], datasets=[logs], **more
    )


def test_given_logs_are_learned_from_with_every_seed(logs: Path, tmp_path: Path) -> None:
    before = logs.read_bytes()
    report = run_bench(plan(logs), tmp_path / "bench")
    assert (report.ran, report.failed) == (2, ())
    with so.load_dataset(logs) as data:
        wanted = data.content_hash
    cells = read_table(tmp_path / "bench", "cells")
    assert [row["content_hash"] for row in cells] == [wanted] * 2
    assert [(row["seed"], row["data_seed"]) for row in cells] == [(0, 0), (1, 0)]
    assert json.loads(cells[0]["identity"])["dataset"] == str(logs)
    assert not list((tmp_path / "bench").glob("datasets/*")) and logs.read_bytes() == before
    assert run_bench(plan(f"coin={logs}"), tmp_path / "bench").found == 2


def test_other_logs_of_the_same_family_are_refused(logs: Path, tmp_path: Path) -> None:
    run_bench(plan(logs, "episodes=3"), tmp_path / "bench")
    other = tmp_path / "other.h5"
    so.collect_dataset(COIN, other, overrides={"episodes": 80}, seed=6).close()
    with pytest.raises(DataError, match="another dataset"):
        run_bench(plan(other, "episodes=3"), tmp_path / "bench")


def test_a_part_of_collected_logs_is_not_taken_for_one_of_given_logs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('behaviour = "random"\nepisodes = 60\n', encoding="utf-8")
    monkeypatch.setattr(coins, "coin", dataclasses.replace(coins.coin, recipe=recipe))
    few = [*WHOLE, "episodes=3"]
    (cell,) = make_plan([COIN], ["avg"], seeds=1, settings=few).cells
    (other,) = make_plan([COIN], ["avg"], seeds=1, settings=few, datasets=[logs]).cells
    collected, given = logs_of(cell, tmp_path), logs_of(other, tmp_path)
    assert collected.path == given.path and collected.whole is not None
    provide(collected.whole)
    provide(collected)
    assert provided(collected)
    with pytest.raises(DataError, match="another dataset"):
        provided(given)


def test_a_variant_takes_a_part_of_given_logs(logs: Path, tmp_path: Path) -> None:
    report = run_bench(plan(logs, "episodes=3"), tmp_path / "bench")
    assert not report.failed
    (part,) = (tmp_path / "bench" / "datasets").glob("*.h5")
    with so.load_dataset(part) as data, so.load_dataset(logs) as whole:
        assert data.instances == whole.instances
        assert {len(data.episodes(name)) for name in data.instances} == {3}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("behaviour=random", "cannot be chosen"),
        ("episodes=1000", "episodes in its smallest instance, fewer than the 1000 requested"),
        ("instances=1000", "instances, fewer than the 1000 requested"),
    ],
)
def test_what_the_logs_do_not_hold_is_refused(logs: Path, setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        plan(logs, setting)


def test_the_family_need_not_know_the_instances_of_given_logs(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = dataclasses.replace(coins.coin, splits={"test": coins.coin.splits["test"]})
    monkeypatch.setattr(coins, "coin", only)
    report = run_bench(plan(logs), tmp_path)
    assert (report.ran, report.failed) == (2, ())
    with so.load_dataset(logs) as data:
        encoder = SimpleNamespace(steps=1, encode=lambda seen, _: (np.zeros((len(seen), 1)), None))
        agent: Any = SimpleNamespace(
            context=SimpleNamespace(encoder=encoder),
            stack=1,
            spaces=SimpleNamespace(actions=data.action_space),
        )
        assert fresh_identification(agent, only, data, 0) is None


def test_logs_belong_to_one_of_the_families(logs: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="holds logs of 'coin', which is not one of the families acrobot"
    ):
        make_plan(["acrobot"], ["avg"], datasets=[logs])
    with pytest.raises(ConfigError, match="Two datasets are given for 'coin'"):
        make_plan([COIN], ["avg"], datasets=[logs, f"coin={logs}"])
    with pytest.raises(DataError, match="nowhere"):
        make_plan([COIN], ["avg"], datasets=[tmp_path / "nowhere.h5"])


def test_the_family_of_the_logs_is_meant_where_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "navigation.h5"
    overrides = {"behaviour": "random", "episodes": 4}
    so.collect_dataset("navigation2d", path, overrides=overrides).close()
    cells = make_plan(methods=["avg"], seeds=1, datasets=[path], quick=True).cells
    assert [(cell.family, cell.dataset) for cell in cells] == [("navigation2d", path)]


def test_a_file_imports_nothing(logs: Path, tmp_path: Path) -> None:
    # Even though this process has met the coin before.
    so.load_family(COIN)
    with pytest.raises(FamilyError, match="There is no family 'coin'"):
        make_plan(methods=["avg"], datasets=[logs])
    evil = tmp_path / "evil.h5"
    with (
        so.load_dataset(logs) as data,
        so.DatasetWriter(
            evil,
            num_actions=data.num_actions,
            observation_dim=data.observation_dim,
            family="trap:family",
        ) as writer,
    ):
        writer.copy(data.episodes()[0])
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\n", encoding="utf-8")
    said = refused("bench", "--dataset", evil.name, "--methods", "avg", cwd=tmp_path)
    assert "trap:family" in said and not (tmp_path / "sprung").exists()


def test_by_command(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sept_offline.tools.bench.figures.draw", lambda _: Sheet(figsize=(3, 2)))
    words = [part for setting in WHOLE for part in ("--set", setting)]
    found = run_json(
        *("bench", "--families", COIN, "--dataset", f"coin={logs}", "--methods", "avg"),
        *("--seeds", "1", "--workers", "1", "--quiet", *words),
        cwd=tmp_path,
    )
    assert (found["ran"], found["failed"]) == (1, [])

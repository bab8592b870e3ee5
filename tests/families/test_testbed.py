"""The script that runs the test-bed: cells are run once, kept, and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from benchmarks import testbed
from sept_offline.methods.run import read_record
from sept_offline.seals import write_json

SMALL = ("control.updates=40", "control.hidden=[16]", "latent.updates=20", "probe.steps=5")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with three finished cells, and the words that made them."""
    folder = tmp_path_factory.mktemp("testbed")
    words = ["--families", "indifferent", "--methods", "random,constant,sept", "--seeds", "1"]
    words += ["--episodes", "2", "--work", str(folder), "--results", str(folder / "r.jsonl")]
    for setting in SMALL:
        words += ["--set", setting]
    assert testbed.main(words) == 0
    return folder, words


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "r.jsonl").read_text("utf-8").splitlines()]


def test_a_cell_says_what_it_found(small: tuple[Path, list[str]]) -> None:
    cells = {cell["method"]: cell for cell in lines(small[0])}
    assert list(cells) == ["random", "constant", "sept"]
    for cell in cells.values():
        assert cell["family"] == "indifferent" and cell["seed"] == 0 and cell["seconds"] >= 0
        assert list(cell["instances"]) == [f"test-{index}" for index in range(4)]
        scores = list(cell["instances"].values())
        assert cell["mean"] == pytest.approx(np.mean(scores))
        assert cell["se"] == pytest.approx(np.std(scores, ddof=1) / 2)
    # Not pushing is best of what is always the same, and nobody earns more than nothing.
    assert cells["constant"]["action"] == 1
    assert cells["random"]["mean"] < cells["constant"]["mean"] < 0
    assert {"verdict", "reasons", "fit_seconds", "test_seconds"} <= set(cells["sept"])


def test_a_finished_cell_is_not_run_again(
    small: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = small
    before = (folder / "r.jsonl").read_bytes()
    assert testbed.main(words) == 0
    assert (folder / "r.jsonl").read_bytes() == before
    shown = capsys.readouterr().out
    assert testbed.main([*words, "--only-table"]) == 0
    drawn = capsys.readouterr().out
    assert shown.endswith(drawn) and "| `indifferent` | -" in drawn
    # Cells of other settings are others.
    assert testbed.main([*words, "--set", "control.updates=41", "--only-table"]) == 0
    assert capsys.readouterr().out != drawn


def test_a_kill_in_the_middle_of_a_line_costs_that_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    cell = cell_of("avg", 0, 1.0)
    testbed.append(path, cell)
    path.write_text(path.read_text("utf-8") + '{"family": "ma', encoding="utf-8")
    testbed.append(path, cell_of("avg", 1, 3.0))
    found = testbed.read(path)
    assert [one["seed"] for one in found] == [0, 1]
    assert "| `many` | 2 [1, 3] |" in testbed.tables(found)


def cell_of(method: str, seed: int, mean: float, verdict: str | None = None) -> dict[str, Any]:
    """A cell of `many` with two instances around the mean."""
    instances = {"test-0": mean - 0.5, "test-1": mean + 0.5}
    said = {"verdict": verdict, "settings": [], "instances": instances}
    return {"family": "many", "method": method, "seed": seed, "mean": mean} | said


def test_the_tables_show_what_was_said_beside_what_is_true() -> None:
    cells = [cell_of("avg", seed, 1.0 + seed) for seed in range(2)]
    cells += [cell_of("history", seed, 8.0) for seed in range(2)]
    cells += [cell_of("oracle", seed, 11.0 + seed) for seed in range(2)]
    cells += [cell_of("sept", 0, 6.0, "usable") | {"uncertainty": 0.25}]
    cells += [cell_of("sept", 1, 5.0, "doubtful") | {"uncertainty": 0.75}]
    above_avg, above_history = "4 [3, 5]", "-2.5 [-3, -2]"
    said = "0.5 [0.25, 0.75] | 0: usable, 1: doubtful |"
    line = f"| `many` | {above_avg} | {above_history} | 0.40 | {said}"
    assert line in testbed.tables(cells)
    # Without an oracle above avg there is no way to have a share of.
    cells = [cell for cell in cells if cell["method"] != "oracle"]
    assert f"|  | {said}" in testbed.tables(cells)


def test_verdicts_are_counted_beside_what_is_true() -> None:
    cells = [cell_of("avg", seed, 1.0) for seed in range(3)]
    cells += [cell_of("history", seed, 8.0) for seed in range(2)]
    cells += [cell_of("sept", seed, 6.0, "usable") for seed in range(3)]
    # The same difference in both instances is shown; the third seed has no `history`.
    assert "| usable | 2 | 2 | 0 | 0 | 2 |" in testbed.tables(cells)
    assert "| not usable | 0 | 0 | 0 | 0 | 0 |" in testbed.tables(cells)


def test_permuted_labels_keep_the_episodes_and_mix_their_owners(tmp_path: Path) -> None:
    path, few = tmp_path / "x.h5", {"episodes": 240, "max_steps": 8}
    so.collect_dataset(testbed.spec_of("indifferent"), path, overrides=few).close()
    with (
        so.load_dataset(path) as logs,
        so.load_dataset(testbed.permuted(path, tmp_path / "permuted.h5")) as mixed,
    ):
        assert sorted(mixed.instances) == sorted(logs.instances)
        assert mixed.metadata.probe_steps == logs.metadata.probe_steps
        owners = {episode.observations.tobytes(): episode.instance for episode in logs.episodes()}
        kept = [owners[one.observations.tobytes()] == one.instance for one in mixed.episodes()]
    assert len(kept) == len(owners)
    assert np.mean(kept) < 2 / len(logs.instances)


def test_a_rollout_plays_the_episodes_of_evaluate() -> None:
    family = so.load_family(testbed.spec_of("indifferent"))
    # Only an episode's start and noise decide its return where nothing is ever pushed.
    one, again, other = (testbed.roll_out(family, lambda _: 1, seed, 2) for seed in (0, 0, 1))
    assert one == again != other
    env = family.make(family.instances("test")[0])
    env.reset(seed=so.seeding.integer(0, "evaluate", "test-0", 0, "environment"))
    expected = sum(float(env.step(1)[1]) for _ in range(family.test_steps))
    assert testbed.roll_out(family, lambda _: 1, 0, 1)["test-0"] == pytest.approx(expected)


def test_a_verdict_is_taken_from_the_run(small: tuple[Path, list[str]], tmp_path: Path) -> None:
    (run,) = (small[0] / "runs").iterdir()
    record = read_record(run) | {"verdict": "doubtful", "reasons": ["few episodes"]}
    write_json(tmp_path / "run.json", record)
    assert testbed.said_of(tmp_path) == {"verdict": "doubtful", "reasons": ["few episodes"]}


def test_a_family_whose_package_is_missing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(testbed, "spec_of", lambda name: f"no_such_package.{name}:family")
    words = ["--families", "many", "--work", str(tmp_path), "--results", str(tmp_path / "r")]
    assert testbed.main(words) == 0
    assert "many is left out" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_a_cell_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fall(*_: Any, **__: Any) -> None:
        raise RuntimeError("the fit fell over")

    monkeypatch.setattr(so, "fit", fall)
    words = ["--families", "indifferent", "--methods", "avg,random", "--seeds", "1"]
    words += ["--episodes", "1", "--work", str(tmp_path), "--results", str(tmp_path / "r.jsonl")]
    assert testbed.main(words) == 1
    assert "the fit fell over" in capsys.readouterr().out
    assert [cell["method"] for cell in lines(tmp_path)] == ["random"]


def test_plain_logs_name_no_family(tmp_path: Path) -> None:
    few = {"behaviour": "random", "episodes": 4}
    so.collect_dataset("navigation2d", tmp_path / "logs.h5", overrides=few).close()
    testbed.plain(tmp_path / "logs.h5", tmp_path / "plain.h5")
    with (
        so.load_dataset(tmp_path / "logs.h5") as logs,
        so.load_dataset(tmp_path / "plain.h5") as plain,
    ):
        assert logs.metadata.family == "navigation2d" and plain.metadata.family is None
        for one, other in zip(logs.episodes(), plain.episodes(), strict=True):
            assert one.instance == other.instance
            assert np.array_equal(one.observations, other.observations)

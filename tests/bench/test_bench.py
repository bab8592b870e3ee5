"""A bench from nothing: run, killed, continued, failed in part, refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sept_offline.errors import DataError
from sept_offline.family import load_family
from sept_offline.files import Lock
from sept_offline.seals import read_sealed, write_json
from sept_offline.settings import read_toml
from sept_offline.tools.bench import Plan, gather_finished, make_plan, run_bench
from sept_offline.tools.bench.statistics import grid
from sept_offline.tools.bench.store import TABLES, read_table
from sept_offline.tools.bench.summary import PAPER, markdown, summarise_bench, unlike
from tests.bench import coins
from tests.bench.coins import BROKEN, COIN, MARK, SHAKY, SMALL, tables
from tests.processes import start

ROOT = Path(__file__).parents[2]
LONGEST = 240.0


def plan(*families: str, methods: tuple[str, ...] = ("sept", "avg"), **more: Any) -> Plan:
    settings = {"seeds": 2, "settings": SMALL, **more}
    return make_plan(families or [COIN], methods, **settings)


def stamps(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "cells").glob("*.parquet")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench that nothing disturbed."""
    out = tmp_path_factory.mktemp("bench") / "whole"
    report = run_bench(plan(), out)
    assert (report.planned, report.found, report.ran, report.failed) == (4, 0, 4, ())
    return out


def test_everything_is_kept(whole: Path) -> None:
    found = tables(whole)
    assert len(found["results"]) == 4 * 4
    for row in found["results"]:
        assert row["return"] == pytest.approx(sum(row["reward"]))
        assert len(row["reward"]) == row["steps"] == 2
        assert row["probe_steps"] == (1 if row["method"] == "sept" else 0)
        assert (row["latent"] is None) == (row["method"] == "avg")
        assert row["data_seed"] == row["seed"] % 2
    for cell in found["cells"]:
        assert (cell["identification"] is None) == (cell["method"] == "avg")
        assert json.loads(cell["config"])["control"]["updates"] == 10
        assert json.loads(cell["versions"])["sept-offline"]
    assert len({cell["key"] for cell in found["cells"]}) == 4
    assert len({cell["content_hash"] for cell in found["cells"]}) == 2
    assert {row["stage"] for row in found["training"] if row["method"] == "avg"} == {"control"}
    latents = [row for row in found["latents"] if row["seed"] == 0]
    assert {row["method"] for row in latents} == {"sept"}
    # Of the forty logged episodes of each of two instances.
    assert len(latents) == 80 and {row["hidden"] for row in latents} == {
        '{"mode": -1.0}',
        '{"mode": 1.0}',
    }
    order = [(r["method"], r["seed"]) for r in found["cells"]]
    assert order == sorted(order)


def test_the_summary_is_of_those_episodes(whole: Path) -> None:
    summary = {row["method"]: row for row in summarise_bench(whole)}
    assert list(summary) == ["sept", "avg"]
    for method, row in summary.items():
        own = [r for r in read_table(whole, "results") if r["method"] == method]
        assert row["return"]["mean"] == pytest.approx(grid(own, "return")[2].mean())
        assert (row["seeds"], row["episodes"], row["normalised"]) == (2, 8, None)
    gap = summary["sept"]["against"]["avg"]["return"]
    expected = summary["sept"]["return"]["mean"] - summary["avg"]["return"]["mean"]
    assert gap["mean"] == pytest.approx(expected)
    text = (whole / "tables.md").read_text()
    assert "**coin: test episodes**" in text and "| sept | 2 | 8 |" in text


def test_a_finished_bench_runs_nothing_and_grows_by_what_is_new(
    whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "grown"
    shutil.copytree(whole, out)
    before, was = stamps(out), tables(out)
    report = run_bench(plan(), out)
    assert (report.found, report.ran) == (4, 0)
    assert stamps(out) == before and tables(out) == was
    report = run_bench(plan(methods=("avg",), vary=["propensities=estimated"], seeds=3), out)
    assert (report.planned, report.found, report.ran) == (6, 2, 4)
    assert before.items() <= stamps(out).items()
    assert len(tables(out)["cells"]) == 8


def test_other_settings_under_the_same_name_are_refused_or_replaced(
    whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "other"
    shutil.copytree(whole, out)
    with pytest.raises(DataError, match=r"4 finished cells .* another episodes.*--replace"):
        run_bench(plan(episodes=8), out)
    assert tables(out) == tables(whole)
    assert run_bench(plan(methods=("avg",), episodes=8), out, replace=True).ran == 2
    methods = [row["method"] for row in tables(out)["results"]]
    assert Counter(methods) == {"sept": 2 * 4, "avg": 2 * 8}


def test_a_cell_that_fails_when_it_is_replaced_leaves_no_old_figures(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "stale"
    shutil.copytree(whole, out)
    monkeypatch.setattr(coins, "coin", dataclasses.replace(coins.coin, make=coins.make_lost))
    report = run_bench(plan(methods=("avg",), episodes=8), out, replace=True)
    assert (report.found, report.ran, len(report.failed)) == (0, 0, 2)
    assert {row["method"] for row in read_table(out, "results")} == {"sept"}
    assert len(list((out / "replaced").iterdir())) == 2
    assert "avg" not in (out / "tables.md").read_text()


@pytest.mark.parametrize("change", ["test", "test_steps"])
def test_cells_of_a_family_that_has_changed_are_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    out, family = tmp_path / "changed", coins.coin
    shutil.copytree(whole, out)
    hidden = [{name: 3 * value for name, value in one.items()} for one in family.instances("test")]
    splits = dict(family.splits) | ({"test": hidden} if change == "test" else {})
    steps = family.test_steps + (change == "test_steps")
    changed = dataclasses.replace(family, splits=splits, test_steps=steps)
    monkeypatch.setattr(coins, "coin", changed)
    with pytest.raises(DataError, match=r"4 finished cells .* another world\.test"):
        run_bench(plan(), out)
    # Cells from before a world was recorded are as good as they were.
    for path in (out / "cells").glob("*.parquet"):
        strip(path, "world")
    report = run_bench(plan(), out)
    assert (report.found, report.ran) == (4, 0)


def strip(path: Path, key: str) -> None:
    """Let a cell's identity know nothing of `key`."""
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    identity = json.loads(metadata[b"bench.identity"])
    del identity[key]
    metadata[b"bench.identity"] = json.dumps(identity).encode()
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_logs_of_a_family_that_has_changed_are_refused(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, family = tmp_path / "changed", coins.coin
    shutil.copytree(whole, out)
    hidden = [{name: 3 * value for name, value in one.items()} for one in family.instances()]
    changed = dataclasses.replace(family, splits=dict(family.splits) | {"train": hidden})
    monkeypatch.setattr(coins, "coin", changed)
    with pytest.raises(DataError, match=r"another world\.logged"):
        run_bench(plan(), out)
    monkeypatch.setattr(coins, "coin", dataclasses.replace(family, train_steps=9))
    with pytest.raises(DataError, match=r"another world\.train_steps"):
        run_bench(plan(), out)
    # Logs from before it was recorded are taken as they are.
    monkeypatch.undo()
    for record in (out / "datasets").glob("*.json"):
        described = read_sealed(record, DataError)
        del described["world"]
        write_json(record, described)
    assert run_bench(plan(), out).found == 4


def test_cells_that_cannot_be_compared_are_reported(whole: Path) -> None:
    cells = read_table(whole, "cells")
    assert unlike(cells) == []
    assert "Not comparable" not in (whole / "tables.md").read_text()
    other = cells[0] | {"split": "train", "content_hash": "f" * 64}
    other["versions"] = json.dumps({"sept-offline": "0.0.1"})
    version, split, logs = unlike([other, *cells[1:]])
    assert "versions (0.0.1, " in version and "(test, train)" in split
    assert "one data seed (" in logs and f", {other['data_seed']})" in logs
    assert "**Not comparable:** coin" in markdown([], [version])


def test_logs_of_another_recipe_are_refused(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "recipe"
    shutil.copytree(whole, out)
    record = next((out / "datasets").glob("*.json"))
    changed = read_sealed(record, DataError)
    changed["recipe"]["behaviour"] = "expert"
    write_json(record, changed)
    with pytest.raises(DataError, match="another recipe"):
        run_bench(plan(), out)


def test_a_damaged_cell_and_a_second_bench_are_refused(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "damaged"
    shutil.copytree(whole, out)
    with (
        Lock(out / ".lock", DataError("")),
        pytest.raises(DataError, match="Another bench is running"),
    ):
        run_bench(plan(), out)
    cell = next((out / "cells").glob("*.parquet"))
    cell.write_bytes(cell.read_bytes()[:200])
    with pytest.raises(DataError, match=r"is damaged.*Delete it"):
        run_bench(plan(), out)
    cell.unlink()
    assert run_bench(plan(), out).ran == 1
    assert tables(out) == tables(whole)


def test_a_damaged_cell_that_is_not_planned_is_found_before_anything_runs(
    whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "damaged"
    shutil.copytree(whole, out)
    cell = next((out / "cells").glob("*~sept~*.parquet"))
    cell.write_bytes(cell.read_bytes()[:200])
    before = stamps(out)
    with pytest.raises(DataError, match=r"is damaged.*Delete it"):
        run_bench(plan(methods=("oracle",)), out)
    assert stamps(out) == before


def test_a_failed_cell_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    report = run_bench(plan(BROKEN, COIN, methods=("avg",), seeds=1), tmp_path)
    assert (report.planned, report.ran) == (2, 1)
    (failure,) = report.failed
    assert failure.name.startswith("broken~avg") and failure.attempts == 2
    assert "the coin rolled under the table" in failure.error
    assert json.loads((tmp_path / "failures.json").read_text())[0]["name"] == failure.name
    assert [cell["family"] for cell in read_table(tmp_path, "cells")] == ["coin"]


def test_a_cell_that_fails_once_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path / "shaken"))
    report = run_bench(plan(SHAKY, methods=("avg",), seeds=1), tmp_path / "bench")
    assert (report.ran, report.failed) == (1, ())
    assert (tmp_path / "shaken").exists()


def command(out: Path, *more: str) -> list[str]:
    words = ["--families", COIN, "--methods", "sept,avg", "--seeds", "2", "-o", str(out)]
    chosen = [part for setting in SMALL for part in ("--set", setting)]
    return ["bench", *words, *chosen, *more]


def kill_after(out: Path, cells: int, *more: str) -> bool:
    """Kill a bench as soon as this many cells exist; whether it was still running."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(*command(out, *more), cwd=ROOT, **quiet)
    until = time.monotonic() + LONGEST
    while process.poll() is None and time.monotonic() < until:
        if len(stamps(out)) >= cells:
            break
        time.sleep(0.002)
    process.kill()
    process.wait(LONGEST)
    return process.returncode == -signal.SIGKILL


def test_killed_and_continued_nothing_is_lost_or_run_twice(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    assert kill_after(out, 1, "--workers", "1")
    before = stamps(out)
    assert 1 <= len(before) < 4
    report = run_bench(plan(), out)
    assert (report.found, report.ran) == (len(before), 4 - len(before))
    assert before.items() <= stamps(out).items()
    assert tables(out) == tables(whole)


def test_cells_that_finished_before_a_kill_are_gathered_for_the_tables(
    whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    shutil.copytree(whole, out)
    for name in TABLES:  # the bench was killed before it gathered anything
        (out / f"{name}.parquet").unlink()
    with Lock(out / ".lock", DataError("")):
        gather_finished(out)
    assert not (out / "cells.parquet").exists()
    gather_finished(out)
    assert tables(out) == tables(whole) and not (out / ".lock").exists()


@pytest.mark.long
@pytest.mark.parametrize("cells", [0, 1, 2, 3])
def test_killed_with_two_workers(whole: Path, tmp_path: Path, cells: int) -> None:
    out = tmp_path / "killed"
    kill_after(out, cells, "--workers", "2")
    before = stamps(out)
    report = run_bench(plan(), out, workers=2)
    assert report.ran == 4 - len(before) and before.items() <= stamps(out).items()
    assert tables(out) == tables(whole)


def test_where_only_the_tables_were_kept_the_cells_are_made_from_them(
    whole: Path, tmp_path: Path
) -> None:
    for name in TABLES:
        shutil.copy(whole / f"{name}.parquet", tmp_path)
    shutil.copytree(whole / "datasets", tmp_path / "datasets")
    before = {name: (tmp_path / f"{name}.parquet").read_bytes() for name in TABLES}
    report = run_bench(plan(), tmp_path)
    assert (report.found, report.ran, report.failed) == (4, 0, ())
    assert stamps(tmp_path).keys() == stamps(whole).keys()
    assert {name: (tmp_path / f"{name}.parquet").read_bytes() for name in TABLES} == before


def test_tables_that_cannot_be_made_into_cells_are_not_replaced(
    whole: Path, tmp_path: Path
) -> None:
    kept = [name for name in TABLES if name != "latents"]
    for name in kept:
        shutil.copy(whole / f"{name}.parquet", tmp_path)
    before = {name: (tmp_path / f"{name}.parquet").read_bytes() for name in kept}
    with pytest.raises(DataError, match=r"neither cells nor latents\.parquet"):
        run_bench(plan(methods=("oracle",)), tmp_path)
    assert {name: (tmp_path / f"{name}.parquet").read_bytes() for name in kept} == before


def test_a_cell_that_was_taken_out_by_hand_is_run_again(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench"
    shutil.copytree(whole, out)
    taken = sorted((out / "cells").glob("*.parquet"))[0]
    taken.unlink()
    assert run_bench(plan(), out).ran == 1
    assert taken.exists()


def test_the_papers_figures_are_those_the_families_show() -> None:
    for name, figures in read_toml(PAPER).items():
        steps = {method: value for method, (value, _) in figures.get("steps_to_solve", {}).items()}
        assert steps == dict(load_family(name).published)

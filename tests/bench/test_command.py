"""`sept-offline bench` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Sheet

from tests.bench.coins import BROKEN, COIN, SMALL
from tests.cli.commands import refused, run, run_json

WORDS = [part for setting in SMALL for part in ("--set", setting)]


def arguments(family: str, *more: str) -> list[str]:
    return ["bench", "--families", family, "--methods", "avg,oracle", "--seeds", "1", *WORDS, *more]


@pytest.fixture(scope="module", autouse=True)
def empty_figures() -> Iterator[None]:
    """Drawing them takes most of the time of these commands: test_figures.py does it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sept_offline.tools.bench.figures.draw", lambda _: Sheet(figsize=(3, 2)))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    done = run(*arguments(COIN, "--workers", "1"), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "coin: test episodes" in done.stdout and "2 of 2 cells, 2 of them new" in done.stdout
    assert "cells: 2/2  running 0  failed 0" in done.stderr
    return folder


def test_the_same_command_has_nothing_left_to_do(made: Path) -> None:
    found = run_json(*arguments(COIN, "--quiet"), cwd=made)
    assert (found["cells"], found["found"], found["ran"], found["failed"]) == (2, 2, 0, [])
    assert [row["method"] for row in found["summary"]] == ["avg", "oracle"]
    assert found["summary"][1]["needs"] == ["hidden"]


def test_tables_are_drawn_without_running_anything(made: Path) -> None:
    drawn = (made / "bench" / "tables.md").read_text()
    (made / "bench" / "tables.md").unlink()
    before = sorted(path.name for path in (made / "bench").iterdir())
    (made / "bench" / "cells.parquet").unlink()  # as if killed before it gathered its cells
    found = run_json("bench", "--tables-only", cwd=made)
    assert [row["method"] for row in found["summary"]] == ["avg", "oracle"]
    assert (made / "bench" / "tables.md").read_text() == drawn
    assert sorted(path.name for path in (made / "bench").iterdir()) == sorted(
        [*before, "tables.md"]
    )


def test_a_failed_cell_is_exit_code_1(tmp_path: Path) -> None:
    done = run(*arguments(BROKEN, "--workers", "1", "--json", "--quiet"), cwd=tmp_path)
    assert done.returncode == 1
    assert "rolled under the table" in done.stderr and "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert len(found["failed"]) == 2 and found["ran"] == 0 and found["summary"] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--families", "navigaton2d"], "did you mean 'navigation2d'"),
        (["--families", ","], "contains no names"),
        (["--methods", " "], "contains no names"),
        (["--methods", "orcale"], "did you mean 'oracle'"),
        (["--preset", "quik"], "expected one of default, paper, segment"),
        (["--engine", "rey"], "did you mean 'ray'"),
        (["--set", "control.updats=3"], "did you mean 'updates'"),
        (["--tables-only"], "There is no bench/results.parquet"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, tmp_path: Path
) -> None:
    assert sentence in refused("bench", *words, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []

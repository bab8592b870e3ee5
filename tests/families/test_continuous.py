"""The table of the methods with continuous actions, from cells whose figures are known by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import continuous
from benchmarks.testbed import append


def cell(row: str, seed: int, *totals: float) -> continuous.Cell:
    return {
        "family": "pendulum",
        "row": row,
        "seed": seed,
        "content_hash": "0",
        "instances": {f"test-{index}": total for index, total in enumerate(totals)},
        "fit_seconds": 10.0,
    }


def test_the_table_shows_returns_differences_and_the_share_of_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.jsonl"
    for seed in (0, 1):
        append(path, cell("sept", seed, -4.0, -2.0))
        append(path, cell("avg", seed, -8.0, -6.0))
        append(path, cell("oracle", seed, -3.0, -1.0))
    append(path, cell("focal with rewards", 0, -5.0, -2.0))
    append(path, cell("avg", 2, -99.0, -99.0))
    append(path, cell("sept", 2, -4.0, -2.0))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"family": "pendulum", "row": "csro wi')
    words = ["--only-table", "--results", str(path)]
    assert continuous.main(words) == 0
    shown = capsys.readouterr().out
    assert "| `sept` | 3 | -3 ± 1 | -3 |  | 10 |" in shown
    assert "| `avg` | 3 | -37.7 ± 0.667 | -99 | 34.7 [4, " in shown
    # one seed: the interval is that of two instances
    assert "| `focal` with rewards | 1 | -3.5 ± 1.5 | -3.5 | 0.5 [0, 1] | 10 |" in shown
    # over the seeds of all three
    assert "`sept` closes 0.80 of the gap between `avg` and `oracle`." in shown
    assert "csro" not in shown


def test_cells_of_earlier_logs_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.jsonl"
    append(path, cell("history", 0, -9.0, -9.0))
    append(path, cell("sept", 0, -9.0, -9.0) | {"family": "point-robot-wind"})
    append(path, cell("sept", 0, -4.0, -2.0) | {"content_hash": "1"})
    append(path, cell("sept", 1, -8.0, -6.0) | {"content_hash": "1"})
    assert continuous.main(["--only-table", "--results", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "| `sept` | 2 | -5 ± 1 | -7 |" in shown
    assert "history" not in shown and "| `sept` | 1 | -9 ± 0 | -9 |" in shown


def test_there_is_no_way_where_the_oracle_is_not_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.jsonl"
    for row in ("sept", "avg", "oracle"):
        append(path, cell(row, 0, -4.0, -2.0))
    assert continuous.main(["--only-table", "--results", str(path)]) == 0
    assert "of the way" not in capsys.readouterr().out


def test_every_rival_has_a_row_with_rewards_and_one_without() -> None:
    for name in continuous.RIVALS:
        assert continuous.ROWS[f"{name} with rewards"] == (name, (f"{name}.rewards=true",))
        assert continuous.ROWS[f"{name} without rewards"] == (name, (f"{name}.rewards=false",))

"""The study of the other methods' settings: what it runs next, what it chooses and shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import tuning
from benchmarks.continuous import read
from benchmarks.testbed import append
from sept_offline.settings import FitConfig, build, parse_settings


def cell(settings: tuple[str, ...], split: str, seed: int, *steps: float) -> tuning.Cell:
    return {
        "family": "navigation2d",
        "method": "history",
        "settings": list(settings),
        "seed": seed,
        "split": split,
        "content_hash": "0",
        "unit": "steps",
        "instances": {f"{split}-{index}": value for index, value in enumerate(steps)},
        "solved": 1.0,
    }


TRIED = dict(zip(tuning.TRIES["history"], (20.0, 18.0, 15.0, 15.0, 30.0), strict=True))


def tried() -> list[tuning.Cell]:
    return [cell(settings, "validation", 0, steps, steps) for settings, steps in TRIED.items()]


def test_every_method_has_five_tries_and_the_first_is_its_preset() -> None:
    for tries in tuning.TRIES.values():
        assert len(set(tries)) == len(tries) == 5
        assert tries[0] == ()


def test_nothing_is_tested_before_all_tries_have_run() -> None:
    cells = tried()[:-1]
    assert tuning.best_of(cells, "navigation2d", "history") is None
    assert {c["split"] for c in tuning.pending(cells, "navigation2d", "history")} == {"validation"}


def test_the_earliest_of_the_best_tries_is_tested_beside_the_preset() -> None:
    cells = list(tuning.pending(tried(), "navigation2d", "history"))
    assert {c["split"] for c in cells} == {"test"}
    assert [c["settings"] for c in cells[:: tuning.SEEDS]] == [["history_steps=8"], []]
    assert [c["seed"] for c in cells] == list(range(tuning.SEEDS)) * 2


def test_a_normalised_return_is_better_if_it_is_higher() -> None:
    cells = [one | {"unit": "score"} for one in tried()]
    best = tuning.best_of(cells, "navigation2d", "history")
    assert best == ("control.algorithm=discrete_cql",)


def test_the_table_shows_tries_and_the_change_on_test_instances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.jsonl"
    append(path, cell((), "validation", 0, 99.0) | {"content_hash": "earlier"})
    for one in tried():
        append(path, one)
    for seed in (0, 1):
        append(path, cell(("history_steps=8",), "test", seed, 14.0, 16.0))
        append(path, cell((), "test", seed, 17.0 + seed, 19.0 + seed))
    assert tuning.main(["--only-table", "--results", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "| 20, 18, 15, 15, 30 | `history_steps=8` |" in shown
    assert "| 18.5 [18, 19], 100% solved | 15 [15, 15], 100% solved; -3.5 [" in shown
    assert len(read(path, tuning.FIELDS)) == 9


@pytest.mark.parametrize("method", sorted(tuning.TRIES))
def test_all_settings_of_the_tries_exist(method: str) -> None:
    for settings in tuning.TRIES[method]:
        build(FitConfig, parse_settings(settings))

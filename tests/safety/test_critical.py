"""Nothing in a file runs, nothing that it names is contacted, nothing of a user's is deleted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sept_offline as so
from sept_offline.errors import FamilyError
from sept_offline.methods.preset import preset_values

Command = Callable[..., tuple[int, str]]
Edit = Callable[..., None]
COLLECT = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "4", "--quiet")


# 1. A string in a file imports no code


@pytest.mark.parametrize("key", ["family", "dataset"])
def test_report_imports_nothing_that_a_run_names(
    folder: Path, command: Command, edit: Edit, key: str
) -> None:
    edit(folder / "run" / "run.json", **{key: "evil:family"})
    (folder / "run" / "results.parquet").unlink()
    code, said = command("report", "run", "--quiet")
    assert code == 0, said
    assert not (folder / "executed").exists() and "evil" not in sys.modules


def test_evaluate_imports_nothing_and_says_how_to_name_a_family(
    folder: Path, command: Command
) -> None:
    # the logs say extra.family_object = "evil:family", which fit has copied into agent.json
    assert "evil:family" in (folder / "run" / "agent" / "agent.json").read_text()
    code, said = command("evaluate", "run")
    assert code == 2 and "--family my_module:my_family" in said
    assert not (folder / "executed").exists() and "evil" not in sys.modules
    with pytest.raises(FamilyError, match="--family my_module:my_family"):
        so.evaluate(so.load_agent("run"))


def test_a_typed_family_is_imported_from_where_the_user_stands(
    folder: Path, command: Command
) -> None:
    code, _ = command("evaluate", "run", "--family", "evil:family")
    assert code == 2 and (folder / "executed").exists()


def test_no_package_is_looked_for_where_the_user_stands(folder: Path, command: Command) -> None:
    command("validate", "logs.h5")
    assert str(folder) not in sys.path


def test_bench_tables_import_nothing(folder: Path, command: Command) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from sept_offline.tools.bench.store import schema

    (folder / "bench").mkdir()
    named = {"family": "evil:family", "method": "avg", "preset": "default", "variant": "base"}
    named |= {"data_seed": 0, "seed": 0}
    rows: dict[str, dict[str, Any]] = {
        "results": {"return": 1.0, "steps": 1, "instance": "test-0", "reward": [1.0]},
        "cells": {
            "key": "0",
            "content_hash": "0",
            "split": "test",
            "limit": 4,
            "episodes": 1,
            "needs": [],
            "learns": False,
            "behaviour_estimated": False,
            "record": "{}",
            "config": "{}",
            "versions": json.dumps({"sept-offline": "0"}),
            "identity": "{}",
        },
        "training": {"stage": "control", "update": 1, "metric": "max_q", "value": 1.0},
        "latents": {"instance": "train-0", "hidden": None, "z": [1.0]},
    }
    for name, row in rows.items():
        table = pa.Table.from_pylist([named | row], schema=schema(name))
        pq.write_table(table, folder / "bench" / f"{name}.parquet")
    command("bench", "--tables-only", "-o", "bench")
    assert not (folder / "executed").exists() and "evil" not in sys.modules


def test_a_family_is_never_part_of_a_path(tmp_path: Path) -> None:
    usual = preset_values(None, "default")
    assert preset_values("../presets/hiv", "default") == usual
    assert preset_values("hiv", "default") != usual


# 2. What a file names is opened only if it is local


def test_report_contacts_no_host_that_a_run_names(
    folder: Path, command: Command, edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def contact(uri: str) -> None:
        called.append(uri)
        raise OSError("nobody is there")

    monkeypatch.setattr("sept_offline.data.filesystems._from_uri", contact)
    place = "s3://bucket/x?endpoint_override=127.0.0.1:9&scheme=http"
    edit(folder / "run" / "run.json", dataset=place)
    code, said = command("report", "run", "--quiet")
    assert code == 0 and not called, said
    assert "unless you name it" in (folder / "report.html").read_text()
    command("report", "run", "--quiet", "--dataset", place)
    assert called


# 3. Only what carries our own mark is replaced


@pytest.mark.parametrize("more", [(), ("--restart",)])
@pytest.mark.parametrize("name", ["agent", "checkpoints", "metrics.csv", "results.parquet"])
def test_fit_leaves_a_folder_alone_that_was_never_a_run(
    folder: Path, command: Command, name: str, more: tuple[str, ...]
) -> None:
    own = folder / "mine" / name
    (own if "." in name else own / "notes.txt").parent.mkdir(parents=True)
    kept = own if "." in name else own / "notes.txt"
    kept.write_text("months of work\n")
    code, said = command("fit", "logs.h5", "--method", "avg", "--quiet", "-o", "mine", *more)
    assert code == 2 and name in said
    assert kept.read_text() == "months of work\n"


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("agent/notes.txt", "notes.txt"),
        ("checkpoints/notes.txt", "notes.txt"),
        ("tensorboard/notes.txt", "notes.txt"),
        ("tensorboard/events.out.tfevents.kept/notes.txt", "events.out.tfevents.kept"),
    ],
)
def test_fit_restart_deletes_nothing_else_in_a_run(
    folder: Path, command: Command, place: str, named: str
) -> None:
    kept = folder / "run" / place
    kept.parent.mkdir(exist_ok=True, parents=True)
    kept.write_text("months of work\n")
    before = (folder / "run" / "agent" / "agent.json").read_bytes()
    code, said = command("fit", "logs.h5", "--method", "avg", "-o", "run", "--restart", "--quiet")
    assert code == 2 and named in said
    assert kept.exists() and (folder / "run" / "agent" / "agent.json").read_bytes() == before


@pytest.mark.parametrize("more", [(), ("--restart",), ("--resume",)])
def test_collect_leaves_a_foreign_partial_folder_alone(
    tmp_path: Path, command: Command, more: tuple[str, ...]
) -> None:
    kept = tmp_path / "x.h5.partial" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("months of work\n")
    code, said = command(*COLLECT, "-o", tmp_path / "x.h5", *more)
    assert code == 2 and "notes.txt" in said and kept.exists()
    assert [path.name for path in kept.parent.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("more", [(), ("--restart",)])
def test_collect_deletes_nothing_foreign_in_a_directory(
    tmp_path: Path, command: Command, more: tuple[str, ...]
) -> None:
    assert command(*COLLECT, "-o", tmp_path / "x")[0] == 0
    kept = tmp_path / "x" / "notes.txt"
    kept.write_text("months of work\n")
    code, said = command(*COLLECT, "-o", tmp_path / "x", *more)
    assert code == 2 and kept.exists()
    if more:
        assert "notes.txt" in said


def test_a_writer_leaves_a_foreign_scratch_folder_alone(tmp_path: Path, command: Command) -> None:
    kept = tmp_path / ".y.parquet.writing" / "notes.txt"
    kept.parent.mkdir()
    kept.write_text("months of work\n")
    assert command(*COLLECT, "-o", tmp_path / "x.h5")[0] == 0
    code, said = command("convert", tmp_path / "x.h5", tmp_path / "y.parquet")
    assert code == 2 and ".y.parquet.writing" in said and kept.exists()


def test_export_keeps_what_it_did_not_make(folder: Path, command: Command) -> None:
    export = ("export", "run", "--numpy", "--observations", "5", "-o", "out")
    assert command(*export)[0] == 0
    (folder / "out" / "__pycache__").mkdir()
    (folder / "out" / "__pycache__" / "runtime.cpython-311.pyc").touch()
    compiled = folder / "out" / "modules" / "agent" / "__pycache__"
    compiled.mkdir()
    (compiled / "agent.cpython-311.pyc").touch()
    assert command(*export)[0] == 0
    assert not compiled.exists() and not list(folder.glob(".out*"))
    inside = folder / "out" / "modules" / "agent" / "mine.py"
    inside.write_text("months = 'of work'\n")
    code, said = command(*export)
    assert code == 2 and "modules/agent/mine.py" in said and inside.exists()
    inside.unlink()
    kept = folder / "out" / "notes.txt"
    kept.write_text("months of work\n")
    code, said = command(*export)
    assert code == 2 and "notes.txt" in said and kept.exists()
    assert not list(folder.glob(".out*"))


def test_bench_leaves_a_folder_alone_that_is_none(folder: Path, command: Command) -> None:
    (folder / "mine").mkdir()
    kept = folder / "mine" / "results.parquet"
    kept.write_text("months of work\n")
    bench = ("bench", "--quick", "--families", "navigation2d", "--methods", "avg", "--workers", "1")
    code, said = command(*bench, "--quiet", "-o", "mine")
    assert code == 2 and "results.parquet" in said and kept.read_text() == "months of work\n"


def test_save_agent_replaces_agents_only(folder: Path) -> None:
    agent = so.load_agent("run")
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("months of work\n")
    with pytest.raises(so.SeptError, match=r"notes\.txt"):
        so.save_agent(agent, "mine")
    so.save_agent(agent, "copy")
    so.save_agent(agent, "copy")
    assert sorted(path.name for path in (folder / "copy").iterdir()) == [
        "agent.json",
        "weights.safetensors",
    ]
    assert not list(folder.glob(".copy*"))

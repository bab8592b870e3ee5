"""Smaller things that ended in a traceback, a hang, or with something replaced."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import foreign, make_bench
from sept_offline.errors import ConfigError, DataError, SeptError
from sept_offline.seals import parse_json
from tests import processes

Command = Callable[..., tuple[int, str]]
Edit = Callable[..., None]
DEEP, LONG = "[" * 100_000, "9" * 5000


@pytest.mark.parametrize("text", [DEEP, '{"method": ' * 50_000, LONG, f'{{"seed": {LONG}}}', "[]"])
def test_strange_json_is_one_sentence(folder: Path, command: Command, text: str) -> None:
    (folder / "run" / "run.json").write_text(text)
    code, said = command("report", "run", "--quiet")
    assert code == 2 and "run.json" in said
    (folder / "run" / "agent" / "agent.json").write_text(text)
    code, said = command("evaluate", "run", "--family", "navigation2d")
    assert code == 2 and "agent.json" in said


@pytest.mark.parametrize(
    "text",
    [
        f"history_steps = {LONG}",
        f"x = {DEEP}",
        "history_steps = " + "9" * 400,
        "x = " + "{a=" * 5000,
    ],
)
def test_strange_toml_is_one_sentence(folder: Path, command: Command, text: str) -> None:
    (folder / "config.toml").write_text(text)
    code, said = command(
        "fit", "logs.h5", "--method", "avg", "--config", "config.toml", "-o", "new"
    )
    assert code == 2 and said.startswith("Error:") and not (folder / "new").exists()


@pytest.mark.parametrize(
    "setting", [f"history_steps={LONG}", f"x={DEEP}", "control.gamma=1" + "0" * 400]
)
def test_strange_settings_are_one_sentence(folder: Path, command: Command, setting: str) -> None:
    code, said = command("fit", "logs.h5", "--method", "avg", "--set", setting, "-o", "new")
    assert code == 2 and len(said.splitlines()) == 1 and len(said) < 500


def test_a_bad_byte_in_the_metrics_is_named(folder: Path, command: Command) -> None:
    path = folder / "run" / "metrics.csv"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] = 0xFF
    path.write_bytes(bytes(content))
    code, said = command("report", "run", "--quiet")
    assert code == 0, said
    assert "Its training cannot be shown" in (folder / "report.html").read_text()


@pytest.mark.parametrize("column", ["family", "needs", "return"])
def test_bench_tables_with_other_columns_are_named(tmp_path: Path, column: str) -> None:
    from sept_offline.tools.bench.store import read_table, schema

    name = "results" if column == "return" else "cells"
    table = schema(name).empty_table()
    pq.write_table(table.drop_columns([column]), tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=column):
        read_table(tmp_path, name)
    place = table.column_names.index(column)
    other = table.set_column(place, column, pa.nulls(0, pa.timestamp("ns")))
    pq.write_table(other, tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match="another type"):
        read_table(tmp_path, name)


@pytest.mark.parametrize(
    "versions", ['{"sept-offline": []}', "{}", '{"sept-offline": "1", "x": 2}']
)
def test_versions_that_are_not_names_are_refused(tmp_path: Path, versions: str) -> None:
    from sept_offline.tools.bench.store import read_table

    make_bench(tmp_path)
    table = pq.read_table(tmp_path / "cells.parquet").replace_schema_metadata()
    place = table.column_names.index("versions")
    edited = table.set_column(place, "versions", pa.array([versions] * len(table)))
    pq.write_table(edited, tmp_path / "cells.parquet")
    with pytest.raises(DataError, match="versions does not name"):
        read_table(tmp_path, "cells")


def test_a_damaged_d4rl_file_is_one_sentence(folder: Path, command: Command) -> None:
    foreign(folder)
    content = (folder / "d4rl.hdf5").read_bytes()
    for place in range(0, len(content), 97):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        (folder / "d4rl.hdf5").write_bytes(bytes(changed))
        try:
            from sept_offline.tools.importing import import_logs, mapping_from

            import_logs(["d4rl.hdf5"], folder / "new.h5", mapping_from({}))
        except SeptError as error:
            assert "\n" not in str(error)


def test_nanoseconds_may_be_ids(folder: Path, command: Command) -> None:
    stamps = pa.array([1, 1, 2, 2], type=pa.int64()).cast(pa.timestamp("ns"))
    table = pa.table(
        {
            "instance": ["a"] * 4,
            "episode": stamps,
            "time": [0, 1, 0, 1],
            "pulse": [0.5, 0.25, 0.5, 0.75],
            "action": ["on", "off", "on", "off"],
            "reward": [0.0, 1.0, 0.0, 1.0],
            "terminated": [False, True, False, True],
        }
    )
    pq.write_table(table, folder / "steps.parquet")
    arguments = ("--observations", "pulse", "--keep-terminal", "--quiet")
    code, said = command("import", "steps.parquet", "-o", "new.h5", *arguments)
    assert code == 0, said


WITHOUT = """
import os, sys
name = sys.argv.pop()
os.close(("stdin", "stdout", "stderr").index(name))
# as an interpreter has it that finds a stream closed
setattr(sys, name, None)
setattr(sys, f"__{name}__", None)
from sept_offline.cli import main
try:
    main()
except SystemExit as done:
    os._exit(done.code or 0)
"""


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_ends_no_command(folder: Path, name: str) -> None:
    found = processes.run("validate", "logs.h5", "--quiet", name, code=WITHOUT, cwd=folder)
    assert found.returncode == 0 and "Traceback" not in found.stderr, found.stderr


def test_closed_streams_end_no_interpreter(folder: Path) -> None:
    program = f'{sys.executable} -c "from sept_offline.cli import main; main()"'
    closed = "<&- >&- 2>&-"
    found = subprocess.run(
        f"{program} validate logs.h5 --quiet {closed}", shell=True, capture_output=True, check=False
    )
    assert found.returncode == 0 and b"Traceback" not in found.stderr


def test_a_pipe_or_a_device_is_refused_by_name(folder: Path, command: Command) -> None:
    os.mkfifo(folder / "pipe.h5")
    (folder / "zero.parquet").symlink_to("/dev/zero")
    for name in ("pipe.h5", "zero.parquet"):
        for words in (
            ("validate", name),
            ("import", name, "-o", "new.h5"),
            ("convert", name, "x.h5"),
        ):
            code, said = command(*words)
            assert code == 2 and name in said and "a pipe or a device" in said
    code, said = command("fit", "logs.h5", "--config", "/dev/zero")
    assert code == 2 and "/dev/zero" in said


def test_what_a_killed_export_left_is_cleared_away(folder: Path, command: Command) -> None:
    left = folder / f".out-{'0' * 32}"
    left.mkdir()
    (left / "manifest.json").write_text("{}")
    export = ("export", "run", "--numpy", "--observations", "5", "-o", "out")
    assert command(*export)[0] == 0
    assert not left.exists()
    # killed between its two renames, where the system cannot exchange folders at once
    (folder / "out").rename(folder / f".out-{'0' * 32}.old")
    assert command(*export)[0] == 0
    assert not list(folder.glob(".out*"))


def test_errors_are_one_line(folder: Path, command: Command, edit: Edit) -> None:
    edit(folder / "run" / "run.json", preset=["a\nb"])
    code, said = command("report", "run", "--quiet")
    assert code == 2 and len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["out.h5", "out.parquet", "out.html"])
def test_an_output_behind_a_link_is_written_where_the_link_leads(
    folder: Path, command: Command, name: str
) -> None:
    (folder / "elsewhere").mkdir()
    target = folder / "elsewhere" / name
    target.write_text("old")
    (folder / name).symlink_to(target)
    words = ("report", "run", "-o", name) if name == "out.html" else ("convert", "logs.h5", name)
    assert command(*words, "--quiet")[0] == 0
    assert (folder / name).is_symlink() and target.stat().st_size > 1000


def test_an_edited_setting_is_noticed(folder: Path) -> None:
    path = folder / "run" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"seed": 1}, indent=2))
    with pytest.raises(DataError, match="checksum"):
        so.fit("logs.h5", "avg", out="run", resume=True)


def test_an_export_with_a_wrong_manifest_is_refused(folder: Path, edit: Edit) -> None:
    from sept_offline.tools.deploy import export, load_export

    export(so.load_agent("run"), folder / "out", "numpy", observations=5)
    for values in ({"context": "x"}, {"range": {}}, {"probe_steps": 10**9}, {"form": {}}):
        before = (folder / "out" / "manifest.json").read_bytes()
        edit(folder / "out" / "manifest.json", **values)
        with pytest.raises(SeptError):
            load_export(folder / "out")
        (folder / "out" / "manifest.json").write_bytes(before)


def test_an_export_names_neither_other_files_nor_contexts_of_elsewhere(
    folder: Path, edit: Edit
) -> None:
    from sept_offline.tools.deploy import export, load_export

    export(so.load_agent("run"), folder / "out", "numpy", observations=5)
    path = folder / "out" / "manifest.json"
    before = path.read_bytes()
    written = json.loads(before)
    for name in ("modules/../../logs.h5", "modules/mine.txt", "/etc/hostname"):
        edit(path, files=written["files"] | {name: "0" * 64})
        with pytest.raises(SeptError, match="do not belong to an export"):
            load_export(folder / "out")
        path.write_bytes(before)
    for kind in ("planning", "inferred", "adapted", "unknown"):
        edit(path, context=written["context"] | {"kind": kind})
        with pytest.raises(SeptError, match="no context of kind"):
            load_export(folder / "out")
        path.write_bytes(before)


def test_a_number_that_no_float_can_hold_is_refused() -> None:
    from sept_offline.settings import MamlConfig, build

    with pytest.raises(ConfigError, match="inner_rate"):
        build(MamlConfig, {"inner_rate": 10**400})


def test_column_names_that_are_not_text_are_one_sentence(folder: Path, command: Command) -> None:
    pq.write_table(pa.table({"instance": ["a"], "rewards_": [1.0]}), folder / "steps.parquet")
    content = (folder / "steps.parquet").read_bytes()
    (folder / "steps.parquet").write_bytes(content.replace(b"rewards_", b"rew\xe1rds_"))
    code, said = command("import", "steps.parquet", "-o", "new.h5", "--quiet")
    assert code == 2 and "steps.parquet" in said


@pytest.mark.parametrize("content", ['{"a": "\\ud800"}', b'{"\\uD800": 1}'])
def test_half_of_a_character_is_refused(content: str | bytes) -> None:
    with pytest.raises(DataError, match=r"x\.json is damaged: it is not valid JSON"):
        parse_json(content, "x.json", DataError)
    assert parse_json('{"a": "\\ud83d\\ude00"}', "x.json", DataError) == {"a": "\U0001f600"}


@pytest.mark.parametrize("name", ["_manifest.json", "_privileged.json", "_plan.json"])
def test_a_pipe_in_a_directory_of_parts_is_refused(
    tmp_path: Path, command: Command, name: str
) -> None:
    collect = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "4", "--quiet")
    assert command(*collect, "-o", tmp_path / "parts")[0] == 0
    (tmp_path / "parts" / name).unlink(missing_ok=True)
    if name == "_plan.json":
        (tmp_path / "parts" / "_manifest.json").unlink()
    os.mkfifo(tmp_path / "parts" / name)
    for words in (("validate",), ("inspect",), ("convert",)):
        more = (tmp_path / "new.h5",) if words == ("convert",) else ()
        code, said = command(*words, tmp_path / "parts", *more)
        assert code == 2 and "a pipe or a device" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hole.h5", ("validate", "hole.h5")),
        ("hole.parquet", ("validate", "hole.parquet")),
        ("hole.csv", ("import", "hole.csv", "--observations", "x", "-o", "new.h5")),
        ("run/agent/weights.safetensors", ("evaluate", "run", "--family", "navigation2d")),
        ("parts/_manifest.json", ("validate", "parts")),
    ],
)
def test_a_file_of_holes_is_not_read(
    folder: Path, command: Command, name: str, words: tuple[str, ...]
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)
    code, said = command(*words)
    assert code == 2 and "1,099,511,627,776 bytes" in said


def test_a_first_line_without_an_end_is_not_read_into_memory(
    folder: Path, command: Command
) -> None:
    with gzip.open(folder / "steps.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"a," * (1 << 19))
    code, said = command("import", "steps.csv.gz", "--observations", "a", "-o", "new.h5")
    assert code == 2 and "column names longer than" in said


def test_a_column_name_of_many_lines_is_quoted_in_one(folder: Path) -> None:
    rows = "".join(f"w0,0,{time},0.5,off,0.1\n" for time in range(4))
    # the quote is never closed: the rest of the file is the name of a column
    (folder / "steps.csv").write_text(f'instance,episode,time,",action,reward\n{rows}')
    with pytest.raises(SeptError, match=r"steps\.csv") as refused:
        so.import_logs("steps.csv", "new.h5")
    assert len(str(refused.value).splitlines()) == 1 and "off" in str(refused.value)


@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", "\x1b[31mred", "x" * 10_000, "a\u2028b"])
def test_whatever_an_error_quotes_it_is_one_line(name: str) -> None:
    said = str(DataError(f"There is no column {name}."))
    assert len(said.splitlines()) == 1 and "\x1b" not in said and len(said) <= 4000
    assert said.startswith("There is no column ")

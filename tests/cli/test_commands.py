"""What every command does, says and refuses."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import h5py
import numpy as np
from commands import refused, run, run_code, run_fresh, run_json, start

import sept_offline as so
from tests.processes import Process

LONG = ("collect", "hiv", "--behaviour", "random", "--episodes", "20000", "-o", "long.h5")


def test_collect_says_what_it_made(tmp_path: Path) -> None:
    arguments = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "10")
    made = run_json(*arguments, "-o", "a.h5", cwd=tmp_path)
    assert made["path"] == "a.h5"
    assert (made["instances"], made["episodes"]) == (2, 10)
    data = so.load_dataset(tmp_path / "a.h5")
    assert (data.num_steps, data.content_hash) == (made["steps"], made["content_hash"])
    result = run(*arguments, "-o", "b.parquet", cwd=tmp_path)
    assert result.returncode == 0
    assert "10 episodes" in result.stdout and made["content_hash"][:16] in result.stdout
    assert "episodes: 10/10" in result.stderr
    assert run(*arguments, "-o", "c.h5", "--quiet", cwd=tmp_path).stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.parquet", "c.h5"]


def test_inspect(made: Path) -> None:
    summary = run_json("inspect", "nav.h5", cwd=made)
    assert (summary["instances"], summary["episodes"]) == (2, 60)
    assert summary["content_hash"] == so.load_dataset(made / "nav.h5").content_hash
    table = run("inspect", "nav.h5", cwd=made)
    assert table.returncode == 0 and table.stderr == ""
    for word in ("train-0", "train-1", "60 episodes", "navigation2d"):
        assert word in table.stdout


def test_validate(made: Path) -> None:
    assert run_json("validate", "nav.h5", cwd=made)["ok"] is True
    result = run("validate", "nav.h5", cwd=made)
    assert result.returncode == 0 and "nav.h5 is valid." in result.stdout


def test_a_damaged_file_is_reported_and_not_changed(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "nav.h5", tmp_path / "bad.h5")
    with h5py.File(tmp_path / "bad.h5", "r+") as file:
        rewards = next(item for name, item in _datasets(file).items() if name.endswith("rewards"))
        rewards[3] = float("nan")
    before = (tmp_path / "bad.h5").read_bytes()
    done = run("validate", "bad.h5", "--json", "--quiet", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["ok"] is False and done.stdout.count("\n") == 1
    assert done.stderr.startswith("Error: ") and "bad.h5" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "rewards" in run("validate", "bad.h5", cwd=tmp_path).stdout
    assert run("fit", "bad.h5", "-o", "run", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "run").exists()
    assert (tmp_path / "bad.h5").read_bytes() == before


def test_no_dataset_at_all(tmp_path: Path) -> None:
    (tmp_path / "cut.h5").write_bytes(b"\x89HDF\r\n\x1a\n then nothing")
    for command in ("inspect", "validate", "fit"):
        assert "missing.h5" in refused(command, "missing.h5", cwd=tmp_path)
    for command in ("inspect", "fit"):
        assert "cut.h5" in refused(command, "cut.h5", cwd=tmp_path)
    assert run("validate", "cut.h5", cwd=tmp_path).returncode == 2
    assert "nowhere" in refused("evaluate", "nowhere", cwd=tmp_path)


def test_convert_there_and_back(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "nav.h5", tmp_path)
    there = run_json("convert", "nav.h5", "nav.parquet", cwd=tmp_path)
    back = run_json("convert", "nav.parquet", "again.h5", cwd=tmp_path)
    assert there["content_hash"] == back["content_hash"]
    assert back["content_hash"] == so.load_dataset(made / "nav.h5").content_hash
    assert run_json("validate", "again.h5", cwd=tmp_path)["ok"] is True
    assert "nav.csv" in refused("convert", "nav.h5", "nav.csv", cwd=tmp_path)


def collect(folder: Path, name: str, seed: int) -> None:
    options = ("--behaviour", "random", "--episodes", 4, "--seed", seed, "-o", name)
    assert run("collect", "navigation2d", *options, cwd=folder).returncode == 0


def test_merge_makes_one_of_two_files(tmp_path: Path) -> None:
    collect(tmp_path, "a.h5", 0)
    collect(tmp_path, "b.parquet", 1)
    done = run("merge", "a.h5", "b.parquet", "-o", "c.h5", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["path"], found["instances"], found["episodes"]) == ("c.h5", 2, 8)
    result = run("merge", "a.h5", "b.parquet", "-o", "d.h5", "--separate", cwd=tmp_path)
    assert result.stdout.startswith("d.h5: 8 episodes,") and "of 4 instances" in result.stdout


def test_merge_refuses_in_one_sentence(tmp_path: Path) -> None:
    collect(tmp_path, "a.h5", 0)
    for words in (["a.h5"], ["a.h5", "a.h5"], ["a.h5", "none.h5"]):
        done = run("merge", *words, "-o", "c.h5", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
        assert not (tmp_path / "c.h5").exists()


def test_fit_and_evaluate(made: Path, tmp_path: Path) -> None:
    arguments = ("fit", made / "nav.h5", "--config", made / "quick.toml", "-o", tmp_path / "run")
    fitted = run_json(*arguments, "--method", "avg", "--seed", "3", cwd=tmp_path)
    assert (fitted["method"], fitted["needs"]) == ("avg", [])
    assert so.load_agent(tmp_path / "run").method == "avg"
    assert "--restart" in refused(*arguments, cwd=tmp_path)

    evaluated = run_json("evaluate", made / "runs" / "nav", "-o", "all.parquet", cwd=tmp_path)
    assert (evaluated["method"], evaluated["family"]) == ("sept", "navigation2d")
    assert evaluated["needs"] == [] and evaluated["episodes"] == 10
    for key in ("return", "normalised"):
        assert {"mean", "se"} <= set(evaluated[key])
    assert {"solved", "steps_to_solve", "act_microseconds"} <= set(evaluated)
    assert evaluated["score"] == "steps_to_solve"
    for key in ("random", "best_constant"):
        assert {"mean", "se"} <= set(evaluated[key])
    assert evaluated["best_constant_action"] in range(4)
    alone = run_json("evaluate", made / "runs" / "nav", "--no-references", cwd=tmp_path)
    assert not {"score", "random", "best_constant"} & set(alone)
    assert alone["return"] == evaluated["return"]
    result = run("evaluate", made / "runs" / "nav", cwd=tmp_path).stdout.splitlines()
    assert any(line.startswith("random: ") for line in result)
    assert any(line.startswith("best of 4 constant actions (") for line in result)
    both = run("evaluate", made / "runs" / "nav", "run", cwd=tmp_path).stdout.splitlines()
    assert [line.split("  ")[0] for line in both[2:6]][2:] == [
        "random",
        f"best of 4 constant actions ({evaluated['best_constant_action']})",
    ]
    assert len(so.load_results(tmp_path / "all.parquet").episodes) == 10
    table = run("evaluate", "run", "--quiet", cwd=tmp_path)
    assert table.returncode == 0 and table.stderr == ""
    assert "needs only observations" in table.stdout


def test_nothing_that_is_loaded_on_the_way_is_heard(made: Path, tmp_path: Path) -> None:
    """By an interpreter that has loaded nothing: other packages print when they are imported."""
    collect = "collect navigation2d --behaviour random --episodes 10 -o d.h5 --quiet --json"
    fit = f"fit d.h5 --config {made / 'quick.toml'} -o run --quiet --json"
    done = run_fresh(collect, fit, "evaluate run --quiet", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    collected, fitted, *table = done.stdout.splitlines()
    assert json.loads(collected)["episodes"] == 10 and json.loads(fitted)["method"] == "sept"
    assert "needs only observations" in "\n".join(table)


def test_fit_names_its_run(made: Path, tmp_path: Path) -> None:
    shutil.copy(made / "nav.h5", tmp_path)
    settings = ("--config", made / "quick.toml", "--set", "control.batch_size=8", "--quiet")
    result = run("fit", "nav.h5", "--method", "oracle", "--seed", "7", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    agent = so.load_agent(tmp_path / "runs" / "nav-oracle-7")
    assert agent.needs == {"hidden"}


def test_places_that_cannot_be_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    arguments = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "4")
    assert "file" in refused(*arguments, "-o", "file/a.h5", "--quiet", cwd=tmp_path)
    fit = ("fit", made / "nav.h5", "--config", made / "quick.toml", "--quiet")
    assert "file" in refused(*fit, "-o", "file/run", cwd=tmp_path)
    out = ("evaluate", made / "runs" / "nav", "--quiet", "-o", "file/r.json")
    assert "file" in refused(*out, cwd=tmp_path)
    assert "file" in refused("convert", made / "nav.h5", "file/n.parquet", "--quiet", cwd=tmp_path)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_two_collections_into_one_file_and_an_interruption(tmp_path: Path) -> None:
    with start(*LONG, cwd=tmp_path) as first:
        staging = tmp_path / "long.h5.partial"
        _wait_for(lambda: any(staging.glob("part-*")), first)
        said = refused(*LONG, cwd=tmp_path)
        assert "Another process is collecting into" in said and "long.h5; wait" in said
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=60)
    assert first.returncode == 1
    assert out == "" and "Traceback" not in err
    assert "--resume continues long.h5" in err.strip().splitlines()[-1]
    assert not (tmp_path / "long.h5").exists() and any(staging.glob("part-*"))
    assert "--resume" in refused(*LONG, cwd=tmp_path)


def test_an_interrupted_fit_can_be_continued(made: Path, tmp_path: Path) -> None:
    arguments = ("fit", made / "nav.h5", "--config", made / "quick.toml", "-o", "run")
    longer = (*arguments, "--set", "control.updates=1000000")
    with start(*longer, cwd=tmp_path) as fitting:
        _wait_for((tmp_path / "run" / "run.json").exists, fitting)
        time.sleep(0.2)
        fitting.send_signal(signal.SIGINT)
        _, err = fitting.communicate(timeout=60)
    assert fitting.returncode == 1
    assert "--resume continues run" in err and "Traceback" not in err
    assert "other settings" in refused(*arguments, "--resume", cwd=tmp_path)


def test_a_reader_that_leaves_early_is_no_failure_to_shout_about(made: Path) -> None:
    with start("inspect", "nav.h5", cwd=made) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1 and said == ""


def test_version_names_a_library_a_line(tmp_path: Path) -> None:
    done = run("--version", cwd=tmp_path)
    assert done.returncode == 0
    found = dict(line.split(" ") for line in done.stdout.splitlines())
    assert found["sept-offline"] == so.__version__
    assert found["numpy"] == np.__version__
    assert {"d3rlpy", "torch", "gymnasium", "h5py", "pyarrow", "python"} <= set(found)


def test_nothing_asked_is_answered_with_help(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert done.returncode in (0, 2)
    assert (done.stdout + done.stderr).startswith("Usage: sept-offline")


def test_help_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    # of the processor's time, which whoever else works on the machine does not take
    code = (
        "import sys, time; began = time.process_time()\n"
        "from sept_offline.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'torch', 'd3rlpy', 'h5py', 'pyarrow', 'numba', 'scipy'} & set(sys.modules)\n"
        "print(time.process_time() - began, *sorted(heavy), file=sys.stderr)\n"
    )
    tries = [run_code(code, cwd=tmp_path) for _ in range(3)]
    assert all("Usage: sept-offline" in done.stdout for done in tries)
    seconds, *heavy = min((done.stderr.split() for done in tries), key=lambda said: float(said[0]))
    assert heavy == []
    assert float(seconds) < 0.5


def _wait_for(condition: object, process: Process) -> None:
    assert callable(condition)
    until = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def _datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item

    file.visititems(visit)
    return found

"""A run or a bench from a stranger may hold links and pipes: nothing is written through them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import make_bench
from sept_offline.errors import DataError
from sept_offline.files import Lock, write_atomically, write_text
from sept_offline.methods.run import RunDirectory

Command = Callable[..., tuple[int, str]]
WORK = "months of work\n"
FIT = ("fit", "logs.h5", "--method", "avg", "--quiet", "--no-verdict", "--set", "control.updates=2")


@pytest.fixture
def mine(folder: Path) -> Path:
    """A file of the user's, outside of what is opened."""
    path = folder.parent / "mine.txt"
    path.write_text(WORK)
    return path


def link(path: Path, target: Path) -> None:
    """Put a link in the place of a file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize("more", ["--restart", "--resume"])
@pytest.mark.parametrize("name", ["run.json", "metrics.csv", "results.parquet", ".lock"])
def test_fit_writes_through_no_link_of_a_run(
    folder: Path, mine: Path, command: Command, name: str, more: str
) -> None:
    link(folder / "run" / name, mine)
    code, said = command(*FIT, "-o", "run", more)
    assert code == 2 and f"run/{name} is a link" in said and mine.read_text() == WORK


@pytest.mark.parametrize("name", ["agent", "checkpoints", "tensorboard"])
def test_fit_deletes_nothing_behind_a_linked_folder(
    folder: Path, command: Command, name: str
) -> None:
    kept = folder / "other" / {"checkpoints": "0-control.safetensors"}.get(name, "agent.json")
    kept.parent.mkdir()
    kept.write_text(WORK)
    if (folder / "run" / name).exists():
        (folder / "run" / name).rename(folder / "moved")
    (folder / "run" / name).symlink_to(kept.parent)
    code, said = command(*FIT, "-o", "run", "--restart")
    assert code == 2 and f"run/{name} is a link" in said and kept.read_text() == WORK


def test_evaluate_keeps_no_results_behind_a_link(
    folder: Path, mine: Path, command: Command
) -> None:
    so.collect_dataset(
        "navigation2d",
        folder / "nav.h5",
        overrides={"behaviour": "random", "episodes": 8, "max_steps": 6},
    ).close()
    settings = {"verdict": False, "control": {"updates": 2, "hidden": [4], "members": 1}}
    so.fit(folder / "nav.h5", "avg", settings, out=folder / "nav")
    link(folder / "nav" / "results.parquet", mine)
    code, said = command("evaluate", "nav", "--max-steps", "2", "--no-references")
    assert code == 0 and "results.parquet is a link" in said and mine.read_text() == WORK
    link(folder / "nav" / "ope.json", mine)
    command("ope", "nav", "nav.h5", "--in-sample", "--updates", "2")
    assert mine.read_text() == WORK


@pytest.mark.parametrize(
    "name", ["tables.md", "figures.md", "figures/reward-baselines-nobody.png", "figures"]
)
def test_tables_and_figures_are_written_through_no_link(
    folder: Path, mine: Path, command: Command, name: str
) -> None:
    make_bench(folder / "bench")
    target = mine if "." in name else mine.parent
    link(folder / "bench" / name, target)
    before = sorted(mine.parent.iterdir())
    code, said = command("bench", "--tables-only", "-o", "bench")
    assert code == 2 and "is a link" in said
    assert mine.read_text() == WORK and sorted(mine.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["cells", "datasets", "datasets/x.h5", "results.parquet"])
def test_a_bench_is_not_continued_through_links(
    folder: Path, mine: Path, command: Command, name: str
) -> None:
    (folder / "bench").mkdir()
    link(folder / "bench" / name, mine if "." in name else mine.parent)
    bench = ("bench", "--quick", "--families", "navigation2d", "--methods", "avg", "--workers", "1")
    code, said = command(*bench, "--quiet", "-o", "bench")
    assert code == 2 and f"bench/{name} is a link" in said and mine.read_text() == WORK


@pytest.mark.parametrize("names", [("cells/", "results.parquet"), ("cells/a.parquet", "tables.md")])
def test_a_folder_of_cells_that_no_bench_wrote_is_left_alone(
    folder: Path, command: Command, names: tuple[str, ...]
) -> None:
    for name in names:
        path = folder / "lab" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text(WORK)
    bench = ("bench", "--quick", "--families", "navigation2d", "--methods", "avg", "--workers", "1")
    code, said = command(*bench, "--quiet", "-o", "lab")
    assert code == 2 and "was not written by a bench" in said
    assert all((folder / "lab" / name).read_text() == WORK for name in names if name[-1] != "/")


@pytest.mark.parametrize("name", ["_manifest.json", "_plan.json"])
def test_collect_restart_discards_no_plan_of_another_program(
    folder: Path, command: Command, name: str
) -> None:
    (folder / "lab").mkdir()
    (folder / "lab" / name).write_text('{"files": ["months of work"]}')
    before = (folder / "lab" / name).read_bytes()
    collect = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "4", "--quiet")
    code, said = command(*collect, "-o", "lab", "--restart")
    assert code == 2 and name in said and (folder / "lab" / name).read_bytes() == before


def test_a_plan_that_is_nested_too_deeply_is_named(folder: Path, command: Command) -> None:
    (folder / "x.h5.partial").mkdir()
    (folder / "x.h5.partial" / "_plan.json").write_text("[" * 100_000)
    code, said = command(
        "collect", "navigation2d", "--behaviour", "random", "-o", "x.h5", "--resume"
    )
    assert code == 2 and "is damaged" in said


def test_a_temporary_name_that_is_a_link_already_is_not_written_to(
    folder: Path, mine: Path
) -> None:
    (folder / f".new.txt.{os.getpid()}.tmp").symlink_to(mine)
    write_text(folder / "new.txt", "new")
    assert mine.read_text() == WORK and (folder / "new.txt").read_text() == "new"
    assert not (folder / "new.txt").is_symlink()


def test_what_lies_beside_an_agent_under_a_link_is_not_deleted(folder: Path) -> None:
    so.save_agent(so.load_agent("run"), "other")
    (folder / f".copy-{'0' * 32}").symlink_to(folder / "other")
    so.save_agent(so.load_agent("run"), "copy")
    assert so.load_agent("other").method == "avg"


def test_only_a_typed_output_is_written_where_a_link_leads(
    folder: Path, mine: Path, command: Command
) -> None:
    link(folder / "report.html", mine)
    code, said = command("report", "run", "--quiet")
    assert code == 2 and "report.html is a link" in said and mine.read_text() == WORK


@pytest.mark.parametrize("kind", ["pipe", "link to nothing", "link to a file"])
def test_a_lock_is_a_file(folder: Path, mine: Path, kind: str) -> None:
    path = folder / "lock"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(mine if kind.endswith("file") else folder / "nothing")
    mine.write_text("")
    with pytest.raises(DataError, match="is not a lock"):
        Lock(path, DataError("busy"))
    assert not (folder / "nothing").exists()


def test_a_pipe_is_not_replaced(folder: Path, command: Command) -> None:
    for name in ("out.h5", "out.html", "out.json"):
        os.mkfifo(folder / name)
    for words in (("convert", "logs.h5", "out.h5"), ("report", "run", "-o", "out.html")):
        code, said = command(*words, "--quiet")
        assert code == 2 and "is a pipe or a device" in said
    with pytest.raises(DataError, match="is a pipe or a device"):
        write_atomically(folder / "out.json", lambda path: path.write_text("new"))
    assert all((folder / name).is_fifo() for name in ("out.h5", "out.html", "out.json"))


def test_a_linked_run_is_one_that_the_user_named(folder: Path) -> None:
    (folder / "alias").symlink_to(folder / "run")
    begun = RunDirectory(folder / "alias")
    with pytest.raises(DataError, match="holds a finished run"):
        begun.open({}, resume=False, restart=False)


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "circle", "logs.h5", "-o", "new.h5"),
        ("merge", "logs.h5", "logs.h5", "-o", "circle.h5"),
        ("convert", "logs.h5", "circle.h5"),
        ("import", "circle.csv", "-o", "new.h5"),
        ("report", "run", "-o", "circle.html"),
    ],
)
def test_links_in_a_circle_are_one_sentence(
    folder: Path, command: Command, words: tuple[str, ...]
) -> None:
    for name in ("circle", "circle.h5", "circle.csv", "circle.html"):
        (folder / name).symlink_to(name)
    code, said = command(*words, "--quiet")
    assert code == 2 and said.startswith("Error:") and len(said.splitlines()) == 1

"""Whatever lies in the current folder, beside the data: no code or setting is taken from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.fuzzing.corpus import make_bench
from sept_offline.engines import run_tasks
from sept_offline.errors import EngineError
from tests import processes

Command = Callable[..., tuple[int, str]]
COLLECT = ("collect", "navigation2d", "--behaviour", "random", "--episodes", "2", "--quiet")
EVIL = "open({mark!r}, 'w').close()\nraise ImportError\n"


def test_numba_takes_no_settings_from_the_current_folder(folder: Path, command: Command) -> None:
    # by cache_dir it would unpickle whatever lies there under the names of compiled functions
    (folder / ".numba_config.yaml").write_text("cache_dir: cache\n")
    code, said = command(*COLLECT, "-o", "new.h5")
    assert code == 2 and ".numba_config.yaml" in said and not (folder / "new.h5").exists()


def _square(number: int) -> int:
    return number**2


def test_workers_import_nothing_from_the_current_folder(folder: Path) -> None:
    for name in ("multiprocessing", "json", "signal"):
        mark = folder.parent / f"executed {name}"
        (folder / f"{name}.py").write_text(EVIL.format(mark=str(mark)))
    assert str(folder) not in sys.path
    # one task is enough to start a worker
    found = [one.value for one in run_tasks(_square, [3], workers=2)]
    assert found == [9] and not list(folder.parent.glob("executed*"))
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.parametrize("name", ["pyarrow.py", "mine/__init__.py", "google/x.py"])
def test_ray_is_not_started_where_modules_lie(folder: Path, name: str) -> None:
    cluster = pytest.importorskip("sept_offline.engines.cluster")
    pytest.importorskip("ray")
    (folder / "evil.py").unlink()
    cluster.refuse_modules_here()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).touch()
    with pytest.raises(EngineError, match=name.split("/")[0]):
        cluster.refuse_modules_here()
    sys.path.append(str(folder))  # the user has named a module: it is theirs
    cluster.refuse_modules_here()


@pytest.mark.parametrize("kind", ["bytes", pytest.param("pipe", marks=pytest.mark.long)])
def test_settings_that_matplotlib_cannot_read_are_one_sentence(folder: Path, kind: str) -> None:
    make_bench(folder / "bench")
    if kind == "pipe":
        os.mkfifo(folder / "matplotlibrc")
    else:
        (folder / "matplotlibrc").write_bytes(b"\xff: x")
    # the process it is forked from has loaded matplotlib already, and its settings with it
    code = (
        "import sys\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'matplotlib']:\n"
        "    del sys.modules[name]\n"
        "from sept_offline.cli import main\n"
        "main()"
    )
    done = processes.run("bench", "--tables-only", "-o", "bench", code=code, cwd=folder)
    assert done.returncode == 2 and "matplotlibrc" in done.stderr
    assert "Traceback" not in done.stderr

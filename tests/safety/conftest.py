"""One small run, its logs and its exports, made once and copied for every test."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import log, results
from sept_offline.cli import main

SETTINGS = {
    "verdict": False,
    "control": {"updates": 40, "hidden": [4], "batch_size": 4, "members": 1},
}


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """logs.h5, run/ and evil.py, which says when it is imported."""
    folder = tmp_path_factory.mktemp("safety") / "whole"
    folder.mkdir()
    log(folder / "logs.h5")
    agent = so.fit(folder / "logs.h5", "avg", SETTINGS, out=folder / "run")
    results(agent).write(folder / "run" / "results.parquet")
    (folder / "evil.py").write_text("open('executed', 'w').close()\nfamily = None\n")
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in which the test stands."""
    shutil.copytree(whole, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path / "here"))])
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path / "here"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """The exit code of a command in this process, and what it wrote."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(one) for one in arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return int(end.value.code or 0), said.out + said.err

    return run


@pytest.fixture
def edit() -> Callable[..., None]:
    """Change a JSON file on purpose, and make its checksum right, if it has one."""

    def change(path: Path, **values: Any) -> None:
        content = json.loads(path.read_text())
        sealed = content.pop("checksum", None)
        content |= values
        text = json.dumps(content, indent=2)
        if sealed is not None:
            content["checksum"] = hashlib.sha256(text.encode()).hexdigest()
            ordered = list(json.loads(path.read_text()))
            content = {key: content[key] for key in [*ordered, *values] if key in content}
            text = json.dumps(content, indent=2)
        path.write_text(text + "\n")

    return change

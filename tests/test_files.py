"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sept_offline.errors import DataError
from sept_offline.files import Lock, replacing, write_atomically
from sept_offline.seals import load_state, save_state
from sept_offline.stage import StageState


def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise RuntimeError("the power is gone")

    with pytest.raises(RuntimeError):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_whoever_reads_meanwhile_reads_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    seen = []

    def slowly(temporary: Path) -> None:
        temporary.write_text("ne")
        seen.append(path.read_text())
        temporary.write_text("new")

    write_atomically(path, slowly)
    assert (seen, path.read_text()) == (["old"], "new")
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """What is synced and what is renamed, in this order."""
    seen: list[tuple[str, Path]] = []
    rename, replace = os.rename, os.replace

    def fsync(descriptor: int) -> None:
        seen.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    for name, real in (("rename", rename), ("replace", replace)):

        def renamed(source: str, target: str, real=real) -> None:  # type: ignore[no-untyped-def]
            seen.append(("rename", Path(target)))
            real(source, target)

        monkeypatch.setattr(os, name, renamed)
    return seen


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, disk: list[tuple[str, Path]]
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, lambda temporary: temporary.write_text("new"))
    (first, temporary), *rest = disk
    assert first == "sync" and temporary.parent == tmp_path and temporary != path
    assert rest == [("rename", path), ("sync", tmp_path)]


def test_a_folder_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, disk: list[tuple[str, Path]]
) -> None:
    path = tmp_path / "agent"
    with replacing(path, re.compile("[ab]")) as folder:
        (folder / "a").write_bytes(b"1")
        (folder / "b").write_bytes(b"2")
    named = disk.index(("rename", path))
    synced = [place for kind, place in disk[:named] if kind == "sync"]
    assert {place.name for place in synced} >= {"a", "b"}
    assert ("sync", tmp_path) in disk[named:]


HOLDER = """
import sys
from pathlib import Path
from sept_offline.errors import DataError
from sept_offline.files import Lock
lock = Lock(Path(sys.argv[1]), DataError("busy"))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_is_held_by_one_process_and_dropped_when_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(DataError, match="busy"):
            Lock(path, DataError("busy"))
        holder.kill()
    assert path.exists()
    with Lock(path, DataError("busy")) as lock:
        assert lock.held
    assert not path.exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes no file")
def test_a_lock_where_no_file_can_be_created_is_not_somebodys() -> None:
    with pytest.raises(DataError, match="Cannot write /proc: No such file"):
        Lock(Path("/proc/lock"), DataError("busy"))


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr("sept_offline.files._exchange", lambda *_: False)
    path, ours = tmp_path / "agent", re.compile("[ab]|c/|c/d")
    for content in ("old", "new"):
        with replacing(path, ours) as folder:
            (folder / "c").mkdir()
            (folder / "c" / "d").write_text(content)
        assert [entry.name for entry in tmp_path.iterdir()] == ["agent"]
        assert (path / "c" / "d").read_text() == content
    with pytest.raises(RuntimeError), replacing(path, ours) as folder:
        (folder / "a").write_text("half")
        raise RuntimeError("the power is gone")
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent"]
    assert (path / "c" / "d").read_text() == "new"


def test_a_snapshot_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "0-control.safetensors"
    save_state(path, StageState(values={"done": 3}))
    assert load_state(path, DataError).values == {"done": 3}
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DataError, match=r"0-control\.safetensors is damaged"):
        load_state(path, DataError)


def test_a_snapshot_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    state = StageState(values={"done": 3, "seed": 1})
    written = set()
    for _ in range(20):
        save_state(tmp_path / "x.safetensors", state)
        written.add((tmp_path / "x.safetensors").read_bytes())
    assert len(written) == 1

"""Files that are whole or absent: atomic writes, and stage snapshots without pickle."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from sept_offline.errors import SeptError
from sept_offline.stage import StageState


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, sync it, and rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a whole JSON file or nothing; keys keep their order."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path, error: type[SeptError]) -> Any:
    """The content of a JSON file, or `error` with a sentence that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"Cannot read {path}: {problem.strerror or problem}.") from problem
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise error(f"{path} is damaged: it is not valid JSON ({problem}).") from problem


def save_state(path: Path, state: StageState) -> None:
    """Write a snapshot as one safetensors file, its values as JSON in the header."""
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous() for name, tensor in state.tensors.items()}
    values = {"values": json.dumps(state.values)}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=values))


def load_state(path: Path, error: type[SeptError]) -> StageState:
    """A snapshot that `save_state` wrote, or `error` with a sentence that names the file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as handle:
            values = json.loads((handle.metadata() or {})["values"])
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, ValueError) as problem:
        raise error(f"The snapshot {path} is damaged ({problem}); delete it.") from problem
    return StageState(tensors=tensors, values=values)


def lock_file(path: Path, refusal: SeptError) -> IO[str]:
    """Hold `path` open and locked until it is closed, or raise `refusal` if another process does.

    The kernel drops the lock of a killed process, so a leftover never blocks.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have removed the file between our open and our lock.
            if path.stat().st_ino == os.fstat(handle.fileno()).st_ino:
                return handle
        except BlockingIOError:
            handle.close()
            raise refusal from None
        except FileNotFoundError:
            pass
        except BaseException:
            handle.close()
            raise
        handle.close()


def unlock_file(path: Path, handle: IO[str]) -> None:
    """Remove a file that `lock_file` holds, while nobody else can hold it, and let go of it."""
    path.unlink(missing_ok=True)
    handle.close()


def remove_tree(path: Path) -> None:
    """Delete a directory of ours, if it is there."""
    shutil.rmtree(path, ignore_errors=True)

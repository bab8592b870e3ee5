"""Files that are whole or absent, and folders in which only what is ours is ever deleted."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from sept_offline.errors import DataError, SeptError

TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.tmp")
"""Names of the files that `write_atomically` leaves next to a file when it is killed."""


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power cut."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def behind_links(path: Path) -> Path:
    """The target of an output that the user names, following links.

    Files inside a run or a bench are not named by the user: see `refuse_links`.
    """
    return real_path(path) if path.is_symlink() else path


def real_path(path: Path) -> Path:
    """The path without links; unlike `Path.resolve`, links that lead in a circle do not raise."""
    return Path(os.path.realpath(path))


def refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raise if a file or a folder that is going to be written inside `folder` is a link.

    A run or a bench may come from a stranger, and a link in it may lead to any file of the user's.
    """
    for name in names:
        if (folder / name).is_symlink():
            raise DataError(
                f"{folder / name} is a link, and nothing is written through a link inside a "
                "folder; replace the link by the file or folder itself, or remove it."
            )


def refuse_special(path: Path) -> None:
    """Raise if an output is a pipe or a device, which a rename would replace."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{path} is a pipe or a device, not a file; choose a file.")


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn errors while writing `path` into one sentence that names it."""
    try:
        yield
    except OSError as problem:
        words = " ".join((problem.strerror or str(problem)).split())
        raise DataError(f"Cannot write {path}: {words}.") from problem


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file next to `path`, sync it, and rename it into place.

    A link is refused; for an output that the user names, `path` is what `behind_links` gives.
    """
    refuse_links(path.parent, [path.name])
    refuse_special(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Whatever has that name already, a link to elsewhere for instance, is not written to.
            temporary.unlink(missing_ok=True)
            write(temporary)
            sync_file(temporary)
            temporary.replace(path)
            sync_directory(path.parent)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    write_bytes(path, text.encode())


def lock_file(path: Path, refusal: SeptError) -> IO[str]:
    """Hold `path` open and locked until it is closed, or raise `refusal` if another process does.

    The kernel drops the lock of a killed process, so a leftover never blocks. A lock is empty: a
    file of that name that holds anything is somebody's, and is neither emptied nor removed.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Opening a pipe would block; a link would lead to a file of the user's.
        foreign = path.exists() and (not path.is_file() or path.stat().st_size > 0)
        if path.is_symlink() or foreign:
            raise DataError(f"{path} is not a lock of sept-offline; move it away.")
        handle = path.open("a")
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
    """Remove a file that `lock_file` locked, then release the lock."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    handle.close()


def is_ours(entry: Path, ours: re.Pattern[str], inside: str = "") -> bool:
    """Whether an entry of a folder is a file that we make there, or an unfinished one.

    `inside` is where in the folder the entry lies, as in "modules/", and part of its name.
    """
    begun = TEMPORARY.fullmatch(entry.name)
    named = ours.fullmatch(inside + entry.name) or (
        begun and ours.fullmatch(inside + begun["name"])
    )
    return bool(named) and (entry.is_symlink() or not entry.is_dir())


def is_our_folder(entry: Path, ours: re.Pattern[str], inside: str = "") -> bool:
    """Whether an entry is a folder that we make inside a folder: its name ends in a slash."""
    return bool(ours.fullmatch(f"{inside}{entry.name}/")) and not entry.is_symlink()


def foreign(folder: Path, ours: re.Pattern[str], inside: str = "") -> Iterator[str]:
    """The names of what lies in a folder and was not made by us."""
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and is_our_folder(entry, ours, inside):
            yield from foreign(entry, ours, f"{inside}{entry.name}/")
        elif not is_ours(entry, ours, inside):
            yield inside + entry.name


def refuse_foreign(folder: Path, ours: re.Pattern[str], error: type[SeptError] = DataError) -> None:
    """Raise if a folder that is going to be replaced holds anything that we did not make."""
    if not folder.is_dir():
        if folder.exists():
            raise error(f"{folder} is a file that sept-offline did not create; move it away.")
        return
    for name in foreign(folder, ours):
        raise error(
            f"{folder} contains {name}, which sept-offline did not create and will not "
            "delete; move it away, or choose another path."
        )


def remove_ours(
    folder: Path, ours: re.Pattern[str], last: str | None = None, inside: str = ""
) -> None:
    """Delete the files that are ours, `last` after the others, and the folder if it is empty then.

    Whatever else is in it stays, and so does what cannot be deleted.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    entries = list(folder.iterdir())
    for entry in entries:
        if is_our_folder(entry, ours, inside):
            remove_ours(entry, ours, inside=f"{inside}{entry.name}/")
    files = [entry for entry in entries if is_ours(entry, ours, inside)]
    # Python's own copy of a module of ours that has been imported from there.
    remove_ours(folder / "__pycache__", re.compile(r".+\.pyc"))
    with contextlib.suppress(OSError):
        for entry in sorted(files, key=lambda entry: entry.name == last):
            entry.unlink(missing_ok=True)
        folder.rmdir()


def replace_folder(
    target: Path,
    contents: Mapping[str, bytes],
    ours: re.Pattern[str],
    check: Callable[[Path], Mapping[str, bytes]] | None = None,
) -> None:
    """Put a folder of whole files in the place of an older one, at once or not at all.

    A name of `contents` may lie in folders, as "modules/a.py"; `ours` then matches "modules/" too.
    `check` is shown the folder before it is put there, and gives files that are written last.
    """
    place = behind_links(target)
    staged, lock = _beside(place), place.with_name(f".{place.name}.lock")
    with writing(target):
        busy = DataError(f"Another process is writing {target}; wait for it to end.")
        held = lock_file(lock, busy)
        try:
            clear_beside(place, ours)
            staged.mkdir()
            _fill(staged, contents)
            if check is not None:
                _fill(staged, check(staged))
            _swap(staged, place)
            sync_directory(place.parent)
        finally:
            clear_beside(place, ours)
            unlock_file(lock, held)


def clear_beside(place: Path, ours: re.Pattern[str]) -> None:
    """Repair what a kill left next to a folder: restore an older one that was moved away."""
    left = [
        entry
        for entry in place.parent.iterdir()
        if (named := _BESIDE.fullmatch(entry.name))
        and named["name"] == place.name
        and not entry.is_symlink()
    ]
    for entry in left:
        if entry.name.endswith(_OLD) and not place.exists():
            entry.rename(place)
        remove_ours(entry, ours)


_OLD = ".old"
_BESIDE = re.compile(r"\.(?P<name>.+)-[0-9a-f]{32}(\.old)?")


def _beside(target: Path) -> Path:
    """A unique hidden name in the same folder, so that a rename stays on one file system."""
    return target.with_name(f".{target.name}-{uuid.uuid4().hex}")


def _fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    for nested in {parent for name in contents for parent in (folder / name).parents}:
        if nested.is_relative_to(folder):
            sync_directory(nested)


def _swap(staged: Path, place: Path) -> None:
    """Rename `staged` to `place`; the previous content is left next to it."""
    if not place.exists():
        staged.rename(place)
    elif not _exchange(staged, place):
        old = staged.with_name(staged.name + _OLD)
        place.rename(old)
        staged.rename(place)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places at once, where the system can: no moment is without either."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)

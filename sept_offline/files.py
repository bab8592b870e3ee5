"""Atomic writes, and deletion of nothing but the library's own files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from sept_offline.errors import DataError, SeptError, one_line

TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+\.tmp")
"""Names of the files that `write_atomically` leaves next to a file when it is killed."""


_OLD = ".old"
_BESIDE = re.compile(r"\.(?P<name>.+)-[0-9a-f]{32}(\.old)?")
"""Names beside a folder that is being replaced: of the new one, or of the old one with `_OLD`."""
MARK = ".sept-offline"
"""Marks a scratch directory as ours: one without it is not touched, unless it is empty."""


def sync_directory(path: Path) -> None:
    """Make renames inside `path` survive a power cut; Windows can only sync files."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the content of a file survive a power cut."""
    with path.open("rb+") as handle:  # Windows syncs only what is open for writing
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
        words = one_line(problem.strerror or problem)
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
            _put(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _put(finished: Path, path: Path) -> None:
    """Give a file that is whole its name, in the place of an older one."""
    sync_file(finished)
    finished.replace(path)
    sync_directory(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing."""
    write_bytes(path, text.encode())


class Lock:
    """A file that one process holds from here to `release`; a second process gets `refusal`.

    The system drops the lock of a killed process, so a leftover never blocks. A lock is empty: a
    file of that name that holds anything is somebody's, and is neither emptied nor removed.
    """

    def __init__(self, path: Path, refusal: SeptError) -> None:
        self._path = path
        # Another try: the file that was opened may have been removed by its holder, who left.
        self._lock = FileLock(
            path, timeout=0.1, poll_interval=0.02, thread_local=False, fallback_to_soft=False
        )
        while not self.held:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Opening a pipe would block; a link would lead to a file of the user's.
            foreign = path.exists() and (not path.is_file() or path.stat().st_size > 0)
            if path.is_symlink() or foreign:
                raise DataError(f"{path} is not a lock of sept-offline; move it away.")
            try:
                # The folder may go together with its last holder's lock: it is made again.
                with contextlib.suppress(FileNotFoundError):
                    self._lock.acquire()
            except Timeout:
                # Where no file can be created at all, as in /proc, there is no other process.
                if not path.exists():
                    with writing(path.parent):
                        path.touch()
                raise refusal from None

    @property
    def held(self) -> bool:
        """Whether it has not been released."""
        return self._lock.is_locked

    def release(self) -> None:
        """Remove the file and release the lock."""
        if self.held:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _lock_beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


class Workspace:
    """The only writer of the file `path`: owns a lock and a scratch directory next to it.

    Both are hidden; what a killed writer left, the next one clears away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = behind_links(path)
        self.directory = path.parent / f".{path.name}.writing"
        if not path.parent.is_dir():
            raise DataError(f"Cannot write {path}: there is no directory {path.parent}; create it.")
        if path.is_dir():
            raise DataError(f"Cannot write {path}: it is a directory; choose a file.")
        refuse_links(path.parent, [path.name])  # a link that leads to itself
        refuse_special(path)
        busy = DataError(
            f"Another writer is at work on {path}; wait for it to finish, or write to another path."
        )
        with writing(path):
            self._lock = Lock(_lock_beside(path), busy)
            try:
                self._prepare()
            except BaseException:
                self._lock.release()
                raise

    def _prepare(self) -> None:
        """Create an empty scratch directory with our mark, replacing that of a killed writer."""
        if self.directory.exists():
            if any(self.directory.iterdir()) and not (self.directory / MARK).exists():
                raise DataError(
                    f"{self.directory} is not a scratch directory of this version of "
                    f"sept-offline, but is needed to write {self.path}; move it away."
                )
            self._clear()
        self.directory.mkdir()
        (self.directory / MARK).touch()

    def _clear(self) -> None:
        """The mark goes last: what a kill leaves is still known to be ours."""
        with contextlib.suppress(OSError):
            for entry in sorted(self.directory.iterdir(), key=lambda entry: entry.name == MARK):
                if _is_folder(entry):
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self.directory.rmdir()

    def publish(self, finished: Path) -> None:
        """Replace `path` atomically by a finished file of the scratch directory."""
        _put(finished, self.path)

    def close(self) -> None:
        """Remove the scratch directory and release the lock."""
        if self._lock.held:
            self._clear()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink()


def _is_ours(entry: Path, ours: re.Pattern[str], inside: str) -> bool:
    """Whether we make an entry of that name: a file, an unfinished one, or a folder with a slash.

    `inside` is where in the folder the entry lies, as in "modules/", and part of its name.
    """
    if _is_folder(entry):
        return bool(ours.fullmatch(f"{inside}{entry.name}/"))
    begun = TEMPORARY.fullmatch(entry.name)
    names = [entry.name, *([begun["name"]] if begun else [])]
    return any(ours.fullmatch(inside + name) for name in names)


def foreign(folder: Path, ours: re.Pattern[str], inside: str = "") -> Iterator[str]:
    """The names in a folder that the library did not create."""
    for entry in sorted(folder.iterdir()):
        if not _is_ours(entry, ours, inside):
            yield inside + entry.name
        elif _is_folder(entry):
            yield from foreign(entry, ours, f"{inside}{entry.name}/")


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


def remove_ours(folder: Path, ours: re.Pattern[str], inside: str = "") -> None:
    """Delete the library's own files, and the folder if it is then empty.

    Whatever else is in it stays, and so does what cannot be deleted.
    """
    if not _is_folder(folder):
        return
    entries = [entry for entry in folder.iterdir() if _is_ours(entry, ours, inside)]
    files = [entry for entry in entries if not _is_folder(entry)]
    for entry in entries:
        remove_ours(entry, ours, f"{inside}{entry.name}/")
    # Python's own copy of a module of ours that has been imported from there.
    remove_ours(folder / "__pycache__", re.compile(r".+\.pyc"))
    with contextlib.suppress(OSError):
        for entry in files:
            entry.unlink(missing_ok=True)
        folder.rmdir()


@contextlib.contextmanager
def replacing(target: Path, ours: re.Pattern[str]) -> Iterator[Path]:
    """An empty folder that replaces `target` atomically at the end.

    `ours` matches the names of all that is written there; a folder's name ends in a slash.
    """
    place = behind_links(target)
    with writing(target), _only_writer(place, ours):
        folder = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
        folder.mkdir()
        yield folder
        for nested, _, files in os.walk(folder, topdown=False):
            for name in files:
                sync_file(Path(nested, name))
            sync_directory(Path(nested))
        _swap(folder, place)
        sync_directory(place.parent)


def repair_folder(place: Path, ours: re.Pattern[str]) -> None:
    """Remove what a killed process left next to a folder that it was replacing."""
    with writing(place), _only_writer(place, ours):
        pass


@contextlib.contextmanager
def _only_writer(place: Path, ours: re.Pattern[str]) -> Iterator[None]:
    """Keep others from writing `place`; remove leftovers of killed writers before and after."""
    busy = DataError(f"Another process is writing {place}; wait for it to end.")
    with Lock(_lock_beside(place), busy):
        _clear_beside(place, ours)
        try:
            yield
        finally:
            _clear_beside(place, ours)


def _clear_beside(place: Path, ours: re.Pattern[str]) -> None:
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


def _swap(staged: Path, place: Path) -> None:
    """Rename `staged` to `place`; the previous content is left next to it."""
    if not place.exists():
        staged.rename(place)
    elif not _exchange(staged, place):
        old = staged.with_name(staged.name + _OLD)
        place.rename(old)
        staged.rename(place)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically, if the system supports it."""
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # TypeError: Windows
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)

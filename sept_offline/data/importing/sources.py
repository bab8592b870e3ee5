"""Sources of an import: files, patterns, directories, and their kind."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from sept_offline.data.hdf5_objects import names_of, open_hdf5
from sept_offline.errors import DataError
from sept_offline.files import real_path
from sept_offline.limits import check_regular

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.bz2", ".csv.zst")
PARQUET = (".parquet", ".pq")
HDF5 = (".h5", ".hdf5")
MINARI = "minari:"
PICKLED = (".pkl", ".pickle", ".d3", ".pt", ".npy", ".npz")


def find_files(sources: Sequence[str | Path], out: Path) -> tuple[str, list[Path]]:
    """The kind of all files ("csv", "parquet", "d4rl" or "d3rlpy") and the files, in order.

    What an import before this one wrote at `out` is none of them.
    """
    files = [path for source in sources for path in _expanded(str(source))]
    files = [path for path in files if not (out.exists() and path.samefile(out))]
    if not files:
        raise DataError("There is nothing to import; name files, a pattern or a directory.")
    kinds = {_kind(path): path for path in reversed(files)}
    if len(kinds) > 1:
        (one, first), (other, second) = list(kinds.items())[:2]
        raise DataError(
            f"{first} is {one} and {second} is {other}; import files of one kind at a time."
        )
    once = {real_path(path): path for path in reversed(files)}
    return next(iter(kinds)), [once[place] for place in dict.fromkeys(real_path(p) for p in files)]


def stem(path: Path) -> str:
    """A file's name without its endings."""
    name = path.name
    for ending in sorted((*CSV, *PARQUET, *HDF5), key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return path.stem


def file_words(files: Sequence[Path]) -> dict[Path, str]:
    """A name for each file: its stem, with as many folders as make it unique.

    Files that differ in nothing but their endings keep them.
    """
    words = {path: stem(path) for path in files}
    named: dict[str, list[Path]] = {}
    for path, word in words.items():
        named.setdefault(word, []).append(path)
    for word, group in named.items():
        if len(group) > 1:
            words |= _told_apart(word, [real_path(path) for path in group], group)
    return words


def _told_apart(word: str, places: list[Path], files: list[Path]) -> dict[Path, str]:
    folders = [place.parts[1:-1] for place in places]
    ends = [word] * len(files)
    if len(set(folders)) < len(files):
        ends = [place.name for place in places]
    for depth in range(max(map(len, folders)) + 1):
        told = [
            "/".join((*parts[max(len(parts) - depth, 0) :], end))
            for parts, end in zip(folders, ends, strict=True)
        ]
        if len(set(told)) == len(told):
            break
    return dict(zip(files, told, strict=True))


def _expanded(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        found = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and file.name.lower().endswith((*CSV, *PARQUET, *HDF5))
        )
        if not found:
            raise DataError(f"The directory {path} contains no CSV, Parquet or HDF5 file.")
        return found
    try:
        if path.exists():
            check_regular(path, DataError)
            return [path]
        found = sorted(Path(name) for name in glob.glob(source, recursive=True))  # noqa: PTH207
    except ValueError:  # a name that no file can have, as with a null byte in it
        found = []
    if not found:
        raise DataError(f"There is nothing at {source}; check the path.")
    for one in found:
        check_regular(one, DataError)
    return found


def _kind(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(PICKLED):
        raise DataError(
            f"{path} may contain pickled objects, which are never loaded; "
            "write its steps as CSV, Parquet or HDF5, or through sept_offline.DatasetWriter."
        )
    if not name.endswith(HDF5):
        raise DataError(
            f"Unknown format of {path}; expected .csv, .parquet or .h5 files, "
            f"or {MINARI}NAME for a Minari dataset."
        )
    return _hdf5_kind(path)


def _hdf5_kind(path: Path) -> str:
    with open_hdf5(path) as file:
        names = set(names_of(file))
    if {"columns", "num_episodes", "version"} <= names:
        return "d3rlpy"
    if "header" in names and "episodes" in names:
        raise DataError(
            f"{path} is already a sept-offline dataset; use it directly, or run sept-offline "
            "convert."
        )
    if {"observations", "actions", "rewards"} <= names:
        return "d4rl"
    raise DataError(
        f"{path} holds {', '.join(sorted(names)[:8])}; expected observations, actions and rewards, "
        "as in D4RL, or a replay buffer dumped by d3rlpy."
    )

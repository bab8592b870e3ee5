"""Errors for paths that are not datasets, each with advice."""

from __future__ import annotations

from pathlib import Path

from sept_offline.data.filesystems import Place, locate, place_kind
from sept_offline.data.publication import HDF5_SUFFIXES, PARQUET_SUFFIXES
from sept_offline.errors import DataError
from sept_offline.limits import check_regular

TABLES = (".csv", ".tsv")
PACKED = (".gz", ".bz2", ".zst")
"""Suffixes that may follow those of a table."""


def check_place(path: str | Place) -> Place:
    """The location of a dataset; a DataError if there is none, or something else."""
    place = locate(path)
    what = place_kind(place)
    if what == "nothing":
        raise DataError(f"There is no dataset at {place}; check the path, or collect one.")
    if what == "directory":
        if isinstance(place, Path):
            _check_folder(place)
        return place
    if isinstance(place, Path):
        check_regular(place, DataError)
    name = str(place).lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    if name.endswith(TABLES):
        raise DataError(
            f"{place} is a {name[-3:].upper()} file, not a dataset; convert it with sept-offline "
            "import."
        )
    if place.suffix.lower() not in HDF5_SUFFIXES + PARQUET_SUFFIXES:
        raise DataError(
            f"Unknown format of {place}; expected a .h5 file, a .parquet file or a directory."
        )
    return place


def _check_folder(folder: Path) -> None:
    if (folder / "run.json").is_file() or (folder / "agent.json").is_file():
        raise DataError(
            f"{folder} is a run of fit, not a dataset; name the logs it was trained on."
        )
    if (folder / "manifest.json").is_file() and not any(folder.rglob("*.parquet")):
        raise DataError(f"{folder} is an exported agent, not a dataset; name logs.")

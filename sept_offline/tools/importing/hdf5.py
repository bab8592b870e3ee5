"""D4RL-style HDF5 files and replay buffers that d3rlpy dumped, as rows; nothing is unpickled."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sept_offline.data.hdf5 import UNREADABLE, array_bytes, has, open_hdf5, stored_array
from sept_offline.data.source import damaged
from sept_offline.errors import DataError
from sept_offline.limits import check_claim
from sept_offline.tools.importing.mapping import ImportMapping, refuse_meaningless
from sept_offline.tools.importing.reading import EPISODE, Reading, rows_of
from sept_offline.tools.importing.rows import Rows
from sept_offline.tools.importing.tables import BATCH_ROWS

D4RL: dict[str, Any] = {
    "observations": ("observations",),
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminals",
    "truncated": "timeouts",
}
BUFFER: dict[str, Any] = {
    "observations": ("observations",),
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminated",
    "truncated": "truncated",
}
"""d3rlpy stores no truncation: an episode that did not terminate was truncated."""


def hdf5_mapping(kind: str, files: Sequence[Path], mapping: ImportMapping) -> ImportMapping:
    """The mapping with the names that files of this kind have."""
    refuse_meaningless(kind, mapping, BUFFER if kind == "d3rlpy" else {})
    names = BUFFER if kind == "d3rlpy" else D4RL
    named = {role: name for role, name in names.items() if not getattr(mapping, role)}
    whole = replace(mapping, **named)
    with open_hdf5(files[0]) as file:
        if kind == "d3rlpy":
            return _with_vectors(whole, file, "actions_0", files[0])
        # Those that follow other arrays than the file's own observations are for the user to name.
        if "observations" in named and has(file, "next_observations"):
            whole = replace(whole, next_observations=("next_observations",))
        if "terminated" in named and not has(file, "terminals"):
            whole = replace(whole, terminated=None)
        if "truncated" in named and not has(file, "timeouts"):
            whole = replace(whole, truncated=None)
        whole = _with_vectors(whole, file, whole.action_columns[0], files[0])
    if whole.terminated is None and whole.truncated is None:
        raise DataError(
            f"{files[0]} has neither terminals nor timeouts, so the ends of its episodes are "
            "unknown; name its end flags with --terminated or --truncated."
        )
    _check_files(files, whole)
    return whole


def _with_vectors(mapping: ImportMapping, file: h5py.File, name: str, path: Path) -> ImportMapping:
    """The mapping of a box, if actions have several numbers per step."""
    if not has(file, name):
        return mapping
    shape: tuple[int, ...] = stored_array(file, name, path).shape
    if len(shape) != 2 or shape[1] < 2:
        return mapping
    return mapping.as_box(f"{name!r} of {path} has {shape[1]} numbers per step")


def _check_files(files: Sequence[Path], mapping: ImportMapping) -> None:
    """Every array is there, one row per step; the instance is an array in all files or in none."""
    owned = []
    for path in files:
        with open_hdf5(path) as file:
            owned.append(mapping.instance is not None and has(file, mapping.instance))
            rows = _rows(file, mapping.observations[0], path)
            claimed = 0
            for name in _arrays(mapping, file):
                length = _rows(file, name, path)
                if length != rows:
                    raise DataError(
                        f"{path} has {rows:,} rows of {mapping.observations[0]!r} and "
                        f"{length:,} of {name!r}; every step needs one of each."
                    )
                claimed += array_bytes(stored_array(file, name, path))
            check_claim(path, "arrays", claimed, path.stat().st_size, DataError)
    if len(set(owned)) > 1:
        raise DataError(
            f"{files[owned.index(True)]} has a dataset {mapping.instance!r} and "
            f"{files[owned.index(False)]} has none; import them one by one."
        )


def _arrays(mapping: ImportMapping, file: h5py.File) -> list[str]:
    """The arrays that are read; the instance may be a name and not an array."""
    roles = mapping.roles()
    return list(
        dict.fromkeys(name for role, name in roles if role != "instance" or has(file, name))
    )


def d4rl_rows(reading: Reading, files: Sequence[Path]) -> Generator[Rows]:
    """The rows of D4RL-style files, block by block; an episode ends at a flag or with its file."""
    mapping, begun = reading.mapping, 0
    for path in files:
        reading.open(path)
        with open_hdf5(path) as file:
            rows = _rows(file, mapping.observations[0], path)
            for low in range(0, rows, BATCH_ROWS):
                high = min(low + BATCH_ROWS, rows)
                values = {
                    name: _read(file, name, path, slice(low, high))
                    for name in _arrays(mapping, file)
                }
                ended = np.zeros(high - low, dtype=np.bool_)
                for name in (mapping.terminated, mapping.truncated):
                    if name is not None:
                        values[name] = _flags(values[name], name, path)
                        ended |= values[name]
                episode = begun + np.cumsum(ended) - ended
                begun = int(episode[-1]) + int(ended[-1])
                columns = {name: _column(array, name, path) for name, array in values.items()}
                reading.reached(high / rows)
                yield rows_of(reading, {**columns, EPISODE: pa.array(episode)}, path, high - low)
            # What follows in the next file is another episode, flag or no flag.
            begun = len(reading.episodes)


def buffer_rows(reading: Reading, files: Sequence[Path]) -> Generator[Rows]:
    """The rows of replay buffers, whole episodes at a time.

    d3rlpy takes the last row of an episode that did not terminate for the place it was left in: it
    has no transition from there, and neither has the dataset.
    """
    for path in files:
        reading.open(path)
        with open_hdf5(path) as file:
            count = int(_scalar(file, "num_episodes", path))
            for number in range(count):
                columns = _buffer_episode(file, number, path)
                steps = len(columns["observations"])
                if not steps:
                    reading.findings.counts["episodes without a step"] += 1
                    continue
                columns[EPISODE] = pa.array(np.full(steps, len(reading.episodes)))
                reading.reached((number + 1) / count)
                yield rows_of(reading, columns, path, steps)


def _buffer_episode(file: h5py.File, number: int, path: Path) -> dict[str, pa.Array]:
    """The columns of one episode of a replay buffer."""
    if not has(file, f"observations_{number}"):
        raise DataError(
            f"{path}, episode {number}: expected one array of observations, found several or none."
        )
    arrays = {
        name: _read(file, f"{name}_{number}", path)
        for name in ("observations", "actions", "rewards")
    }
    steps, actions, rewards = (len(array) for array in arrays.values())
    if not steps == actions == rewards:
        raise DataError(
            f"{path}, episode {number}: {steps} observations, {actions} actions and {rewards} "
            "rewards; expected the same number of each."
        )
    ended = bool(_scalar(file, f"terminated_{number}", path))
    last = np.arange(steps) == steps - 1
    # The last row of an episode that did not terminate is not a step.
    left = {"actions": last, "rewards": last} if not ended else {}
    return {
        **{name: _column(array, name, path, left.get(name)) for name, array in arrays.items()},
        "terminated": pa.array(last & ended),
        "truncated": pa.array(last & (not ended)),
    }


def _rows(file: h5py.File, name: str, path: Path) -> int:
    """The rows of an array."""
    array = stored_array(file, name, path)
    if not array.ndim:
        raise DataError(f"{name!r} of {path} is one value, expected one row per step.")
    return int(array.shape[0])


def _read(file: h5py.File, name: str, path: Path, rows: slice = slice(None)) -> NDArray[Any]:
    """Rows of an array that is stored in the file itself."""
    _rows(file, name, path)
    array = stored_array(file, name, path)
    check_claim(path, name, array_bytes(array), path.stat().st_size, DataError)
    try:
        return np.asarray(array[rows])
    except UNREADABLE as error:
        raise damaged(path, f"rows of {name!r} cannot be read: {error}") from error


def _scalar(file: h5py.File, name: str, path: Path) -> Any:
    """One number."""
    array = stored_array(file, name, path)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise DataError(f"{name!r} of {path} is not one number; the file is damaged.")
    try:
        value = np.asarray(array[()]).reshape(-1)[0].item()
    except UNREADABLE as error:
        raise damaged(path, f"{name!r} cannot be read: {error}") from error
    if not np.isfinite(value):
        raise DataError(f"{name!r} of {path} is {value}; the file is damaged.")
    return value


def _flags(values: NDArray[Any], name: str, path: Path) -> NDArray[np.bool_]:
    """[n] end flags; raises for text and NaN, which would count as true."""
    values = values.reshape(len(values), -1)
    if values.shape[1] != 1 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(
            f"The end flags {name!r} of {path} are not all true or false; write booleans, or 1 and "
            "0."
        )
    return values[:, 0].astype(np.bool_)


def _column(
    values: NDArray[Any], name: str, path: Path, missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """An array [n] or [n, k] as a column; missing[n]: rows that have no value."""
    if values.ndim > 2 or values.dtype.kind not in "biufSUO":
        raise DataError(
            f"{name!r} of {path} holds {values.dtype} of shape {values.shape}, expected numbers or "
            "vectors."
        )
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    try:
        if values.ndim == 1 or values.shape[1] == 1:
            return pa.array(values.reshape(-1), mask=missing)
        mask = None if missing is None else pa.array(missing)
        flat = pa.array(values.reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=mask)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"{name!r} of {path} cannot be read: {error}.") from error

"""D4RL-style HDF5 files and replay buffers that d3rlpy dumped, as rows; nothing is unpickled."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sept_offline.data.hdf5_objects import array_bytes, has, open_hdf5, stored_array
from sept_offline.data.importing.mapping import FILE, ImportMapping
from sept_offline.data.importing.options import refuse_meaningless
from sept_offline.data.importing.reading import Reading
from sept_offline.data.importing.rows import TERMINATED, TRUNCATED, Rows
from sept_offline.data.importing.tables import BATCH_ROWS, Report
from sept_offline.data.importing.vocabulary import occurring, spelled
from sept_offline.data.records import Float32, Float64, Int64
from sept_offline.data.source import damaged
from sept_offline.errors import DataError
from sept_offline.limits import check_claim

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
}


def hdf5_mapping(kind: str, files: Sequence[Path], mapping: ImportMapping) -> ImportMapping:
    """The mapping with the names that files of this kind have."""
    refuse_meaningless(kind, mapping, BUFFER if kind == "d3rlpy" else {})
    if kind == "d3rlpy":
        return replace(mapping, **BUFFER)
    named = {role: name for role, name in D4RL.items() if not getattr(mapping, role)}
    whole = replace(mapping, **named)
    with open_hdf5(files[0]) as file:
        # Those that follow other arrays than the file's own observations are for the user to name.
        if "observations" in named and has(file, "next_observations"):
            whole = replace(whole, next_observations=("next_observations",))
        if "terminated" in named and not has(file, "terminals"):
            whole = replace(whole, terminated=None)
        if "truncated" in named and not has(file, "timeouts"):
            whole = replace(whole, truncated=None)
    if whole.terminated is None and whole.truncated is None:
        raise DataError(
            f"{files[0]} has neither terminals nor timeouts, so the ends of its episodes are "
            "unknown; name its end flags with --terminated or --truncated."
        )
    _check_files(files, whole)
    return whole


def _check_files(files: Sequence[Path], mapping: ImportMapping) -> None:
    """Every named array is there, one row a step, and the instance is one in all files or none."""
    owned = []
    for path in files:
        with open_hdf5(path) as file:
            owned.append(mapping.instance is not None and has(file, mapping.instance))
            roles = mapping.roles()
            names = [name for role, name in roles if role != "instance" or has(file, name)]
            rows = _length(file, mapping.observations[0], path)
            for name in names:
                found = _length(file, name, path)
                if found != rows:
                    raise DataError(
                        f"{path} has {rows:,} rows of {mapping.observations[0]!r} and "
                        f"{found:,} of {name!r}; every step needs one of each."
                    )
            claimed = sum(array_bytes(stored_array(file, name, path)) for name in set(names))
            check_claim(path, "arrays", claimed, path.stat().st_size, DataError)
    if len(set(owned)) > 1:
        raise DataError(
            f"{files[owned.index(True)]} has a dataset {mapping.instance!r} and "
            f"{files[owned.index(False)]} has none; import them one by one."
        )


def d4rl_rows(reading: Reading, files: Sequence[Path], report: Report) -> Generator[Rows]:
    """The rows of D4RL-style files, block by block; an episode ends at a flag or with its file."""
    mapping, before, begun = reading.mapping, 0.0, 0
    for path in files:
        reading.open(path)
        with open_hdf5(path) as file:
            rows = _length(file, mapping.observations[0], path)
            size = path.stat().st_size
            for low in range(0, rows, BATCH_ROWS):
                high = min(low + BATCH_ROWS, rows)
                batch = _block(reading, file, path, low, high, begun)
                begun = int(batch.episode[-1]) + bool(batch.ends[-1])
                report(before + size * high / rows)
                yield batch
            # What follows in the next file is another episode, flag or no flag.
            begun = len(reading.episodes)
            before += size


def buffer_rows(reading: Reading, files: Sequence[Path], report: Report) -> Generator[Rows]:
    """The rows of replay buffers, whole episodes at a time.

    d3rlpy takes the last row of an episode that did not terminate for the place it was left in: it
    has no transition from there, and neither has the dataset.
    """
    before = 0.0
    for path in files:
        reading.open(path)
        with open_hdf5(path) as file:
            count, size = int(_scalar(file, "num_episodes", path)), path.stat().st_size
            instance = _constant(reading, path)
            for number in range(count):
                if not has(file, f"observations_{number}"):
                    raise DataError(
                        f"{path}, episode {number}: expected one array of observations, "
                        "found several or none."
                    )
                observations = _matrix(_read(file, f"observations_{number}", path), path)
                steps = len(observations)
                actions, rewards = (
                    _column(_read(file, f"{name}_{number}", path), name, path)
                    for name in ("actions", "rewards")
                )
                if not steps == len(actions) == len(rewards):
                    raise DataError(
                        f"{path}, episode {number}: {steps} observations, {len(actions)} actions "
                        f"and {len(rewards)} rewards; expected the same number of each."
                    )
                if not steps:
                    reading.findings.counts["episodes without a step"] += 1
                    continue
                ended = bool(_scalar(file, f"terminated_{number}", path))
                coded, rewards = _actions(reading, actions, path), _floats(rewards, "rewards", path)
                ends = np.zeros(steps, dtype=np.uint8)
                ends[-1] = TERMINATED if ended else TRUNCATED
                if not ended:
                    coded[-1] = rewards[-1] = np.nan
                row = reading.number(steps)
                report(before + size * (number + 1) / count)
                yield Rows(
                    episode=_episodes(reading, np.full(steps, len(reading.episodes))),
                    instance=np.full(steps, instance),
                    time=row,
                    row=row,
                    observations=observations,
                    following=None,
                    action=coded,
                    reward=rewards,
                    ends=ends,
                    chances=None,
                )
        before += path.stat().st_size


def _block(reading: Reading, file: h5py.File, path: Path, low: int, high: int, begun: int) -> Rows:
    mapping = reading.mapping

    def read(name: str) -> NDArray[Any]:
        return _read(file, name, path, low, high)

    ends = np.zeros(high - low, dtype=np.uint8)
    for name, bit in ((mapping.terminated, TERMINATED), (mapping.truncated, TRUNCATED)):
        if name is not None:
            ends |= bit * _flags(_column(read(name), name, path), name, path)
    episode = begun + np.cumsum(ends > 0) - (ends > 0)
    row = reading.number(high - low)
    names = mapping.probabilities or ((mapping.probability,) if mapping.probability else ())
    chances = [_numbers(read(name).reshape(high - low, -1), name, path) for name in names]
    action, reward = str(mapping.action), str(mapping.reward)
    parts = [_matrix(read(name), path) for name in mapping.observations]
    widths = tuple(part.shape[1] for part in parts)
    if reading.widths not in (None, widths):
        raise DataError(
            f"Observations have {reading.widths} numbers in one file and {widths} in {path}; "
            "every row needs the same number."
        )
    reading.widths = widths
    following = [_matrix(read(name), path) for name in mapping.next_observations]
    return Rows(
        episode=_episodes(reading, episode),
        instance=_instances(reading, file, path, low, high),
        time=row,
        row=row,
        observations=np.concatenate(parts, axis=1),
        following=np.concatenate(following, axis=1) if following else None,
        action=_actions(reading, _column(read(action), action, path), path),
        reward=_floats(_column(read(reward), reward, path), reward, path),
        ends=ends,
        chances=np.concatenate(chances, axis=1) if chances else None,
    )


def _length(file: h5py.File, name: str, path: Path) -> int:
    """The rows of an array."""
    found = stored_array(file, name, path)
    if not found.ndim:
        raise DataError(f"{name!r} of {path} is one value, expected one row per step.")
    return int(found.shape[0])


def _read(
    file: h5py.File, name: str, path: Path, low: int = 0, high: int | None = None
) -> NDArray[Any]:
    """Some rows of an array that lies in the file itself."""
    rows, found = _length(file, name, path), stored_array(file, name, path)
    check_claim(path, name, array_bytes(found), path.stat().st_size, DataError)
    try:
        return np.asarray(found[low : rows if high is None else high])
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise damaged(path, f"rows of {name!r} cannot be read: {error}") from error


def _scalar(file: h5py.File, name: str, path: Path) -> Any:
    """One number."""
    found = stored_array(file, name, path)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise DataError(f"{name!r} of {path} is not one number; the file is damaged.")
    try:
        value = np.asarray(found[()]).reshape(-1)[0].item()
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise damaged(path, f"{name!r} cannot be read: {error}") from error
    if not np.isfinite(value):
        raise DataError(f"{name!r} of {path} is {value}; the file is damaged.")
    return value


def _episodes(reading: Reading, numbers: Int64) -> Int64:
    """[n], as they are; their words are their numbers."""
    found = np.unique(numbers)
    reading.episodes.code([str(number) for number in found.tolist()], np.zeros(1, dtype=np.int64))
    return numbers.astype(np.int64)


def _constant(reading: Reading, path: Path) -> int:
    name = reading.mapping.instance
    word = reading.file_words[path] if name in (None, FILE) else str(name)
    return int(reading.instances.code([word], np.zeros(1, dtype=np.int64))[0])


def _instances(reading: Reading, file: h5py.File, path: Path, low: int, high: int) -> Int64:
    """From a dataset of that name, or else the name itself for all."""
    name = reading.mapping.instance
    if name is None or not has(file, name):
        return np.full(high - low, _constant(reading, path))
    values, places = np.unique(
        _column(_read(file, name, path, low, high), name, path), return_inverse=True
    )
    words = [spelled(value) for value in values.tolist()]
    codes = reading.instances.code(*occurring(words, places.reshape(-1)))
    if (codes < 0).any():
        raise DataError(
            f"The instance {name!r} of {path} is missing in {int((codes < 0).sum()):,} rows; every "
            "row needs one."
        )
    return codes


def _actions(reading: Reading, values: NDArray[Any], path: Path) -> Float64:
    if reading.mapping.bins is not None:
        return _floats(values, str(reading.mapping.action), path)
    found, places = np.unique(values, return_inverse=True)
    words = [spelled(value) for value in found.tolist()]
    return reading.label(*occurring(words, places.reshape(-1)))


def _flags(values: NDArray[Any], name: str, path: Path) -> NDArray[np.uint8]:
    """[n], 0 or 1; a word would count as true, whichever it is, and so would NaN."""
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise DataError(
            f"The end flags {name!r} of {path} are not all true or false; write booleans, or 1 and "
            "0."
        )
    return values.astype(np.uint8)


def _floats(values: NDArray[Any], name: str, path: Path) -> Float64:
    """[n], NaN where a value is not finite."""
    floats = _numbers(values, name, path)
    floats[~np.isfinite(floats)] = np.nan
    return floats


def _numbers(values: NDArray[Any], name: str, path: Path) -> Float64:
    """A copy of values of any shape."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{name!r} of {path} holds {values.dtype}, expected numbers.")
    return values.astype(np.float64)


def _column(values: NDArray[Any], name: str, path: Path) -> NDArray[Any]:
    """[n] from [n] or [n, 1]."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(
            f"{name!r} of {path} has {int(np.prod(values.shape[1:]))} numbers per step, expected "
            "one; actions must be discrete."
        )
    return values


def _matrix(values: NDArray[Any], path: Path) -> Float32:
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise DataError(f"The observations of {path} have shape {values.shape}, expected vectors.")
    if values.dtype.kind not in "biuf":
        raise DataError(f"The observations of {path} hold {values.dtype}, expected numbers.")
    with np.errstate(over="ignore"):
        matrix = values.astype(np.float32)
    matrix[~np.isfinite(matrix)] = np.nan
    return matrix

"""A fit reads a dataset once: every stored chunk, and every file, whatever the format."""

from __future__ import annotations

import collections
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from benchmarks.reading import SETTINGS
from sept_offline.data import hdf5, parquet_source, read_dataset
from sept_offline.data.hdf5 import write_hdf5
from sept_offline.data.parquet import write_parquet
from sept_offline.data.source import DTYPES
from sept_offline.errors import DataError


@pytest.fixture
def logs(tmp_path: Path, write: Any, tools: Any) -> Path:
    """Long enough for several chunks of each column."""
    rng = np.random.default_rng(0)
    episodes = [tools.episode(rng, number, 30, 3) for number in range(24)]
    return Path(write(tmp_path / "logs.h5", episodes, probe_steps=2))


class CountingBytes(io.BytesIO):
    """A file in memory that counts what is read of it."""

    reads: ClassVar[collections.Counter[tuple[int, int]]] = collections.Counter()
    """How often this many bytes were read from a position."""

    def readinto(self, buffer: Any) -> int:
        start = self.tell()
        count = super().readinto(buffer)
        self.reads[start, count] += 1
        return count


def test_hdf5(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = tmp_path / "small.h5", collections.Counter[str]()
    with so.load_dataset(logs) as data:
        source = data._source
        write_hdf5(path, source, source.header, None, chunk_bytes=800)
    content = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        opened[self.name] += 1
        return content(self)

    reads = CountingBytes.reads
    reads.clear()
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    monkeypatch.setattr(hdf5, "io", SimpleNamespace(BytesIO=CountingBytes))
    monkeypatch.setattr(h5py, "is_hdf5", None)
    so.fit(path, "sept", SETTINGS)
    assert opened["small.h5"] == 1
    with h5py.File(path) as file:
        for name in DTYPES:
            column = file[name].id
            chunks = [column.get_chunk_info(number) for number in range(column.get_num_chunks())]
            assert len(chunks) > 3 or name in ("terminations", "truncations")
            assert [reads[chunk.byte_offset, chunk.size] for chunk in chunks] == [1] * len(chunks)


def test_parquet(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "small.parquet"
    with so.load_dataset(logs) as data:
        source = data._source
        write_parquet(path, source, source.header, None, group_rows=100)
    groups = pq.read_metadata(path).num_row_groups
    assert groups > 3
    reads = collections.Counter[tuple[int, str]]()
    files = []

    class CountingFile(pq.ParquetFile):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            files.append(arguments[0])

        def read_row_group(self, group: int, columns: list[str], **named: Any) -> Any:
            reads.update((group, name) for name in columns)
            return super().read_row_group(group, columns=columns, **named)

    monkeypatch.setattr(parquet_source.pq, "ParquetFile", CountingFile)
    so.fit(path, "sept", SETTINGS)
    assert len(files) == 1
    assert reads == {(group, name): 1 for group in range(groups) for name in DTYPES}


def test_a_dataset_that_is_open_is_read_once_too(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = collections.Counter[str]()
    with so.load_dataset(logs) as data:
        read = type(data._source).in_memory

        def in_memory(source: Any) -> Any:
            taken["in_memory"] += 1
            return read(source)

        monkeypatch.setattr(type(data._source), "in_memory", in_memory)
        monkeypatch.setattr(type(data._source), "take", None)
        so.fit(data, "avg", SETTINGS)
    assert taken == {"in_memory": 1}


def test_views_share_what_is_in_memory(logs: Path, suffix: str) -> None:
    path = logs.with_suffix(f".{suffix}")
    if suffix == "parquet":
        so.convert(logs, path)
    data = read_dataset(path)
    with so.load_dataset(path) as lazy:
        for mine, theirs in (
            (data.steps(), lazy.steps()),
            (data.segments(3), lazy.segments(3)),
            (data.select([5, 2, 9]).steps(), lazy.select([5, 2, 9]).steps()),
            (data.stacked(2).steps(), lazy.stacked(2).steps()),
        ):
            for name in mine.__dataclass_fields__:
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    whole = data.steps()
    assert data.steps() is whole
    assert data.in_memory() is data
    assert data.without_hidden().steps().observations.base is whole.observations.base
    first = data.select(data.episode_index.instance == 0).steps()
    assert np.shares_memory(first.rewards, whole.rewards)
    assert np.shares_memory(data.episodes()[3].observations, whole.observations)
    with pytest.raises(ValueError, match="read-only"):
        whole.rewards[0] = 1
    assert data.content_hash == so.load_dataset(path).content_hash


@pytest.mark.parametrize("name", ["bytes", "values"])
def test_damage_is_found_on_the_way(logs: Path, suffix: str, tools: Any, name: str) -> None:
    path = logs.with_suffix(f".{suffix}")
    if suffix == "parquet":
        so.convert(logs, path)
    if name == "bytes":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        message = "does not match its own checksum"
    elif suffix == "parquet":
        # as another tool would write it, without a checksum
        tools.parquet(path, tools.rows("rewards", lambda rows: [np.nan, *rows[1:]]))
        message = "rewards hold NaN"
    else:
        with so.load_dataset(path) as data:
            columns = data._source.in_memory()
        rewards = np.array(columns._arrays["rewards"])
        rewards[3] = np.nan
        columns._arrays["rewards"] = rewards
        write_hdf5(path, columns, columns.header, None)
        message = "rewards hold NaN"
    with pytest.raises(DataError, match=message):
        so.fit(path, "avg", SETTINGS)

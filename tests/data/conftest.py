"""Random episodes, files of them in either format, and ways to damage those."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sept_offline.data import DatasetWriter

NUM_ACTIONS = 4
DIM = 3


def make_episode(
    rng: np.random.Generator, number: int, steps: int, instances: int
) -> dict[str, Any]:
    terminated = bool(rng.integers(2))
    return {
        "instance": f"train-{number % instances}",
        "observations": rng.normal(size=(steps + 1, DIM)).astype(np.float32),
        "actions": rng.integers(NUM_ACTIONS, size=steps),
        "rewards": rng.normal(size=steps),
        "terminated": terminated,
        "truncated": not terminated,
        "propensities": rng.dirichlet(np.full(NUM_ACTIONS, 5.0), size=steps),
        "behaviour": ("random", "expert")[int(rng.integers(2))],
        "seed": 100 + number,
    }


@pytest.fixture
def episodes() -> list[dict[str, Any]]:
    rng = np.random.default_rng(7)
    return [make_episode(rng, i, int(rng.integers(4, 12)), 3) for i in range(20)]


@pytest.fixture(params=["h5", "parquet"])
def suffix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


WriteFile = Callable[..., Path]


@pytest.fixture
def write() -> WriteFile:
    def write_file(path: Path, episodes: list[dict[str, Any]], **options: Any) -> Path:
        with DatasetWriter(path, **({"num_actions": NUM_ACTIONS} | options)) as writer:
            for episode in episodes:
                writer.append(**episode)
        return path

    return write_file


WRITTEN: dict[str, bytes] = {}
"""By suffix: what `path` writes for the first test that asks, and copies for all others."""


@pytest.fixture
def path(tmp_path: Path, suffix: str, episodes: list[dict[str, Any]], write: WriteFile) -> Path:
    file = tmp_path / f"data.{suffix}"
    if suffix not in WRITTEN:
        hidden = {f"train-{i}": {"mass": float(i), "length": -0.1 * i} for i in range(3)}
        write(file, episodes, hidden=hidden, family="toy", root_seed=1)
        WRITTEN[suffix] = file.read_bytes()
    file.write_bytes(WRITTEN[suffix])
    return file


def edit_hdf5(path: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Replace a column (or index field) by what `change` makes of it."""
    with h5py.File(path, "r+") as file:
        values = change(file[name][()])
        del file[name]
        if values is not None:
            file.create_dataset(name, data=values)


def edit_parquet(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Rewrite the rows as another tool would, with the header kept and the index dropped."""
    pq.write_table(change(pq.read_table(path)), path)


def edit_rows(name: str, change: Callable[[list[Any]], Any]) -> Callable[[pa.Table], pa.Table]:
    """An edit of one column of a table, as a list of Python values."""

    def edit(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        values = change(values) or values
        position = table.schema.get_field_index(name)
        kind = table.schema.field(name).type
        return table.set_column(position, table.schema.field(name), pa.array(values, type=kind))

    return edit


@pytest.fixture
def tools() -> Any:
    class Tools:
        hdf5 = staticmethod(edit_hdf5)
        parquet = staticmethod(edit_parquet)
        rows = staticmethod(edit_rows)
        episode = staticmethod(make_episode)

        @staticmethod
        def header(path: Path) -> dict[str, Any]:
            with h5py.File(path, "r") as file:
                return dict(json.loads(bytes(file["header"][()])))

    return Tools

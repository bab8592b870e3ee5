"""Tables of logged steps, as other people keep them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

Row = dict[str, Any]
COLUMNS = {
    "instance": "site",
    "episode": ("stay",),
    "time": "hour",
    "observations": ("pulse", "pressure"),
    "action": "drug",
    "reward": "score",
    "terminated": "cured",
    "truncated": "left",
}


def stay(
    name: str,
    site: str,
    steps: int = 4,
    *,
    seed: int = 0,
    final: bool = True,
    cured: bool = True,
) -> list[Row]:
    """One episode: one row per step and, if `final`, one more for what was seen last."""
    rng = np.random.default_rng([seed, *name.encode()])
    rows: list[Row] = []
    for hour in range(steps + final):
        step = hour < steps
        last = hour == steps - 1
        pulse, pressure = (float(value) for value in rng.normal(size=2).astype(np.float32))
        rows.append(
            {
                "site": site,
                "stay": name,
                "hour": hour,
                "pulse": pulse,
                "pressure": pressure,
                "drug": ("none", "low", "high")[int(rng.integers(3))] if step else None,
                "score": float(rng.normal()) if step else None,
                "cured": cured and last if step else None,
                "left": (not cured) and last if step else None,
            }
        )
    return rows


def stays(count: int = 6, **options: Any) -> list[Row]:
    """Some episodes of two sites, ids with gaps."""
    return [
        row
        for number in range(count)
        for row in stay(f"s{7 * number}", f"site-{number % 2}", cured=number % 3 > 0, **options)
    ]


def write_table(path: Path, rows: Sequence[Row]) -> Path:
    """As CSV or Parquet, by the suffix."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=17)
    else:
        pc.write_csv(table, path)
    return path

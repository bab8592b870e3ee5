"""Runs to report on: a small one of 2D navigation, and one whose every name is an attack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from sept_offline.evaluation import EpisodeResult, Results
from tests.report.browser import ATTACK, FEW

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def navigation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs.h5 and the runs sept and avg, evaluated."""
    folder = tmp_path_factory.mktemp("navigation")
    few = {"behaviour": "random", "episodes": 60}
    data = so.collect_dataset("navigation2d", folder / "logs.h5", overrides=few, seed=0)
    for method in ("sept", "avg"):
        agent = so.fit(data, method=method, config=FEW, seed=0, out=folder / method)
        so.evaluate(agent).write(folder / method / "results.parquet")
    data.close()
    return folder


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kept bench, without what would make its page long; two axes, of words and of numbers."""
    methods = ("sept", "avg", "oracle")
    variants = "base|behaviour=.*|latent.dim=.*"
    folder = tmp_path_factory.mktemp("bench")
    return kept_bench(folder, "navigation2d", methods=methods, variants=variants)


def kept_bench(
    folder: Path, *families: str, methods: tuple[str, ...] = (), variants: str = ".*"
) -> Path:
    """The tables of the kept bench, of these families and methods alone; all methods if none.

    variants: a regular expression of those to keep.
    """
    for path in (ROOT / "benchmarks" / "results" / "bench").glob("*.parquet"):
        table = pq.read_table(path)
        kept = pc.field("family").isin(families)
        if methods:
            kept &= pc.field("method").isin(methods)
        table = table.filter(kept)
        chosen = pc.match_substring_regex(table["variant"], f"^(?:{variants})$")
        pq.write_table(table.filter(chosen), folder / path.name)
    return folder


@pytest.fixture(scope="session")
def large_bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The families and methods of which each kind of chart is drawn."""
    families = ("navigation2d", "navigation2d-switch", "acrobot")
    methods = ("sept", "avg", "oracle", "dynasept")
    return kept_bench(tmp_path_factory.mktemp("large"), *families, methods=methods)


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a simulator; instances, columns, actions and files are named to do harm."""
    folder = tmp_path_factory.mktemp("attacked")
    path = folder / "<img src=x onerror=alert(2)>.h5"  # a slash would end the name
    rng = np.random.default_rng(0)
    names = (ATTACK, "</script><script>alert(3)</script>", "{{ 7 * 7 }}")
    with so.DatasetWriter(
        path,
        observation_dim=2,
        num_actions=2,
        observation_names=("<b>x</b>", "'\"><svg onload=alert(4)>"),
        action_names=("<i>left</i>", "</title>right"),
        probe_steps=2,
    ) as writer:
        for name in names:
            for _ in range(12):
                writer.append(
                    instance=name,
                    observations=rng.normal(size=(7, 2)),
                    actions=rng.integers(2, size=6),
                    rewards=rng.normal(size=6),
                    terminated=False,
                    truncated=True,
                    propensities=np.full((6, 2), 0.5),
                )
    with so.load_dataset(path) as data:
        config = {**FEW, "probe_steps": 2, "latent": {**FEW["latent"], "dim": 2}}
        so.fit(data, method="sept", config=config, seed=0, out=folder / "run")
    observed = tuple(tuple(row) for row in rng.normal(size=(4, 2)).tolist())
    episode = EpisodeResult(
        instance=ATTACK,
        episode=0,
        actions=(0, 1, 0),
        phases=("probe", "probe", "control"),
        rewards=(1.0, 0.0, 1.0),
        terminated=True,
        solved=None,
        steps_to_solve=None,
        normalised=None,
        latent=(0.1, 0.2),
        uncertainty=0.1,
        novelty=0.5,
        flagged=False,
        act_microseconds=1.0,
        seconds=0.1,
        observations=observed,
    )
    Results("sept", "wards", (), "test", 0, 3, (episode,)).write(folder / "run" / "results.parquet")
    return folder

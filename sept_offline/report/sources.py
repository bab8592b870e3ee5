"""What a report is made from: a run or a bench on disk, as far as it is there."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sept_offline.agent import Agent, load_agent
from sept_offline.bench.figures.rows import Bench, read_bench
from sept_offline.bench.store import TABLES
from sept_offline.data import Dataset, load_dataset
from sept_offline.errors import DataError, FamilyError, SeptError
from sept_offline.evaluation import Results, load_results
from sept_offline.evaluation.results import KEPT
from sept_offline.family import Family, load_family
from sept_offline.files import read_json


@dataclass(frozen=True)
class Metric:
    """A metric of a stage over its updates."""

    updates: list[int]
    values: list[float]


@dataclass(frozen=True)
class Run:
    """A run directory; what is missing is None, and `missing` says why, a line each."""

    path: Path
    name: str
    """What it is called on the page: its method, with its folder where two share one."""
    record: dict[str, Any]
    metrics: dict[tuple[str, str], Metric]
    """(stage, metric) → values."""
    agent: Agent | None
    data: Dataset | None
    results: Results | None
    family: Family | None
    missing: dict[str, str]
    """"agent", "data", "results" → the line that stands in for it."""

    @property
    def method(self) -> str:
        """The method that was fitted."""
        return str(self.record["method"])


@dataclass(frozen=True)
class BenchFolder:
    """The folder of a bench."""

    path: Path
    rows: Bench


def read_sources(paths: list[Path], dataset: Path | None) -> tuple[list[Run], list[BenchFolder]]:
    """Runs and benches among `paths`; `dataset` stands in where a run's own has moved."""
    runs, benches = [], []
    for path in paths:
        if (path / "run.json").is_file():
            runs.append(read_run(path, dataset))
        elif all((path / f"{name}.parquet").is_file() for name in TABLES):
            benches.append(BenchFolder(path, read_bench(path)))
        elif not path.exists():
            raise DataError(f"There is no {path}; name a run of fit or the folder of a bench.")
        else:
            raise DataError(
                f"{path} is neither a run (it has no run.json) nor a bench (it has no "
                f"{TABLES[0]}.parquet); name what `fit -o` or `bench -o` wrote."
            )
    return _named(runs), benches


def read_run(path: Path, dataset: Path | None = None) -> Run:
    """A run as far as it is there; only `run.json` must be."""
    record = read_json(path / "run.json", DataError)
    if not isinstance(record, dict) or not {"method", "config", "seed"} <= set(record):
        raise DataError(f"{path / 'run.json'} does not describe a run of fit.")
    missing: dict[str, str] = {}
    agent = results = None
    if (path / "agent").is_dir():
        agent = load_agent(path)
    else:
        missing["agent"] = f"It is not finished: sept-offline fit … --resume -o {path} ends it."
    if (path / KEPT).is_file():
        results = load_results(path / KEPT)
    else:
        missing["results"] = f"No test episodes: sept-offline evaluate {path} runs them."
    return Run(
        path=path,
        name=str(record["method"]),
        record=record,
        metrics=_metrics(path / "metrics.csv"),
        agent=agent,
        data=_logs(path, record, dataset, missing),
        results=results,
        family=_family(record, agent, results),
        missing=missing,
    )


def _logs(
    path: Path, record: dict[str, Any], given: Path | None, missing: dict[str, str]
) -> Dataset | None:
    """The very logs it learned from, if they are still where they were, or where it is said."""
    said = str(record.get("dataset", ""))
    places = [given] if given is not None else [Path(said), path.parent / Path(said).name]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        missing["data"] = f"Its logs are not at {places[0]}; --dataset PATH says where they are."
        return None
    try:
        data = load_dataset(found)
    except SeptError as problem:
        missing["data"] = f"Its logs cannot be read: {problem}"
        return None
    if data.content_hash != record.get("content_hash"):
        data.close()
        missing["data"] = f"{found} does not hold the logs it learned from: the content differs."
        return None
    return data


def _family(record: dict[str, Any], agent: Agent | None, results: Results | None) -> Family | None:
    """The simulator, where there is one."""
    names = [agent.record.get("family_object") if agent is not None else None]
    names += [results.family if results is not None else None, record.get("family")]
    for name in names:
        if name:
            try:
                return load_family(name)
            except FamilyError:
                continue
    return None


def _metrics(path: Path) -> dict[tuple[str, str], Metric]:
    found: dict[tuple[str, str], Metric] = {}
    if not path.is_file():
        return found
    with path.open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            try:
                update, value = int(row["update"]), float(row["value"])
                name = (row["stage"], row["metric"])
            except (KeyError, TypeError, ValueError):
                continue  # a line that a kill cut short
            own = found.setdefault(name, Metric([], []))
            own.updates.append(update)
            own.values.append(value)
    return found


def _named(runs: list[Run]) -> list[Run]:
    """Runs whose method another one shares are told apart by their folder, then by their path."""
    methods = [run.method for run in runs]
    folders = [(run.method, run.path.name) for run in runs]
    found = []
    for run in runs:
        name = run.method
        if methods.count(run.method) > 1:
            alone = folders.count((run.method, run.path.name)) == 1
            name = f"{run.method} ({run.path.name if alone else run.path})"
        found.append(replace(run, name=name))
    return found

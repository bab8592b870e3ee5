"""The sources of a report: runs and benches on disk, as far as they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from sept_offline.agent import Agent, load_agent
from sept_offline.data import Dataset, load_dataset
from sept_offline.data.filesystems import Place, locate, place_kind
from sept_offline.errors import DataError, FamilyError, SeptError
from sept_offline.evaluation import Results, load_results
from sept_offline.family import Family, known_family
from sept_offline.methods.hold_out import in_ranges
from sept_offline.methods.run import EVALUATED, JUDGED, METRICS, read_metrics, read_record
from sept_offline.seals import read_sealed
from sept_offline.settings import OpeConfig
from sept_offline.tools.bench.figures.rows import Bench, read_bench
from sept_offline.tools.bench.store import TABLES
from sept_offline.tools.bench.summary import summarise_rows
from sept_offline.tools.ope import Estimate
from sept_offline.tools.report.page import shown_path


@dataclass(frozen=True)
class Metric:
    """A metric of a stage over its updates."""

    updates: list[int]
    values: list[float]


@dataclass(frozen=True)
class Judged:
    """The estimate of an agent's return from logs, as `ope` wrote it."""

    horizon: int
    confidence: float
    episodes: int
    instances: int
    judged_on: str
    logged_return: float
    estimators: dict[str, Estimate]
    headline: str
    verdict: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A run directory; missing parts are None, and `missing` gives the reasons."""

    path: Path
    name: str
    """Its name on the page: the method, with the folder where two runs share a method."""
    record: dict[str, Any]
    metrics: dict[tuple[str, str], Metric]
    """(stage, metric) → values."""
    agent: Agent | None
    data: Dataset | None
    """The logs it learned from, without the episodes that were held out."""
    results: Results | None
    judged: Judged | None
    family: Family | None
    missing: dict[str, str]
    """"agent", "data", "results", "judged", "metrics" → the line that stands in for it."""

    @property
    def method(self) -> str:
        """The method that was fitted."""
        return str(self.record["method"])


class Evaluated(NamedTuple):
    """A run that has been evaluated, and its results."""

    run: Run
    results: Results


def evaluated(runs: Sequence[Run]) -> list[Evaluated]:
    """Those of `runs` that have results."""
    return [Evaluated(run, run.results) for run in runs if run.results is not None]


def comparable(runs: Sequence[Run]) -> dict[tuple[str, str, int], list[Evaluated]]:
    """Runs that can be compared: by family, split and limit of steps."""
    groups: dict[tuple[str, str, int], list[Evaluated]] = {}
    for entry in evaluated(runs):
        results = entry.results
        key = (results.family, results.instances, results.limit)
        groups.setdefault(key, []).append(entry)
    return groups


@dataclass(frozen=True)
class BenchFolder:
    """The folder of a bench."""

    path: Path
    rows: Bench

    @cached_property
    def summary(self) -> list[dict[str, Any]]:
        """One record per family, preset, variant and method."""
        return summarise_rows(self.rows.results, self.rows.cells, self.rows.latents)


def read_sources(
    paths: Sequence[Path], dataset: str | Place | None
) -> tuple[list[Run], list[BenchFolder]]:
    """Runs and benches among `paths`; `dataset` replaces logs that have moved."""
    runs: list[Run] = []
    benches: list[BenchFolder] = []
    try:
        for path in dict.fromkeys(paths):
            if (path / "run.json").is_file():
                runs.append(read_run(path, dataset))
            else:
                benches.append(_bench(path))
    except BaseException:
        close(runs)
        raise
    return _named(runs), benches


def close(runs: Sequence[Run]) -> None:
    """Close the logs."""
    for run in runs:
        if run.data is not None:
            run.data.close()


def _bench(path: Path) -> BenchFolder:
    if not path.exists():
        raise DataError(f"There is no {path}; name a run of fit or the folder of a bench.")
    absent = [name for name in TABLES if not (path / f"{name}.parquet").is_file()]
    if absent:
        raise DataError(
            f"{path} is neither a run (it has no run.json) nor a bench (it has no "
            f"{absent[0]}.parquet); name what `fit -o` or `bench -o` wrote."
        )
    return BenchFolder(path, read_bench(path))


def read_run(path: Path, dataset: str | Place | None = None) -> Run:
    """The valid parts of a run; only `run.json` is required."""
    record = read_record(path)
    missing: dict[str, str] = {}
    agent = _agent(path, missing)
    results = _results(path, missing)
    family = _family(record, results)
    if results is None and "results" not in missing:
        missing["results"] = (
            f"No test episodes: sept-offline evaluate {shown_path(path)} runs them."
            if family is not None
            else "No test episodes: there is no simulator of these logs. sept-offline ope says "
            "which return the logs suggest."
        )
    return Run(
        path=path,
        name=str(record["method"]),
        record=record,
        metrics=_metrics(path, record, missing),
        agent=agent,
        data=_logs(path, record, dataset, missing),
        results=results,
        judged=_judged(path, missing),
        family=family,
        missing=missing,
    )


def _agent(path: Path, missing: dict[str, str]) -> Agent | None:
    if not (path / "agent").is_dir():
        missing["agent"] = (
            f"It is not finished: sept-offline fit … --resume -o {shown_path(path)} continues it."
        )
        return None
    try:
        return load_agent(path)
    except SeptError as problem:
        missing["agent"] = f"Its agent cannot be read: {problem}"
        return None


def _results(path: Path, missing: dict[str, str]) -> Results | None:
    """The last evaluation; None if it has no episodes."""
    if not (path / EVALUATED).is_file():
        return None
    try:
        results = load_results(path / EVALUATED)
    except SeptError as problem:
        missing["results"] = f"Its test episodes cannot be read: {problem}"
        return None
    if not results.episodes:
        missing["results"] = "Its last evaluation has no episodes."
        return None
    return results


def _judged(path: Path, missing: dict[str, str]) -> Judged | None:
    """The last estimate of `ope`; None if it is not complete."""
    if not (path / JUDGED).is_file():
        return None
    try:
        record = read_sealed(path / JUDGED, DataError)
        estimators = {
            str(name): Estimate(**{key: float(value) for key, value in estimate.items()})
            for name, estimate in record["estimators"].items()
        }
        estimators[record["headline"]]
        return Judged(
            horizon=int(record["horizon"]),
            confidence=float(record.get("confidence", OpeConfig.confidence)),
            episodes=int(record["episodes"]),
            instances=int(record["instances"]),
            judged_on=str(record["judged_on"]),
            logged_return=float(record["logged_return"]),
            estimators=estimators,
            headline=str(record["headline"]),
            verdict=str(record["verdict"]),
            reasons=tuple(map(str, record["reasons"])),
        )
    except (DataError, LookupError, TypeError, AttributeError, ValueError, OverflowError):
        missing["judged"] = f"{shown_path(path / JUDGED)} is not an estimate of ope."
        return None


def _logs(
    path: Path, record: dict[str, Any], given: str | Place | None, missing: dict[str, str]
) -> Dataset | None:
    """The logs of the run: at their recorded path, next to the run, or at `given`."""
    where = locate(str(record.get("dataset", "")))
    # A path from a file is opened only if it is local: an address would be called with the user's
    # keys. An address that the user gives is opened.
    places: list[Place] = [where, path.parent / where.name] if isinstance(where, Path) else []
    places += [locate(given)] if given is not None else []
    reason = f"Its logs are not at {shown_path(str(where))}; --dataset PATH says where they are."
    if not places:
        reason = f"Its logs are at {where}, which is not opened unless you name it with --dataset."
    for place in places:
        try:
            if place_kind(place) == "nothing":
                continue
            data = load_dataset(place, check=True)
        except SeptError as problem:
            reason = f"Its logs cannot be read: {problem}"
            continue
        if data.content_hash == record.get("content_hash"):
            held = (record.get("held_out") or {}).get("episodes")
            learned = ~in_ranges(data.episode_index.number, held or [])
            if learned.any():
                return data.select(learned) if held else data
            data.close()
            reason = "Its record holds out all episodes of its logs."
            continue
        data.close()
        shown = shown_path(str(place))
        reason = f"{shown} does not hold the logs it learned from: the content differs."
    missing["data"] = reason
    return None


def _family(record: dict[str, Any], results: Results | None) -> Family | None:
    """The family of the results, else of the logs; None if it is not known here."""
    name = results.family if results is not None else record.get("family")
    if not name:
        return None
    try:
        return known_family(name)
    except FamilyError:
        return None


def _metrics(
    path: Path, record: dict[str, Any], missing: dict[str, str]
) -> dict[tuple[str, str], Metric]:
    metrics: dict[tuple[str, str], Metric] = {}
    if not (path / METRICS).exists() and "metrics" not in record:
        return metrics
    try:
        rows = read_metrics(path / METRICS, record.get("metrics"))
    except DataError as problem:
        missing["metrics"] = f"Its training cannot be shown: {problem}"
        return metrics
    for stage, update, name, value, _ in rows:
        metric = metrics.setdefault((stage, name), Metric([], []))
        metric.updates.append(int(update))
        metric.values.append(float(value))
    return metrics


def _named(runs: list[Run]) -> list[Run]:
    """Runs of the same method get their folder in the name, or their path where that repeats."""
    methods = [run.method for run in runs]
    folders = [(run.method, run.path.name) for run in runs]
    named = []
    for run in runs:
        name = run.method
        if methods.count(run.method) > 1:
            alone = folders.count((run.method, run.path.name)) == 1
            name = f"{run.method} ({run.path.name if alone else shown_path(run.path)})"
        named.append(replace(run, name=name))
    return named

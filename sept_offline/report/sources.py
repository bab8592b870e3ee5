"""What a report is made from: a run or a bench on disk, as far as it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sept_offline.agent import Agent, load_agent
from sept_offline.bench.figures.rows import Bench, read_bench
from sept_offline.bench.store import TABLES
from sept_offline.data import Dataset, load_dataset
from sept_offline.data.filesystems import Place, locate, place_kind
from sept_offline.errors import DataError, FamilyError, SeptError
from sept_offline.evaluation import Results, load_results
from sept_offline.family import Family, known_family
from sept_offline.methods.hold_out import in_ranges
from sept_offline.methods.run import EVALUATED, JUDGED, METRICS, read_metrics, read_record
from sept_offline.ope import Estimate
from sept_offline.report.text import shown_path
from sept_offline.seals import read_sealed


@dataclass(frozen=True)
class Metric:
    """A metric of a stage over its updates."""

    updates: list[int]
    values: list[float]


@dataclass(frozen=True)
class Judged:
    """What logs said of an agent's worth, as `ope` left it."""

    horizon: int
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
    """A run directory; what is missing is None, and `missing` says why, a line each."""

    path: Path
    name: str
    """What it is called on the page: its method, with its folder where two share one."""
    record: dict[str, Any]
    metrics: dict[tuple[str, str], Metric]
    """(stage, metric) → values."""
    agent: Agent | None
    data: Dataset | None
    """What it learned from: without the episodes that were held out."""
    results: Results | None
    judged: Judged | None
    family: Family | None
    missing: dict[str, str]
    """"agent", "data", "results", "judged", "metrics" → the line that stands in for it."""

    @property
    def method(self) -> str:
        """The method that was fitted."""
        return str(self.record["method"])


@dataclass(frozen=True)
class Evaluated:
    """A run that has been evaluated."""

    run: Run
    results: Results


def evaluated(runs: Sequence[Run]) -> list[Evaluated]:
    """Those of `runs` that have results."""
    return [Evaluated(run, run.results) for run in runs if run.results is not None]


@dataclass(frozen=True)
class BenchFolder:
    """The folder of a bench."""

    path: Path
    rows: Bench


def read_sources(
    paths: Sequence[Path], dataset: str | Place | None
) -> tuple[list[Run], list[BenchFolder]]:
    """Runs and benches among `paths`; `dataset` stands in where a run's own has moved."""
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
    """Let go of the logs."""
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
    """A run as far as it is there and sound; only `run.json` must be."""
    record = read_record(path)
    missing: dict[str, str] = {}
    agent = _agent(path, missing)
    results = _results(path, missing)
    family = _family(record, results)
    if results is None and "results" not in missing:
        missing["results"] = (
            f"No test episodes: sept-offline evaluate {shown_path(path)} runs them."
            if family is not None
            else "No test episodes, for there is no simulator of these logs; sept-offline ope says "
            "what the agent would have earned."
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
            f"It is not finished: sept-offline fit … --resume -o {shown_path(path)} ends it."
        )
        return None
    try:
        return load_agent(path)
    except SeptError as problem:
        missing["agent"] = f"Its agent cannot be read: {problem}"
        return None


def _results(path: Path, missing: dict[str, str]) -> Results | None:
    """The last evaluation; one of no episodes is none."""
    if not (path / EVALUATED).is_file():
        return None
    try:
        found = load_results(path / EVALUATED)
    except SeptError as problem:
        missing["results"] = f"Its test episodes cannot be read: {problem}"
        return None
    if not found.episodes:
        missing["results"] = "Its last evaluation holds no episodes."
        return None
    return found


def _judged(path: Path, missing: dict[str, str]) -> Judged | None:
    """What `ope` said last; one that is not whole is none."""
    if not (path / JUDGED).is_file():
        return None
    try:
        found = read_sealed(path / JUDGED, DataError)
        estimators = {
            str(name): Estimate(**{key: float(value) for key, value in one.items()})
            for name, one in found["estimators"].items()
        }
        estimators[found["headline"]]
        return Judged(
            horizon=int(found["horizon"]),
            episodes=int(found["episodes"]),
            instances=int(found["instances"]),
            judged_on=str(found["judged_on"]),
            logged_return=float(found["logged_return"]),
            estimators=estimators,
            headline=str(found["headline"]),
            verdict=str(found["verdict"]),
            reasons=tuple(map(str, found["reasons"])),
        )
    except (DataError, LookupError, TypeError, AttributeError, ValueError, OverflowError):
        missing["judged"] = f"{shown_path(path / JUDGED)} does not hold an answer of ope."
        return None


def _logs(
    path: Path, record: dict[str, Any], given: str | Place | None, missing: dict[str, str]
) -> Dataset | None:
    """The very logs it learned from: where they were, beside the run, or where it is said."""
    said = str(record.get("dataset", ""))
    where = locate(said)
    # What a file names is opened only if it is local: an address would be called, with the user's
    # keys. One that the user gives is another matter.
    places: list[Place] = [where, path.parent / where.name] if isinstance(where, Path) else []
    places += [locate(given)] if given is not None else []
    reason = f"Its logs are not at {shown_path(str(where))}; --dataset PATH says where they are."
    if not places:
        reason = f"Its logs are at {where}, which is not opened unless you name it: --dataset."
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
            return data.select(~in_ranges(data.episode_index.number, held)) if held else data
        data.close()
        shown = shown_path(str(place))
        reason = f"{shown} does not hold the logs it learned from: the content differs."
    missing["data"] = reason
    return None


def _family(record: dict[str, Any], results: Results | None) -> Family | None:
    """The simulator, where there is one that is known here: of the results, else of the logs."""
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
    found: dict[tuple[str, str], Metric] = {}
    if not (path / METRICS).exists() and "metrics" not in record:
        return found
    try:
        rows = read_metrics(path / METRICS, record.get("metrics"))
    except DataError as problem:
        missing["metrics"] = f"Its training cannot be shown: {problem}"
        return found
    for stage, update, metric, value, _ in rows:
        own = found.setdefault((stage, metric), Metric([], []))
        own.updates.append(int(update))
        own.values.append(float(value))
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
            name = f"{run.method} ({run.path.name if alone else shown_path(run.path)})"
        found.append(replace(run, name=name))
    return found

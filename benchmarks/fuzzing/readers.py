"""What reads each kind of file: a function from a corpus to the digest of what it read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sept_offline as so
from benchmarks.fuzzing.corpus import RECORD
from sept_offline.errors import DataError, SeptError

Reader = Callable[[Path], str]


def digest(*values: Any) -> str:
    """Of anything that a reader returns."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            found.update(f"{value.dtype}{value.shape}".encode())
            found.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, dict):
            found.update(
                digest(
                    *(part for key in sorted(value, key=str) for part in (key, value[key]))
                ).encode()
            )
        elif isinstance(value, list | tuple):
            found.update(digest("list", len(value), *value).encode())
        else:
            found.update(repr(value).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def _content(data: Any) -> str:
    steps = data.steps()
    hidden = None if data.hidden is None else (data.hidden.names, data.hidden.values)
    index = dict(vars(data.episode_index))
    header = json.loads(data._source.header.to_json())
    return digest({**vars(steps)}, index, hidden, header)


def dataset(name: str) -> Reader:
    """`validate`, and if that is satisfied what `load_dataset` reads, all of it."""

    def read(folder: Path) -> str:
        report = so.validate(folder / name)
        report.raise_if_bad()
        with so.load_dataset(folder / name) as data:
            so.inspect(data)
            return _content(data)

    return read


def run(folder: Path) -> str:
    """What `report` reads of a run; what it says is missing is refused."""
    from sept_offline.tools.report.sources import close, read_run

    # The logs are found beside the run.
    found = read_run(folder / "run", folder / "logs.h5")
    try:
        if found.missing:
            raise DataError(next(iter(found.missing.values())))
        data = None if found.data is None else _content(found.data)
        metrics = {f"{a} {b}": vars(one) for (a, b), one in found.metrics.items()}
        return digest(found.record, metrics, repr(found.results), repr(found.judged), data)
    finally:
        close([found])


def page(folder: Path) -> str:
    """The whole page of a run and a bench; for one input in 28, since it takes a while."""
    from sept_offline.tools.report import write_report

    content = b"".join(
        (folder / name).read_bytes() for name in ("run/run.json", "bench/cells.parquet")
    )
    if hashlib.sha256(content).digest()[0] >= 9:
        return "page"
    write_report(
        [folder / "run", folder / "bench"], folder / "out.html", dataset=folder / "logs.h5"
    )
    return "page"


def agent(name: str) -> Reader:
    """`load_agent`, and what it does."""

    def read(folder: Path) -> str:
        found = so.load_agent(folder / name)
        hidden = {"mass": 1.0, "length": 0.5} if "hidden" in found.needs else None
        episode = found.begin(seed=0, hidden=hidden)
        columns = found.spaces.observation_dim
        rows = np.random.default_rng(0).normal(size=(8, columns)).astype(np.float32)
        paid = "reward" in found.needs
        actions = [
            int(episode.act(row, reward=0.5 if paid and step else None))
            for step, row in enumerate(rows)
        ]
        made = (actions, episode.values, found.record, found.family, found.method, found.spaces)
        return digest(*made)

    return read


def evaluated(folder: Path) -> str:
    """`evaluate` without a family: the one that the agent's file names."""
    from sept_offline.evaluation import evaluate

    found = so.load_agent(folder / "run")
    try:
        evaluate(found)
    except SeptError:
        return agent("run")(folder)
    return "evaluated"


def resumed(folder: Path) -> str:
    """What `fit --resume` reads back: the record, every snapshot, the metrics."""
    from sept_offline.methods.run import RunDirectory
    from sept_offline.stage import StageState

    class Stage:
        name, total, done = "control", 100, 0
        state = None

        def restore(self, state: StageState) -> None:
            self.done, self.state = int(state.values["done"]), state

    begun, stage = RunDirectory(folder / "begun"), Stage()
    begun.open(RECORD, resume=True, restart=False)
    try:
        begun.restore(0, stage)  # type: ignore[arg-type]
    finally:
        begun.close()
    if stage.state is None:
        raise DataError("There is no snapshot.")
    tensors = {name: one.numpy() for name, one in stage.state.tensors.items()}
    return digest(tensors, stage.state.values, (folder / "begun" / "metrics.csv").read_bytes())


def loaded_results(name: str) -> Reader:
    """`load_results`."""
    from sept_offline.evaluation import load_results

    return lambda folder: digest(repr(load_results(folder / name)), "")


def exported(name: str) -> Reader:
    """`load_export`, and what it does; for NumPy the runtime of its own too."""

    def read(folder: Path) -> str:
        from sept_offline.tools.deploy import load_export, runtime

        found = load_export(folder / name)
        columns = len(found.manifest["observation_names"])
        rows = np.random.default_rng(0).normal(size=(8, columns)).astype(np.float32)
        episode = found.begin(seed=0)
        actions = [int(episode.act(row)) for row in rows]
        if found.manifest["form"] == "numpy":
            runtime.load(folder / name)
        return digest(actions, found.manifest)

    return read


def bench(folder: Path) -> str:
    """The tables of a bench, and what is made of them."""
    from sept_offline.tools.bench.figures.rows import read_bench
    from sept_offline.tools.bench.summary import summarise_bench

    rows = read_bench(folder / "bench")
    summarise_bench(folder / "bench")
    return digest(vars(rows))


def cell(folder: Path) -> str:
    """A finished cell of a bench."""
    from sept_offline.tools.bench.store import _read_cell

    table, parts = _read_cell(folder / "bench" / "cells" / "avg.parquet")
    return digest(table.to_pylist(), parts)


def config(folder: Path) -> str:
    """Settings of `fit`."""
    from sept_offline.settings import FitConfig, build, read_toml, to_plain

    values = {"probe_steps": 2} | read_toml(folder / "config.toml")
    return digest(to_plain(build(FitConfig, values)))


def imported(name: str) -> Reader:
    """`import` of logs that other programs wrote."""

    def read(folder: Path) -> str:
        from sept_offline.tools.importing import import_logs, mapping_from

        table = name.startswith("steps")
        mapping = mapping_from({}, folder / "mapping.toml" if table else None)
        out = folder / "imported.h5"
        try:
            return import_logs([str(folder / name)], out, mapping).content_hash
        finally:
            out.unlink(missing_ok=True)

    return read

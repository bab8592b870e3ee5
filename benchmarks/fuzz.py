"""Mutated files of every kind through every reader: what is refused, and what is not.

    python benchmarks/fuzz.py --inputs 100000 [--seed 0] [--workers 2] [--kinds run.json,…] [--show]

A small corpus is made by the library itself. Each input is one file of it, mutated (bytes, or what
its format means: JSON values, columns, links, headers), read by everything that reads such a file,
in a forked worker that may take 1 GB more than it had with all libraries loaded, and 10 seconds.
A mutation that makes the checksums right again is a deliberate edit and counts apart.

    refused    one sentence, as it should be
    same       loaded, with the very content that was written
    different  loaded without a word with other content: wrong, unless the file carries no checksum
    edited     loaded with other content whose checksum was made right: nobody can tell
    traceback, hang, memory, crash, executed, contacted: wrong in any case
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sept_offline as so
from sept_offline.errors import ConfigError, DataError, SeptError

SECONDS = 10
MEMORY = 1 << 30
WRONG = ("different", "traceback", "hang", "memory", "crash", "executed", "contacted")
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**400,
    -(10**18),
    0.5,
    1e308,
    "",
    "x",
    "evil:family",
    "evil.module:thing",
    "../../../../etc/passwd",
    "/dev/zero",
    "s3://bucket/x?endpoint_override=127.0.0.1:9",
    "a\0b",
    "\ud800",
    "٣",
    [],
    {},
    [[]],
    [None],
    {"": ""},
    ["x"] * 100,
    [1e308, 1e-308],
)


# The corpus


def make_corpus(folder: Path) -> None:
    """Every kind of file that the library reads, made by the library."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evil.py").write_text("open('executed', 'w').close()\nfamily = None\n")
    log(folder / "logs.h5")
    so.convert(folder / "logs.h5", folder / "logs.parquet")
    so.collect_dataset(
        "navigation2d",
        folder / "parts",
        overrides={"behaviour": "random", "episodes": 6, "max_steps": 5},
        seed=1,
    ).close()
    _runs(folder)
    _exports(folder)
    _bench(folder / "bench")
    _shard(folder)
    _foreign(folder)
    (folder / "config.toml").write_text(
        'fallback = "none"\nhistory_steps = 3\n[control]\nupdates = 10\nhidden = [8, 8]\n'
        "[latent]\nbeta = 1.0\n"
    )


def log(path: Path, episodes: int = 6) -> None:
    """A tiny dataset with hidden parameters and probabilities."""
    rng = np.random.default_rng(0)
    with so.DatasetWriter(
        path,
        num_actions=3,
        probe_steps=2,
        family="nobody",
        hidden={"a": {"mass": 1.0}, "b": {"mass": 2.0}},
        extra={"family_object": "evil:family", "latent_dim": 1},
    ) as writer:
        for number in range(episodes):
            writer.append(
                instance="ab"[number % 2],
                observations=rng.normal(size=(5, 2)),
                actions=rng.integers(0, 3, size=4),
                rewards=rng.normal(size=4),
                propensities=np.full((4, 3), 1 / 3),
                terminated=bool(number % 3 == 0),
                truncated=bool(number % 3),
                behaviour="random",
                seed=number,
            )


SETTINGS = {
    "verdict": False,
    "control": {"updates": 4, "hidden": [4], "batch_size": 4, "members": 1},
}


def _runs(folder: Path) -> None:
    from sept_offline.methods.fitting import Fitter, resolve_config
    from sept_offline.methods.run import JUDGED, RunDirectory
    from sept_offline.seals import write_json

    run = folder / "run"
    agent = so.fit(folder / "logs.h5", "avg", SETTINGS, out=run)
    results(agent).write(run / "results.parquet")
    results(agent).write(folder / "results.json")
    one = {"mean": 1.0, "low": 0.0, "high": 2.0, "ess": 3.0}
    judged = {
        "horizon": 4,
        "episodes": 6,
        "instances": 2,
        "judged_on": "held out",
        "logged_return": 0.5,
        "estimators": {"dr": one, "fqe": one},
        "headline": "dr",
        "verdict": "trust",
        "reasons": ["none"],
    }
    write_json(run / JUDGED, judged)
    with so.load_dataset(folder / "logs.h5") as data:
        begun = RunDirectory(folder / "begun", checkpoint_seconds=0.0)
        work = Fitter(data, "avg", resolve_config(data, "default", SETTINGS), 0, begun)
        begun.open(RECORD, resume=False, restart=False)
        for number, _ in enumerate(work):
            if number == 2:
                break
        begun.close()


RECORD = {"method": "avg", "seed": 0, "config": {"probe_steps": 2}, "family": "nobody"}


def results(agent: Any) -> Any:
    """Two test episodes that nobody played."""
    from sept_offline.evaluation.results import EpisodeResult, Results

    episodes = [
        EpisodeResult(
            instance=f"test-{number}",
            episode=0,
            actions=(0, 1),
            phases=("control", "control"),
            rewards=(0.5, -1.0),
            terminated=True,
            solved=None,
            steps_to_solve=None,
            normalised=None,
            latent=(0.25,),
            uncertainty=0.5,
            novelty=0.5,
            flagged=False,
            act_microseconds=3.0,
            seconds=0.1,
            observations=((0.0, 1.0), (1.0, 2.0), (2.0, 3.0)),
        )
        for number in range(2)
    ]
    return Results(
        method=agent.method,
        family="nobody",
        needs=(),
        instances="test",
        seed=0,
        limit=4,
        episodes=tuple(episodes),
        behaviour_estimated=False,
    )


def _exports(folder: Path) -> None:
    from sept_offline.deploy import export

    agent = so.load_agent(folder / "run")
    export(agent, folder / "numpy", "numpy", observations=20)
    with contextlib.suppress(ConfigError):  # without the extra [onnx] there is one kind less
        export(agent, folder / "onnx", "onnx", observations=20)


def _bench(folder: Path) -> None:
    from sept_offline.bench.store import Finished, gather, write_cell

    for seed, method in enumerate(("avg", "sept")):
        named = {
            "family": "nobody",
            "method": method,
            "preset": "default",
            "variant": "base",
            "data_seed": 0,
            "seed": seed,
        }
        episode = {
            "instance": "test-0",
            "episode": 0,
            "return": 1.0,
            "steps": 2,
            "probe_steps": 0,
            "solved": True,
            "steps_to_solve": 2,
            "terminated": True,
            "normalised": 0.5,
            "latent": [0.5],
            "uncertainty": 0.5,
            "novelty": 0.5,
            "flagged": False,
            "act_microseconds": 3.0,
            "seconds": 0.1,
            "reward": [0.5, 0.5],
        }
        versions = json.dumps({"sept-offline": so.__version__})
        cell = named | {
            "key": "0" * 16,
            "content_hash": "0" * 64,
            "split": "test",
            "limit": 4,
            "episodes": 1,
            "needs": [],
            "learns": False,
            "budget": None,
            "behaviour_estimated": False,
            "fit_seconds": 1.0,
            "fit_cpu_seconds": 1.0,
            "test_seconds": 1.0,
            "identification": 0.5,
            "record": "{}",
            "config": json.dumps({"probe_steps": 2}),
            "versions": versions,
        }
        training = [{"stage": "control", "update": 1, "metric": "max_q", "value": 1.0}]
        latents = [{"instance": "train-0", "hidden": json.dumps({"m": 1.0}), "z": [0.5]}]
        done = Finished([named | episode], cell, named | {"spec": "evil:family"}, training, latents)
        write_cell(folder / "cells" / f"{method}.parquet", done)
    gather(folder)


def _shard(folder: Path) -> None:
    from sept_offline.seals import save_arrays

    columns = {
        "observations": np.zeros((3, 2), np.float32),
        "actions": np.zeros(2, np.int64),
        "rewards": np.zeros(2),
        "propensities": np.full((2, 3), 1 / 3),
        "length": np.array([2]),
        "terminated": np.array([True]),
    }
    save_arrays(folder / "shard.safetensors", columns)


def _foreign(folder: Path) -> None:
    rng = np.random.default_rng(1)
    with h5py.File(folder / "d4rl.hdf5", "w") as file:
        file["observations"] = rng.normal(size=(12, 2)).astype(np.float32)
        file["actions"] = rng.integers(0, 3, size=12)
        file["rewards"] = rng.normal(size=12)
        file["terminals"] = np.arange(12) % 4 == 3
        file["timeouts"] = np.zeros(12, bool)
    with h5py.File(folder / "buffer.h5", "w") as file:
        file["columns"] = np.bytes_(b"observations")
        file["version"], file["num_episodes"] = np.bytes_(b"2.0"), 2
        for number in range(2):
            file[f"observations_{number}"] = rng.normal(size=(4, 2)).astype(np.float32)
            file[f"actions_{number}"] = rng.integers(0, 3, size=(4, 1))
            file[f"rewards_{number}"] = rng.normal(size=(4, 1))
            file[f"terminated_{number}"] = bool(number)
    rows = {
        "instance": [f"w{i // 6}" for i in range(12)],
        "episode": [i // 3 for i in range(12)],
        "time": [i % 3 for i in range(12)],
        "pulse": rng.normal(size=12).tolist(),
        "action": ["on" if i % 2 else "off" for i in range(12)],
        "reward": rng.normal(size=12).tolist(),
        "terminated": [i % 3 == 2 for i in range(12)],
    }
    pq.write_table(pa.table(rows), folder / "steps.parquet")
    lines = [",".join(rows)] + [",".join(str(rows[name][i]) for name in rows) for i in range(12)]
    (folder / "steps.csv").write_text("\n".join(lines) + "\n")
    (folder / "mapping.toml").write_text('observations = ["pulse"]\nprobe_steps = 2\n')


# What each kind of file is read by


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


def dataset(name: str) -> Callable[[Path], str]:
    """`validate`, and if that is satisfied what `load_dataset` reads, all of it."""

    def read(folder: Path) -> str:
        report = so.validate(folder / name)
        report.raise_if_bad()
        with so.load_dataset(folder / name) as data:
            if random.random() < 0.1:
                so.inspect(data)
            return _content(data)

    return read


def run(folder: Path) -> str:
    """What `report` reads of a run; what it says is missing is refused."""
    from sept_offline.report.sources import close, read_run

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
    """The whole page of a run and a bench; of one input in eight, for it takes a while."""
    from sept_offline.report import write_report

    content = b"".join(
        (folder / name).read_bytes() for name in ("run/run.json", "bench/cells.parquet")
    )
    if hashlib.sha256(content).digest()[0] >= 9:
        return "page"
    write_report(
        [folder / "run", folder / "bench"], folder / "out.html", dataset=folder / "logs.h5"
    )
    return "page"


def agent(folder: Path) -> str:
    """`load_agent`, and what it does."""
    found = so.load_agent(folder / "run")
    episode = found.begin(seed=0)
    rows = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    actions = [int(episode.act(row)) for row in rows]
    return digest(actions, episode.values, found.record, found.family, found.method, found.spaces)


def evaluated(folder: Path) -> str:
    """`evaluate` without a family: the one that the agent's file names."""
    from sept_offline.evaluation import evaluate

    found = so.load_agent(folder / "run")
    try:
        evaluate(found)
    except SeptError:
        return agent(folder)
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


def loaded_results(name: str) -> Callable[[Path], str]:
    """`load_results`."""
    from sept_offline.evaluation import load_results

    return lambda folder: digest(repr(load_results(folder / name)), "")


def exported(name: str) -> Callable[[Path], str]:
    """`load_export`, and what it does; for NumPy the runtime of its own too."""

    def read(folder: Path) -> str:
        from sept_offline.deploy import load_export, runtime

        found = load_export(folder / name)
        rows = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
        episode = found.begin(seed=0)
        actions = [int(episode.act(row)) for row in rows]
        if name == "numpy":
            runtime.load(folder / name)
        return digest(actions, found.manifest)

    return read


def bench(folder: Path) -> str:
    """The tables of a bench, and what is made of them."""
    from sept_offline.bench.figures.rows import read_bench
    from sept_offline.bench.summary import summarise_bench

    rows = read_bench(folder / "bench")
    summarise_bench(folder / "bench")
    return digest(vars(rows))


def cell(folder: Path) -> str:
    """A finished cell of a bench."""
    from sept_offline.bench.store import _read_cell

    table, parts = _read_cell(folder / "bench" / "cells" / "avg.parquet")
    return digest(table.to_pylist(), parts)


def shard(folder: Path) -> str:
    """A shard of a collection that is resumed."""
    from sept_offline.collect.staging import load_shard

    return digest([vars(one) for one in load_shard(folder / "shard.safetensors")])


def config(folder: Path) -> str:
    """Settings of `fit`."""
    from sept_offline.config import build, read_toml, to_plain
    from sept_offline.methods.config import FitConfig

    values = {"probe_steps": 2} | read_toml(folder / "config.toml")
    return digest(to_plain(build(FitConfig, values)))


def imported(name: str) -> Callable[[Path], str]:
    """`import` of logs that other programs wrote."""

    def read(folder: Path) -> str:
        from sept_offline.data.importing import import_logs, mapping_from

        table = name.startswith("steps")
        mapping = mapping_from({}, folder / "mapping.toml" if table else None)
        out = folder / "imported.h5"
        try:
            return import_logs([str(folder / name)], out, mapping).content_hash
        finally:
            out.unlink(missing_ok=True)

    return read


@dataclass(frozen=True)
class Kind:
    """One kind of file: where it lies, what reads it, how its meaning is mutated."""

    path: str
    readers: tuple[Callable[[Path], str], ...]
    form: str
    sealed: bool = True
    """Whether it carries a checksum: whether other content must be noticed."""
    weight: int = 10


def kinds() -> dict[str, Kind]:
    """All kinds, by name."""
    export_files = [
        Kind("numpy/manifest.json", (exported("numpy"),), "json"),
        Kind("numpy/weights.npz", (exported("numpy"),), "npz", weight=4),
        Kind("numpy/runtime.py", (exported("numpy"),), "text", weight=1),
        Kind("onnx/manifest.json", (exported("onnx"),), "json", weight=4),
        Kind("onnx/control.onnx", (exported("onnx"),), "bytes", weight=2),
    ]
    found = [
        Kind("logs.h5", (dataset("logs.h5"),), "hdf5", weight=16),
        Kind("logs.parquet", (dataset("logs.parquet"),), "parquet", weight=12),
        Kind("parts/_manifest.json", (dataset("parts"),), "manifest", weight=8),
        Kind("parts/_privileged.json", (dataset("parts"),), "json", weight=4),
        Kind("parts/part", (dataset("parts"),), "bytes", weight=6),
        Kind("run/run.json", (run, page), "json"),
        Kind("run/metrics.csv", (run,), "text"),
        Kind("run/ope.json", (run,), "json"),
        Kind("run/results.parquet", (loaded_results("run/results.parquet"), run), "table"),
        Kind("results.json", (loaded_results("results.json"),), "json"),
        Kind("run/agent/agent.json", (agent, evaluated), "json"),
        Kind("run/agent/weights.safetensors", (agent,), "tensors"),
        Kind("begun/run.json", (resumed,), "json"),
        Kind("begun/metrics.csv", (resumed,), "text"),
        Kind("begun/checkpoints/0-control.safetensors", (resumed,), "tensors", weight=16),
        Kind("bench/results.parquet", (bench,), "table", weight=4),
        Kind("bench/cells.parquet", (bench, page), "table", weight=6),
        Kind("bench/training.parquet", (bench,), "table", weight=2),
        Kind("bench/latents.parquet", (bench,), "table", weight=2),
        Kind("bench/cells/avg.parquet", (cell,), "table", weight=4),
        Kind("shard.safetensors", (shard,), "tensors", weight=6),
        Kind("config.toml", (config,), "toml", sealed=False, weight=6),
        Kind("d4rl.hdf5", (imported("d4rl.hdf5"),), "hdf5", sealed=False, weight=3),
        Kind("buffer.h5", (imported("buffer.h5"),), "hdf5", sealed=False, weight=2),
        Kind("steps.csv", (imported("steps.csv"),), "text", sealed=False, weight=2),
        Kind("steps.parquet", (imported("steps.parquet"),), "parquet", sealed=False, weight=2),
        Kind("mapping.toml", (imported("steps.csv"),), "toml", sealed=False, weight=1),
        *export_files,
    ]
    return {kind.path: kind for kind in found}


# Mutations: of bytes, and of what a format means


def mutate(kind: Kind, content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """Another content, and whether it was edited so that its checksums are right."""
    meaning = MEANINGS.get(kind.form)
    if meaning is not None and rng.random() < 0.5:
        try:
            return meaning(content, rng, scratch)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, pa.ArrowException):
            pass  # an edit that the writing library refuses
    for _ in range(1 if rng.random() < 0.7 else rng.randint(2, 5)):
        content = _bytes(content, rng)
    return content, False


def _bytes(content: bytes, rng: random.Random) -> bytes:
    size = len(content)
    if not size:
        return rng.randbytes(rng.randint(1, 64))
    low = rng.randrange(size)
    high = min(size, low + rng.choice((1, 1, 2, 4, 8, 64, 1024)))
    made = rng.randrange(9)
    if made == 0:
        return content[:low] + bytes([content[low] ^ (1 << rng.randrange(8))]) + content[low + 1 :]
    if made == 1:
        return content[:low] + rng.randbytes(high - low) + content[high:]
    if made == 2:
        return content[:low] + content[high:]
    if made == 3:
        return content[:low] + rng.randbytes(rng.choice((1, 4, 100))) + content[low:]
    if made == 4:
        return content[:low]
    if made == 5:
        return content[:low] + bytes(high - low) + content[high:]
    if made == 6:
        return content[:high] + content[low:]
    if made == 7:
        extreme = rng.choice((2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1, 1 << 40))
        return content[:low] + extreme.to_bytes(8, "little") + content[low + 8 :]
    other = rng.randrange(size)
    return content[:low] + content[other : other + high - low] + content[high:]


def _edit_json(value: Any, rng: random.Random) -> Any:
    """One value somewhere replaced, removed, renamed or added."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, inner in items:
            places.append((node, key))
            if isinstance(inner, dict | list):
                walk(inner)

    if not isinstance(value, dict | list) or rng.random() < 0.02:
        return rng.choice(HOSTILE)
    walk(value)
    if not places:
        return rng.choice(HOSTILE)
    node, key = rng.choice(places)
    made = rng.randrange(5)
    if made == 0:
        del node[key]
    elif made == 1 and isinstance(node, dict):
        node[rng.choice(("", "x", "checksum", "graphs", "files"))] = node.pop(key)
    elif made == 2 and isinstance(node, list):
        node.append(node[key])
    else:
        node[key] = rng.choice(HOSTILE)
    return value


def _strange_json(text: str, rng: random.Random) -> str:
    """Text that a parser of JSON stumbles over."""
    number = rng.choice(("9" * 5000, "1e999", "NaN", "-Infinity", "[" * 100_000, '{"a":' * 50_000))
    numbers = [place for place, letter in enumerate(text) if letter.isdigit()]
    if not numbers or rng.random() < 0.2:
        return number
    place = rng.choice(numbers)
    return text[:place] + number + text[place + 1 :]


def _json(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    from sept_offline.seals import sealed_json

    value = json.loads(content)
    if rng.random() < 0.1:
        return _strange_json(content.decode(), rng).encode(), False
    if rng.random() < 0.5:
        return json.dumps(_edit_json(value, rng), indent=2).encode(), False
    value.pop("checksum", None)
    edited = _edit_json(value, rng)
    if not isinstance(edited, dict):
        return json.dumps(edited).encode(), True
    return sealed_json(edited, sort_keys="weights_sha256" in edited).encode(), True


def _manifest(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    from sept_offline.data.source import canonical_json

    value = json.loads(content)
    if rng.random() < 0.3:
        return _strange_json(content.decode(), rng).encode(), False
    if rng.random() < 0.4:
        return json.dumps(_edit_json(value, rng)).encode(), False
    value.pop("sha256", None)
    edited = _edit_json(value, rng)
    text = canonical_json(edited)
    if isinstance(edited, dict):
        edited["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        text = canonical_json(edited)
    return text.encode(), True


def _tensors(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    """The header of a safetensors file edited, its length made right."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    text = json.dumps(_edit_json(header, rng)).encode()
    if rng.random() < 0.2:
        text = _strange_json(text.decode(), rng).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :], False


def _table(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """A column dropped, renamed, of another type or with other values; with its checksum."""
    from sept_offline.seals import write_table

    table = pq.read_table(pa.BufferReader(content))
    name = rng.choice(table.column_names)
    place, column = table.column_names.index(name), table.column(name)
    made = rng.randrange(6)
    if made == 0:
        table = table.drop_columns([name])
    elif made == 1:
        table = table.rename_columns(
            [f"{one}x" if one == name else one for one in table.column_names]
        )
    elif made == 2:
        table = table.set_column(place, name, pa.nulls(len(table), column.type))
    elif made == 3:
        other = rng.choice((pa.string(), pa.int64(), pa.float64(), pa.timestamp("ns")))
        table = table.set_column(place, name, pa.nulls(len(table), other))
    elif made == 4 and table.schema.metadata:
        metadata = dict(table.schema.metadata)
        key = rng.choice(list(metadata))
        edited = _edit_json(json.loads(metadata[key]), rng)
        table = table.replace_schema_metadata({**metadata, key: json.dumps(edited)})
    else:
        table = table.slice(0, rng.randrange(len(table) + 1))
    write_table(scratch / "table", table)
    return (scratch / "table").read_bytes(), True


def _parquet(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """The same of a dataset: no checksum is left, as where another tool has rewritten it."""
    edited, _ = _table(content, rng, scratch)
    table = pq.read_table(pa.BufferReader(edited))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue(), True


def _hdf5(content: bytes, rng: random.Random, scratch: Path) -> tuple[bytes, bool]:
    """Something else in the place of an array, or beside it; with the checksum of the whole."""
    from sept_offline.data.hdf5 import USER_BLOCK, _digest, _user_block

    path = scratch / "edited.h5"
    path.write_bytes(content)
    names: list[str] = []
    with h5py.File(path, "r+") as file:
        file.visit(names.append)
        name = rng.choice(names)
        made = rng.randrange(11)
        old = file[name]
        shape = old.shape if isinstance(old, h5py.Dataset) else (3,)
        values = old[()] if isinstance(old, h5py.Dataset) else np.zeros(3)
        del file[name]
        if made == 0:
            file.create_group(name)
        elif made == 1:
            file[name] = h5py.ExternalLink(str(scratch / "other.h5"), "/x")
        elif made == 2:
            file[name] = h5py.SoftLink(rng.choice(("/nowhere", f"/{name}", "/header", "/actions")))
        elif made == 3:
            file[name] = rng.choice((1, 2.5, "text", b"bytes", True))
        elif made == 4:
            file[name] = np.array([1 + 2j, 3])
        elif made == 5:
            file.create_dataset(name, (2,), dtype=h5py.ref_dtype)
        elif made == 6:
            huge = (rng.choice((2**28, 2**40)), *shape[1:])
            file.create_dataset(name, huge, dtype="f8", chunks=True, compression="gzip")
        elif made == 7:
            layout = h5py.VirtualLayout(shape=shape or (1,), dtype="f8")
            layout[...] = h5py.VirtualSource(str(scratch / "other.h5"), "x", shape=shape or (1,))
            file.create_virtual_dataset(name, layout)
        elif made == 8:
            file.create_dataset(
                name, shape or (1,), dtype="f8", external=[(str(scratch / "raw"), 0, 1 << 20)]
            )
        elif made == 9:
            array = np.asarray(values)
            with np.errstate(all="ignore"):
                edited = array[: len(array) // 2] if array.ndim else array
                file.create_dataset(name, data=edited)
        else:
            array = np.array(values)
            if array.dtype.kind in "iuf" and array.size:
                flat = array.reshape(-1)
                flat[rng.randrange(flat.size)] = rng.choice((-1, 0, 2**31, 7))
            file.create_dataset(name, data=array)
    if content.startswith(b"sept-offline") and rng.random() < 0.8:
        with path.open("r+b") as raw:
            raw.write(_user_block(_digest(path)))
        assert USER_BLOCK
    return path.read_bytes(), True


def _toml(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    lines = content.decode().splitlines()
    place = rng.randrange(len(lines))
    name = lines[place].partition("=")[0]
    value = rng.choice(
        (
            "9" * 5000,
            "[" * 5000,
            "1e999",
            "nan",
            "inf",
            "-1",
            '"x"',
            "[[1]]",
            "1979-05-27",
            "true",
            "{a=" * 2000,
            str(10**400),
            '"evil:family"',
        )
    )
    lines[place] = f"{name}= {value}"
    return "\n".join(lines).encode(), False


def _text(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    lines = content.split(b"\n")
    place = rng.randrange(len(lines))
    made = rng.randrange(5)
    if made == 0:
        del lines[place]
    elif made == 1:
        lines.insert(place, lines[rng.randrange(len(lines))])
    elif made == 2:
        lines[place] = lines[place].replace(b",", b";", 1)
    elif made == 3:
        cells = lines[place].split(b",")
        strange = (b"", b"nan", b"-1", b"9" * 5000, b"1e999", b"\xff", b'"', b"x", b"2020-01-01")
        cells[rng.randrange(len(cells))] = rng.choice(strange)
        lines[place] = b",".join(cells)
    else:
        lines = lines[: place + 1]
    return b"\n".join(lines), False


def _npz(content: bytes, rng: random.Random, _: Path) -> tuple[bytes, bool]:
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(list(arrays))
    arrays[name] = np.zeros(rng.choice(((0,), (1,), (3, 3), (2**20,))), dtype=arrays[name].dtype)
    sink = io.BytesIO()
    rng.choice((np.savez, np.savez_compressed))(sink, **arrays)
    return sink.getvalue(), False


MEANINGS: dict[str, Callable[[bytes, random.Random, Path], tuple[bytes, bool]]] = {
    "json": _json,
    "manifest": _manifest,
    "tensors": _tensors,
    "table": _table,
    "parquet": _parquet,
    "hdf5": _hdf5,
    "toml": _toml,
    "text": _text,
    "npz": _npz,
}


# Running


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Finding:
    """What became of one input."""

    number: int
    kind: str
    outcome: str
    words: str = ""


class Fuzzer:
    """A corpus, what its files read as when they are whole, and inputs by their numbers."""

    def __init__(self, corpus: Path, seed: int = 0, chosen: tuple[str, ...] = ()) -> None:
        self.corpus, self.seed = corpus, seed
        known = kinds()
        part = next((corpus / "parts").glob("part-*.parquet"), None)
        self.kinds: list[Kind] = []
        for name, kind in known.items():
            if name == "parts/part" and part is not None:
                kind = Kind(f"parts/{part.name}", kind.readers, kind.form, weight=kind.weight)
            if (corpus / kind.path).exists() and (not chosen or name in chosen):
                self.kinds.append(kind)
        self.whole: dict[tuple[str, int], str] = {}

    def learn(self, folder: Path) -> None:
        """Read every file as it is."""
        for kind in self.kinds:
            for place, reader in enumerate(kind.readers):
                self.whole[kind.path, place] = reader(folder)

    def one(self, number: int, folder: Path) -> list[Finding]:
        """Mutate, read, and put the file back."""
        rng = random.Random(f"{self.seed} {number}")
        kind = rng.choices(self.kinds, [kind.weight for kind in self.kinds])[0]
        path = folder / kind.path
        content = path.read_bytes()
        mutated, edited = mutate(kind, content, rng, folder)
        found = []
        for place, reader in enumerate(kind.readers):
            path.write_bytes(mutated)
            try:
                outcome, words = self._read(kind, place, reader, folder, edited, mutated == content)
            finally:
                self._restore(folder, path, content)
            found.append(Finding(number, kind.path.split("/part-")[0], outcome, words))
        return found

    def _restore(self, folder: Path, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        if path.parts[-2] == "begun" or "checkpoints" in path.parts:
            # a resumed run rewrites its metrics
            shutil.copyfile(self.corpus / "begun/metrics.csv", folder / "begun/metrics.csv")
            if path.name != "metrics.csv":
                path.write_bytes(content)

    def _read(
        self,
        kind: Kind,
        place: int,
        reader: Callable[[Path], str],
        folder: Path,
        edited: bool,
        unchanged: bool,
    ) -> tuple[str, str]:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = reader(folder)
        except SeptError as error:
            text = str(error)
            return ("traceback", f"several lines: {text}") if "\n" in text else ("refused", text)
        except MemoryError as error:
            return "memory", str(error)
        except Hang:
            return "hang", ""
        except Exception:
            return "traceback", traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if (folder / "executed").exists():
                (folder / "executed").unlink()
                return "executed", ""  # noqa: B012  # whatever else it did
        if found == self.whole[kind.path, place] or unchanged:
            return "same", ""
        if edited:
            return "edited", ""
        if not kind.sealed:
            return "no checksum", ""
        if any("carries no checksum" in str(one.message) for one in said):
            return "warned", ""
        return "different", ""


def _contacted(*_: object) -> None:
    raise AssertionError("contacted: a place that a file names was opened")


def _stop(*_: object) -> None:
    raise Hang


def _work(fuzzer: Fuzzer, numbers: range, pipe: Any, memory: int) -> None:
    """A worker's life: its own copy of the corpus, and one finding after another."""
    import sept_offline.data.filesystems as filesystems

    filesystems._from_uri = _contacted  # type: ignore[assignment]
    signal.signal(signal.SIGALRM, _stop)
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        folder = Path(scratch) / "corpus"
        shutil.copytree(fuzzer.corpus, folder)
        os.chdir(folder)
        sys.path.append(str(folder))  # as if the user had typed a family of their own
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        fuzzer.learn(folder)
        for number in numbers:
            pipe.send([number])
            pipe.send(fuzzer.one(number, folder))
    pipe.send(None)


def _memory() -> str | None:
    """Where files are quick to write, if there is such a place."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def fuzz(
    fuzzer: Fuzzer, inputs: int, workers: int = 2, first: int = 0, memory: int = MEMORY
) -> Iterator[Finding]:
    """The findings of so many inputs, as they come; a worker that dies is replaced."""
    context = multiprocessing.get_context("fork")
    share = -(-inputs // workers)
    waiting = [
        range(low, min(low + share, first + inputs)) for low in range(first, first + inputs, share)
    ]
    busy: dict[Any, tuple[Any, range, int, float]] = {}

    def start(numbers: range) -> None:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(fuzzer, numbers, there, memory), daemon=True)
        process.start()
        there.close()
        busy[here] = (process, numbers, numbers.start - 1, time.monotonic())

    def lost(pipe: Any, outcome: str) -> Iterator[Finding]:
        process, numbers, at, _ = busy.pop(pipe)
        process.kill()
        process.join()
        yield Finding(at, "?", outcome, f"exit code {process.exitcode}")
        if at >= numbers.start and at + 1 < numbers.stop:
            start(range(at + 1, numbers.stop))

    for numbers in waiting:
        start(numbers)
    while busy:
        ready = multiprocessing.connection.wait(list(busy), timeout=1)
        for pipe in list(busy):
            process, numbers, _, since = busy[pipe]
            if pipe not in ready:
                if time.monotonic() - since > 6 * SECONDS:
                    yield from lost(pipe, "hang")
                continue
            try:
                found = pipe.recv()
            except (EOFError, OSError, pickle.UnpicklingError):
                yield from lost(pipe, "crash")
                continue
            if found is None:
                busy.pop(pipe)
                process.join()
            elif isinstance(found[0], int):
                busy[pipe] = (process, numbers, found[0], time.monotonic())
            else:
                yield from found


def load_everything() -> None:
    """Before the fork, so that no worker counts what the libraries take."""
    import torch

    import sept_offline.deploy
    import sept_offline.methods
    import sept_offline.report  # noqa: F401

    torch.set_num_threads(1)


def tabulate(counts: dict[str, collections.Counter[str]]) -> str:
    """Kinds down, outcomes across."""
    outcomes = [
        name
        for name in ("refused", "same", "edited", "warned", "no checksum", *WRONG)
        if any(own[name] for own in counts.values()) or name in WRONG
    ]
    lines = [f"{'kind':42}" + "".join(f"{name:>12}" for name in outcomes)]
    total: collections.Counter[str] = collections.Counter()
    for kind, own in sorted(counts.items()):
        lines.append(f"{kind:42}" + "".join(f"{own[name]:>12,}" for name in outcomes))
        total.update(own)
    lines.append(f"{'all':42}" + "".join(f"{total[name]:>12,}" for name in outcomes))
    return "\n".join(lines)


def main() -> None:
    """Fuzz, and show the counts; exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", default="", help="names of files, separated by commas")
    parser.add_argument("--show", type=int, default=5, help="wrong outcomes to show in full")
    arguments = parser.parse_args()
    load_everything()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    began, shown = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus"
        make_corpus(corpus)
        chosen = tuple(name for name in arguments.kinds.split(",") if name)
        fuzzer = Fuzzer(corpus, arguments.seed, chosen)
        for found in fuzz(fuzzer, arguments.inputs, arguments.workers, arguments.first):
            counts[found.kind][found.outcome] += 1
            if found.outcome in WRONG and shown < arguments.show:
                shown += 1
                print(f"input {found.number}, {found.kind}: {found.outcome}\n{found.words}")
    print(tabulate(counts))
    print(f"{arguments.inputs:,} inputs, seed {arguments.seed}, {time.monotonic() - began:.0f} s")
    if any(own[name] for own in counts.values() for name in WRONG):
        sys.exit(1)


if __name__ == "__main__":
    main()

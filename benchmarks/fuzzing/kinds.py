"""Kinds of files: where each lies in the corpus, what reads it and how it is mutated."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.fuzzing.corpus import AGENTS, MODELLED
from benchmarks.fuzzing.readers import (
    Reader,
    agent,
    bench,
    cell,
    config,
    dataset,
    evaluated,
    exported,
    imported,
    loaded_results,
    page,
    resumed,
    run,
)


@dataclass(frozen=True)
class Kind:
    """One kind of file: where it lies, what reads it, how its meaning is mutated."""

    path: str
    readers: tuple[Reader, ...]
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
        Kind("numpy-refined/manifest.json", (exported("numpy-refined"),), "json", weight=8),
        Kind("numpy-refined/weights.npz", (exported("numpy-refined"),), "npz", weight=2),
        Kind("onnx-refined/manifest.json", (exported("onnx-refined"),), "json", weight=4),
        Kind("onnx-refined/encoder.onnx", (exported("onnx-refined"),), "bytes", weight=1),
    ]
    agents = [
        Kind(f"agents/{name}/{file}", (agent(f"agents/{name}"),), form, weight=weight)
        for name in (*AGENTS, *MODELLED)
        for file, form, weight in (
            ("agent.json", "json", 8 if name == "refined" else 3),
            ("weights.safetensors", "tensors", 2 if name == "refined" else 1),
        )
    ]
    found = [
        Kind("logs.h5", (dataset("logs.h5"),), "hdf5", weight=16),
        Kind("logs.parquet", (dataset("logs.parquet"),), "parquet", weight=12),
        Kind("box.h5", (dataset("box.h5"),), "hdf5", weight=8),
        Kind("box.parquet", (dataset("box.parquet"),), "parquet", weight=6),
        Kind("parts/_manifest.json", (dataset("parts"),), "manifest", weight=8),
        Kind("parts/_privileged.json", (dataset("parts"),), "json", weight=4),
        Kind("parts/part", (dataset("parts"),), "bytes", weight=6),
        Kind("run/run.json", (run, page), "json"),
        Kind("run/metrics.csv", (run,), "text"),
        Kind("run/ope.json", (run,), "json"),
        Kind("run/results.parquet", (loaded_results("run/results.parquet"), run), "table"),
        Kind("results.json", (loaded_results("results.json"),), "json"),
        Kind("run/agent/agent.json", (agent("run"), evaluated), "json"),
        Kind("run/agent/weights.safetensors", (agent("run"),), "tensors"),
        Kind("begun/run.json", (resumed,), "json"),
        Kind("begun/metrics.csv", (resumed,), "text"),
        Kind("begun/checkpoints/0-control.safetensors", (resumed,), "tensors", weight=16),
        Kind("bench/results.parquet", (bench,), "table", weight=4),
        Kind("bench/cells.parquet", (bench, page), "table", weight=6),
        Kind("bench/training.parquet", (bench,), "table", weight=2),
        Kind("bench/latents.parquet", (bench,), "table", weight=2),
        Kind("bench/cells/avg.parquet", (cell,), "table", weight=4),
        Kind("config.toml", (config,), "toml", sealed=False, weight=6),
        Kind("d4rl.hdf5", (imported("d4rl.hdf5"),), "hdf5", sealed=False, weight=3),
        Kind("buffer.h5", (imported("buffer.h5"),), "hdf5", sealed=False, weight=2),
        Kind("steps.csv", (imported("steps.csv"),), "text", sealed=False, weight=2),
        Kind("steps.parquet", (imported("steps.parquet"),), "parquet", sealed=False, weight=2),
        Kind("mapping.toml", (imported("steps.csv"),), "toml", sealed=False, weight=1),
        *export_files,
        *agents,
    ]
    return {kind.path: kind for kind in found}

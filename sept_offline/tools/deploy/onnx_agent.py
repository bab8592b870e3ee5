"""ONNX exports run by onnxruntime: a reference for hosts in other languages."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import Box, Finite
from sept_offline.agent.agent import read_space
from sept_offline.agent.contexts.base import hidden_row
from sept_offline.agent.records import count, field
from sept_offline.errors import AgentError, one_line
from sept_offline.family import Hidden
from sept_offline.limits import (
    LONGEST_REFINED,
    LONGEST_SEGMENT,
    LONGEST_STACK,
    limit_bytes,
    read_whole,
)
from sept_offline.seeding import generator
from sept_offline.stacking import Stack
from sept_offline.tools.deploy.operators import library

Array = NDArray[Any]
GRAPH_BYTES = 1 << 30
"""Bytes of memory for all graphs of a process, unless the limit for files is higher."""


class OnnxAgent:
    """The graphs of an export, each in a single-threaded session."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self.space = read_space(self.manifest)
        self.context = field(self.manifest, "context", dict)
        _check_context(self.context)
        # exports of earlier versions do not stack
        self.stack = int(self.manifest.get("stack", 1))
        if not 1 <= self.stack <= LONGEST_STACK:
            raise AgentError(
                f"The number of stacked observations is {self.stack}; expected 1 to "
                f"{LONGEST_STACK}."
            )
        runtime = library("onnxruntime")
        _limit_memory(runtime)
        options = runtime.SessionOptions()
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # errors are raised as exceptions too; warnings are about the machine
        options.log_severity_level = 4
        providers = ["CPUExecutionProvider"]
        self._sessions = {}
        for name in self.manifest["graphs"]:
            path = folder / f"{name}.onnx"
            try:
                content = read_whole(path, AgentError)
                refuse_external(content, path)
                self._sessions[name] = runtime.InferenceSession(
                    content, options, providers=providers
                )
            except AgentError:
                raise
            except Exception as problem:  # onnxruntime has its own class for each failure
                words = one_line(problem)
                raise AgentError(f"{path} is not a valid ONNX graph ({words:.200}).") from problem
        self._takes = {
            name: set(graph["inputs"]) for name, graph in self.manifest["graphs"].items()
        }
        self._gives = {
            name: list(graph["outputs"]) for name, graph in self.manifest["graphs"].items()
        }

    def run(self, graph: str, **inputs: Array) -> dict[str, Array]:
        """All outputs of a graph, given those of `inputs` that it has."""
        given = {name: value for name, value in inputs.items() if name in self._takes[graph]}
        names = self._gives[graph]
        return dict(zip(names, self._sessions[graph].run(names, given), strict=True))

    def begin(self, seed: int = 0, hidden: Hidden | None = None) -> OnnxEpisode:
        """A new episode; `hidden` only for an agent that needs the hidden parameters."""
        return OnnxEpisode(self, seed, hidden)


def _check_context(context: dict[str, Any]) -> None:
    """Raise if a size or scale in the manifest is invalid."""
    encoder = context.get("encoder", {})
    for record, name, most in (
        (context, "steps", LONGEST_SEGMENT),
        (context, "refine_steps", LONGEST_REFINED),
        (encoder, "steps", LONGEST_SEGMENT),
    ):
        if name in record:
            count(record, name, most)
    scale = field({"uncertainty_scale": 1.0} | context, "uncertainty_scale", float)
    if not 0 < scale < math.inf:
        raise AgentError(f"The export's uncertainty_scale is {scale}; it is damaged.")


def _limit_memory(runtime: Any) -> None:
    """Limit the memory of all graphs of this process to 1 GB, or to the raised limit.

    A graph of a kilobyte can request any amount. onnxruntime keeps the first limit that is set.
    """
    place = runtime.OrtMemoryInfo(
        "Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT
    )
    exactly, usual = 1, -1
    settings = {
        "max_mem": max(GRAPH_BYTES, limit_bytes()),
        "arena_extend_strategy": exactly,
        "initial_chunk_size_bytes": usual,
        "max_dead_bytes_per_chunk": usual,
    }
    runtime.create_and_register_allocator(place, runtime.OrtArenaCfg(settings))


def refuse_external(content: bytes, path: Path) -> None:
    """Refuse a graph with weights in another file: only the graph's own file was checked."""
    # The key that names another file; exported graphs never contain it.
    if b"location" in content:
        raise AgentError(f"{path} keeps its weights in another file, which is not opened.")


class OnnxEpisode:
    """The state of one episode: the steps so far, and the context of the control."""

    def __init__(self, agent: OnnxAgent, seed: int, hidden: Hidden | None) -> None:
        self.agent, self.steps = agent, 0
        self.latent: Array | None = None
        self.novelty: float | None = None
        self.flagged = False
        described, manifest = agent.context, agent.manifest
        self.uncertainty: float | None = described.get("uncertainty")
        self._kind = described["kind"]
        self._space = agent.space
        self._rng = generator(seed, "agent", "probe")
        self._context = np.array([described.get("start", [])], dtype=np.float32)
        # what a graph is given as `…_before` and returns for the next step
        initial = {"largest": "largest", "weighted": "nothing", "precision": "nothing"}
        self._carried = {
            name: np.array([described.get(key, [])], dtype=np.float32)
            for name, key in initial.items()
        }
        self._dim = len(manifest["observation_names"])
        self._stack = Stack(agent.stack, self._dim, self._space.width)
        self._stacked = self._stack.empty(1)
        length, dim = int(described.get("steps", 0)), self._stack.width
        extra = 0 if self._kind == "history" else 1
        self._past = np.zeros((1, length + extra, dim), dtype=np.float32)
        self._taken = self._space.empty(1, length)
        # the last step, as the encoder of a refined context reads it
        self._pair = np.zeros((1, 2, dim), dtype=np.float32)
        self._last = self._space.empty(1, 1)
        self._unrestricted = self._allowed_inputs(None, None)
        if (self._kind == "hidden") != (hidden is not None):
            raise AgentError(
                "Hidden parameters must be given if the agent needs them, and only then."
            )
        if hidden is not None:
            self._infer("encoder", hidden=hidden_row(described["names"], hidden)[None])

    @property
    def phase(self) -> str:
        """The part that chooses the next action: "probe" or "control"."""
        return "probe" if self.steps < self.agent.manifest["probe_steps"] else "control"

    def act(self, observation: Array, mask: Array | None = None, bounds: Any = None) -> Any:
        """The action in `observation[d]`, of those that a mask, or bounds in a box, allow."""
        try:
            row = np.asarray(observation, dtype=np.float32)[None]
        except (TypeError, ValueError) as error:
            raise AgentError(f"The observation must be a 1-D numeric array: {error}.") from error
        # a graph would accept NaN, and a mask that allows nothing
        if row.shape != (1, self._dim) or not np.isfinite(row).all():
            raise AgentError(f"The observation must have {self._dim} finite columns.")
        allowed = self._unrestricted
        if mask is not None or bounds is not None:
            allowed = self._allowed_inputs(mask, bounds)
        self._stack.see(self._stacked, row, first=self.steps == 0)
        row = self._stacked
        if self._kind == "history":
            self._remember()
        elif self._kind == "refined":
            self._refine(row)
        elif self._kind in ("segment", "unprobed", "window"):
            self._see(row)
        inputs = {"observation": row, "context": self._context, **allowed}
        graph = "control"
        if self.phase == "probe":
            graph, draws = "probe", self._rng.random((1, self._space.draws))
            inputs["draw"] = draws[:, 0] if isinstance(self._space, Finite) else draws
            inputs["time"] = np.array([self.steps])
        elif self.flagged and "fallback" in self.agent.manifest["graphs"]:
            graph = "fallback"
        action = self.agent.run(graph, **inputs)["action"][0]
        self._took(row, action)
        self._stack.took(self._stacked, self._space.encode(action))
        self.steps += 1
        return action if action.ndim else int(action)

    def _allowed_inputs(self, mask: Any, bounds: Any) -> dict[str, Array]:
        """The inputs of a graph by which actions are restricted."""
        allowed = self._space.allowed(mask, bounds)
        if isinstance(self._space, Box):
            low, high = self._space.bounds if allowed is None else allowed
            return {"low": low[None], "high": high[None]}
        if allowed is None:
            allowed = np.ones(self._space.width, bool)
        return {"mask": allowed[None]}

    def _took(self, row: Array, action: Array) -> None:
        if self._kind == "history":
            self._past = np.concatenate([row[:, None], self._past[:, :-1]], axis=1)
            self._taken = np.concatenate([[[action]], self._taken[:, :-1]], axis=1)
        elif self._kind == "window":
            self._taken = np.concatenate([self._taken[:, 1:], [[action]]], axis=1)
        elif self.steps < self._taken.shape[1]:
            self._taken[0, self.steps] = action
        if self._kind == "refined":
            self._pair[:, 0], self._last[0, 0] = row, action

    def _infer(self, graph: str, **inputs: Array) -> None:
        """Run a graph, and keep its estimate of the instance and the state for the next step."""
        before = {f"{name}_before": value for name, value in self._carried.items()}
        outputs = self.agent.run(graph, **inputs, **before)
        self._carried |= {name: outputs[name] for name in self._carried if name in outputs}
        self._context = outputs.get("context", self._context)
        if "latent" in outputs:
            self.latent, self.uncertainty = outputs["latent"][0], float(outputs["uncertainty"][0])
        if "novelty" in outputs:
            self.novelty, self.flagged = float(outputs["novelty"][0]), bool(outputs["flagged"][0])

    def _remember(self) -> None:
        """The past steps, newest first; steps before the episode began are not seen."""
        seen = (np.arange(self._taken.shape[1]) < self.steps)[None]
        self._infer("encoder", observations=self._past, actions=self._taken, seen=seen)

    def _refine(self, row: Array) -> None:
        """Add the evidence of the last step; after the first T steps, measure novelty."""
        steps = self._taken.shape[1]
        if 0 < self.steps <= self.agent.context["refine_steps"]:
            self._pair[:, 1] = row
            self._infer("encoder", observations=self._pair, actions=self._last)
        if self.steps <= steps:
            self._past[0, self.steps] = row[0]
        if self.steps == steps and "novelty" in self.agent.manifest["graphs"]:
            self._infer("novelty", observations=self._past, actions=self._taken)

    def _see(self, row: Array) -> None:
        """Encode the first T steps, or the last T of a window, once they are complete."""
        steps = self._taken.shape[1]
        if self._kind == "window":
            self._past = np.concatenate([self._past[:, 1:], row[:, None]], axis=1)
        elif self.steps <= steps:
            self._past[0, self.steps] = row[0]
        if self.steps == steps or (self._kind == "window" and self.steps > steps):
            self._infer("encoder", observations=self._past, actions=self._taken)

"""One cell of a bench: a fit of one method and seed, its test episodes, and their record."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline import __version__
from sept_offline.agent import Agent
from sept_offline.collect import load_recipe
from sept_offline.data import Dataset, load_dataset
from sept_offline.data.records import Segments
from sept_offline.errors import TrainingError
from sept_offline.evaluation import Results, evaluate
from sept_offline.evaluation.results import episode_row
from sept_offline.family import Family, load_family
from sept_offline.latent.identification import neighbour_share
from sept_offline.methods import METHODS, fitter, resolve_config
from sept_offline.seeding import integer
from sept_offline.settings import FitConfig, to_plain
from sept_offline.threads import one_thread
from sept_offline.tools.bench.logs import logged_world, tested_world
from sept_offline.tools.bench.plan import Cell
from sept_offline.tools.bench.store import Finished, write_cell
from sept_offline.versions import versions

SEGMENTS = 400
"""Most encoded training segments kept per cell; `OF_AN_INSTANCE` per instance."""
OF_AN_INSTANCE = 50
FRESH = 200
"""New probes of training instances in all; at least `FRESH_LEAST` of each."""
FRESH_LEAST = 5


@dataclass(frozen=True)
class CellTask:
    """All that a worker on any machine needs to run a cell."""

    cell: Cell
    logs: Path
    split: str
    episodes: int | None
    target: Path


def tested(task: CellTask) -> Family:
    """The family, with only the test instances that the cell uses."""
    family, count = load_family(task.cell.spec), task.cell.variant.test_instances
    if count is None:
        return family
    few = family.instances(task.split)[:count]
    return replace(family, splits={**family.splits, task.split: few})


def resolve(task: CellTask, data: Dataset) -> FitConfig:
    """Every setting of the cell's fit."""
    cell = task.cell
    stacks = METHODS[cell.method].stacks
    return resolve_config(data, cell.preset, cell.variant.settings, stacks=stacks)


def own_settings(method: str, config: FitConfig) -> dict[str, Any]:
    """The settings without the sections that only other methods read."""
    readers: dict[str, set[str]] = {}
    for name, record in METHODS.items():
        for section in (name.replace("-", "_"), *record.sections):
            readers.setdefault(section, set()).add(name)
    plain: dict[str, Any] = to_plain(config)
    return {name: value for name, value in plain.items() if method in readers.get(name, {method})}


def identity(task: CellTask, data: Dataset) -> dict[str, Any]:
    """All that determines the cell's figures, nested and JSON-ready."""
    family = tested(task)
    world = tested_world(family, task.split)
    if task.cell.dataset is None:
        # Given logs need not be of the family's instances: only their content counts.
        world |= logged_world(family, load_recipe(family).instances)
    return {
        **task.cell.row(),
        "spec": task.cell.spec,
        "content_hash": data.content_hash,
        "config": own_settings(task.cell.method, resolve(task, data)),
        "split": task.split,
        "episodes": per_instance(task) * len(family.instances(task.split)),
        "world": world,
        "sept-offline": __version__,
    }


def per_instance(task: CellTask) -> int:
    """Test episodes in each instance, so that there are enough in all."""
    count = len(tested(task).instances(task.split))
    return max(1, -(-(task.episodes or 1) // count))


def run_cell(task: CellTask) -> float:
    """Fit, test, write the cell's file; returns the seconds it took."""
    import torch  # noqa: F401  # loaded here, so that `one_thread` can hold it

    began = time.monotonic()
    with one_thread(), load_dataset(task.logs, check=True) as data:
        write_cell(task.target, make_cell(task, data))
    return time.monotonic() - began


def make_cell(task: CellTask, data: Dataset) -> Finished:
    """The cell itself."""
    cell, family = task.cell, tested(task)
    config = replace(resolve(task, data), verdict=False)
    wall, processor = time.perf_counter(), time.process_time()
    work = fitter(data, cell.method, config, cell.seed)
    training = [
        {"stage": epoch.stage, "update": epoch.done, "metric": name, "value": float(value)}
        for epoch in work
        for name, value in epoch.metrics.items()
    ]
    fit_seconds, fit_cpu_seconds = time.perf_counter() - wall, time.process_time() - processor
    agent = work.agent
    if agent is None:
        raise TrainingError(f"The fit of {cell.name} ended without an agent.")
    wall = time.perf_counter()
    results = evaluate(
        agent, family, task.split, seed=cell.seed, episodes_per_instance=per_instance(task)
    )
    test_seconds = time.perf_counter() - wall
    made_from = identity(task, data)
    # For a report to name; logs that moved are still the same logs, so it identifies nothing.
    given = {} if cell.dataset is None else {"dataset": str(cell.dataset)}
    budget = agent.record.get("budget")
    return Finished(
        results=[cell.row() | row for row in episode_rows(results)],
        cell=cell.row()
        | {
            "key": hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16],
            "content_hash": data.content_hash,
            "split": task.split,
            "limit": results.limit,
            "episodes": len(results.episodes),
            "needs": list(results.needs),
            "learns": bool(getattr(agent, "learns", False)),
            "budget": budget if budget is None or isinstance(budget, str) else json.dumps(budget),
            "behaviour_estimated": results.behaviour_estimated,
            "fit_seconds": round(fit_seconds, 3),
            "fit_cpu_seconds": round(fit_cpu_seconds, 3),
            "test_seconds": round(test_seconds, 3),
            "identification": fresh_identification(agent, family, data, cell.seed),
            "record": json.dumps(agent.record, sort_keys=True),
            "config": json.dumps(to_plain(config), sort_keys=True),
            "versions": json.dumps(versions(), sort_keys=True),
        },
        identity=made_from | given,
        training=training,
        latents=latent_rows(agent, data),
    )


def episode_rows(results: Results) -> list[dict[str, Any]]:
    """A row per episode with every reward; actions and observations are not kept."""
    return [
        episode_row(episode)
        | {"probe_steps": episode.phases.count("probe"), "reward": list(episode.rewards)}
        for episode in results.episodes
    ]


def fresh_identification(agent: Agent, family: Family, data: Dataset, seed: int) -> float | None:
    """Share of new probes in training instances whose nearest latents are of the same instance.

    None for an agent without an encoder, or where every episode ended during the probe.
    """
    encoded = _encoded(agent, data)
    if encoded is None:
        return None
    segments, known = encoded
    hiddens: dict[str, dict[str, float]] = {}
    for split in family.splits:
        hiddens |= zip(family.instance_ids(split), family.instances(split), strict=True)
    asked, truth = [], []
    for code, name in enumerate(data.instances):
        if name not in hiddens:
            continue
        for number in range(max(FRESH_LEAST, FRESH // len(data.instances))):
            seed_of = partial(integer, seed, "bench", name, number)
            latent = _probe(agent, family, hiddens[name], segments.actions.shape[1], seed_of)
            if latent is not None:
                asked.append(latent)
                truth.append(code)
    if not asked:
        return None
    return neighbour_share(known, segments.instance, np.stack(asked), np.array(truth))


def _encoded(agent: Agent, data: Dataset) -> tuple[Segments, NDArray[np.float32]] | None:
    """The training segments and their latents; None for an agent without an encoder."""
    encoder = getattr(agent.context, "encoder", None)
    if encoder is None:
        return None
    segments = data.stacked(agent.stack).segments(encoder.steps)
    taken = agent.spaces.actions.encode(segments.actions)
    return segments, encoder.encode(segments.observations, taken)[0]


def _probe(
    agent: Agent,
    family: Family,
    hidden: dict[str, float],
    steps: int,
    seed_of: Callable[[str], int],
) -> Any:
    """The latent after the first `steps` of a new episode; None if it ended before."""
    env = family.make(hidden)
    try:
        observation, _ = env.reset(seed=seed_of("environment"))
        known = hidden if "hidden" in agent.needs else None
        episode = agent.begin(seed=seed_of("agent"), hidden=known)
        reward = None
        for _ in range(steps):
            action = episode.act(observation, reward)
            observation, paid, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                return None
            reward = float(paid) if "reward" in agent.needs else None
        episode.act(observation, reward)
        return episode.latent
    finally:
        env.close()  # type: ignore[no-untyped-call]


def latent_rows(agent: Agent, data: Dataset) -> list[dict[str, Any]]:
    """Latents of training segments, the same number for each instance."""
    encoded = _encoded(agent, data)
    if encoded is None:
        return []
    segments, mean = encoded
    each = max(1, min(OF_AN_INSTANCE, SEGMENTS // len(data.instances)))
    rows = []
    for code, name in enumerate(data.instances):
        hidden = None
        if data.hidden is not None:
            pairs = zip(data.hidden.names, data.hidden.values[code].tolist(), strict=True)
            hidden = json.dumps(dict(pairs))
        places = np.flatnonzero(segments.instance == code)
        size = len(places)
        for place in places[np.linspace(0, size - 1, min(each, size)).astype(np.int64)]:
            rows.append({"instance": name, "hidden": hidden, "z": mean[place].tolist()})
    return rows

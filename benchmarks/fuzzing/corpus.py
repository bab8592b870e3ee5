"""A small corpus: every kind of file that the library reads, made by the library."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sept_offline as so
from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.errors import ConfigError

EVIL = "evil"
"""A module beside the corpus that its files name and that nothing may import."""


def make_corpus(folder: Path) -> None:
    """Every kind of file that the library reads, made by the library."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{EVIL}.py").write_text("family = None\n")
    log(folder / "logs.h5")
    so.convert(folder / "logs.h5", folder / "logs.parquet")
    log(folder / "box.h5", space=BOX)
    so.convert(folder / "box.h5", folder / "box.parquet")
    so.collect_dataset(
        "navigation2d",
        folder / "parts",
        overrides={"behaviour": "random", "episodes": 6, "max_steps": 5},
        seed=1,
    ).close()
    _runs(folder)
    _exports(folder)
    _agents(folder)
    save_modelled(folder)
    make_bench(folder / "bench")
    foreign(folder)
    (folder / "config.toml").write_text(
        'fallback = "none"\nhistory_steps = 3\n[control]\nupdates = 10\nhidden = [8, 8]\n'
        "[latent]\nbeta = 1.0\n"
    )


BOX = Box.of([-1.0, 0.0], [1.0, 0.5], ["torque", "valve"])


def log(path: Path, episodes: int = 6, space: ActionSpace | None = None) -> None:
    """A tiny dataset with hidden parameters and probabilities, of three actions or of `space`."""
    rng = np.random.default_rng(0)
    space = space or Finite.of(3)
    policy = space.uniform(4)
    with so.DatasetWriter(
        path,
        action_space=space,
        probe_steps=2,
        family="nobody",
        hidden={"a": {"mass": 1.0}, "b": {"mass": 2.0}},
        extra={"family_object": f"{EVIL}:family", "latent_dim": 1},
    ) as writer:
        for number in range(episodes):
            observations = rng.normal(size=(5, 2))
            actions = policy.draw(rng.random((4, space.draws)))
            writer.append(
                instance="ab"[number % 2],
                observations=observations,
                actions=actions,
                rewards=rng.normal(size=4),
                propensities=policy.logged(actions),
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
    from sept_offline.methods.fitting import Fitter
    from sept_offline.methods.preset import resolve_config
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
    from sept_offline.tools.deploy import export

    agent = so.load_agent(folder / "run")
    export(agent, folder / "numpy", "numpy", observations=20)
    with contextlib.suppress(ConfigError):  # without the extra [onnx] there is one kind less
        export(agent, folder / "onnx", "onnx", observations=20)


AGENTS = ("refined", "unprobed", "read-once", "sept-np", "dynasept", "history", "oracle", "maml")
"""Agents of every other context and encoder, by the names of `tests/agent/builders.py`."""
STACKED = ("refined", "unprobed")


def _agents(folder: Path) -> None:
    """Agents with random weights; one that refines and stacks is exported, too."""
    from sept_offline.agent import AdaptedContext, save_agent
    from sept_offline.agent.rewards import RewardForm
    from sept_offline.tools.deploy import export
    from tests.agent.builders import make_agent

    for name in AGENTS:
        stack = 3 if name in STACKED else 1
        agent = make_agent("avg" if name == "maml" else name, fallback=True, stack=stack)
        if name == "maml" and agent.fallback is not None:
            context = AdaptedContext(2, 0.1, RewardForm(False, 1.0, None, 0.9))
            # the fallback is a network without norms, which can take a gradient step
            agent = replace(agent, context=context, control=agent.fallback)
        save_agent(agent, folder / "agents" / name)
    refined = make_agent("refined", fallback=True, stack=3)
    export(refined, folder / "numpy-refined", "numpy", observations=20)
    with contextlib.suppress(ConfigError):
        export(refined, folder / "onnx-refined", "onnx", observations=20)


MODELLED = ("dpt", "bnn")
"""Agents that carry a model along and learn in their episode."""


def save_modelled(folder: Path) -> None:
    """These, fitted to the logs of the corpus in a moment."""
    small = {"updates": 2, "hidden": [4], "batch_size": 4}
    outcome = {"outcome_hidden": [4], "outcome_updates": 2, "outcome_batch": 4}
    settings = {
        "verdict": False,
        "stack": 1,
        "control": {**small, "members": 1},
        "dynamics": {**small, **outcome, "dim": 1},
        "dpt": {"infer_steps": 1, "copies": 2, "samples": 2},
        "bnn": {"every": 3, "infer_steps": 1, "tune_steps": 1, "samples": 2}
        | {"episodes": 2, "horizon": 2, "updates": 2},
    }
    for name in MODELLED:
        so.save_agent(so.fit(folder / "logs.h5", name, settings), folder / "agents" / name)


def make_bench(folder: Path) -> None:
    """A bench of two cells that nobody ran."""
    from sept_offline.tools.bench.store import Finished, gather, write_cell

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
        done = Finished(
            [named | episode], cell, named | {"spec": f"{EVIL}:family"}, training, latents
        )
        write_cell(folder / "cells" / f"{method}.parquet", done)
    gather(folder)


def foreign(folder: Path) -> None:
    """Logs that other programs wrote, for `import`."""
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

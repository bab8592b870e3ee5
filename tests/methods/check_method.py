"""One tester for every method: what anything that turns logs into an agent must do."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.errors import AgentError, DataError
from sept_offline.family import Family
from sept_offline.methods import METHODS, Fitter, resolve_config
from sept_offline.methods.run import RunDirectory
from sept_offline.settings import merge
from tests.methods.two_step import log_two_step, two_step

SMALL: dict[str, Any] = {
    "verdict": False,
    "stack": 1,
    "control": {
        "hidden": [32, 32],
        "updates": 400,
        "learning_rate": 3e-3,
        "reward_form": "raw",
        "average_decay": 0.9,
        "target_rate": 0.05,
    },
    "latent": {
        "dim": 2,
        "updates": 150,
        "hidden": 32,
        "transitions": 128,
        "segments": 64,
        "encoder_units": 16,
        "decoder_units": 16,
    },
    "probe": {"use": "always", "steps": 40},
}
"""Settings that learn the two-step family in a second or two."""


def check_method(
    name: str,
    folder: Path,
    *,
    needs: frozenset[str] = frozenset(),
    settings: Mapping[str, Any] | None = None,
    learns: bool = False,
    probing: int = 1,
    telling: bool = False,
    box: bool = False,
) -> None:
    """Raise unless the method `name` stores, resumes, repeats and refuses as it must.

    needs: what its agents declare, and learns whether they say that they take gradient steps;
    settings: laid over `SMALL`; probing: the family's steps before the guess; telling: whether its
    first step pays as well; box: whether actions are continuous. Whether it learns is asked in
    `test_methods.py`.
    """
    family = two_step(probing, telling=telling, box=box)
    path = log_two_step(folder / "two-step.h5", probing, episodes=80, telling=telling, box=box)
    config = merge(SMALL, settings or {})
    agent = check_repeats(name, path, config, folder)
    check_declaration(agent, name, needs, learns)
    check_storage(agent, folder / "a", family)
    check_resumes(name, path, config, folder)
    check_refusals(name, path, config, folder)


def check_declaration(agent: Agent, name: str, needs: frozenset[str], learns: bool) -> None:
    """It says what it is and what it must be given, and insists on exactly that."""
    assert agent.method == name
    assert agent.needs == needs and agent.learns == learns
    assert METHODS[name].privileged == ("hidden" in needs)
    wrong = None if "hidden" in needs else {"mode": 1.0}
    with pytest.raises(AgentError, match="hidden"):
        agent.begin(seed=0, hidden=wrong)


def check_storage(agent: Agent, run: Path, family: Family) -> None:
    """What is loaded acts as what was fitted, and nothing on disk is a pickle."""
    loaded = so.load_agent(run)
    # every test instance has one of the two hidden modes of the training instances
    how: dict[str, Any] = {"instances": "train", "episodes_per_instance": 3, "seed": 9}
    one, other = (so.evaluate(a, family, **how) for a in (agent, loaded))
    assert [e.actions for e in one.episodes] == [e.actions for e in other.episodes]
    assert [e.latent for e in one.episodes] == [e.latent for e in other.episodes]
    assert {p.suffix for p in (run / "agent").iterdir()} == {".json", ".safetensors"}
    assert not (run / "checkpoints").exists()


def check_repeats(name: str, path: Path, config: Mapping[str, Any], folder: Path) -> Agent:
    """Another seed, another result than that of `folder / "a"`, which is given back.

    That one seed has one result is seen by `check_resumes`, where all stages are fitted again.
    """
    short = shortened(config)
    agent = so.fit(path, name, short, 1, out=folder / "a")
    so.fit(path, name, short, 2, out=folder / "c")
    assert weights(folder / "a") != weights(folder / "c"), "the seed changes nothing"
    return agent


def check_resumes(name: str, path: Path, config: Mapping[str, Any], folder: Path) -> None:
    """Stopped in and after each stage and resumed in a fresh object, it ends with the same bits.

    `folder / "a"` holds the same fit, unbroken. A stage is stopped once in its middle, not after
    each of its epochs: what a snapshot lacks, every epoch after it shows. The middle is an odd
    number of updates, and inside a chunk of minibatches.
    """
    run, whole = folder / "resumed", folder / "a"
    with so.load_dataset(path) as data:
        settled = resolve_config(data, "default", shortened(config))
        stops: list[tuple[str, int]] = []
        while True:
            directory = RunDirectory(run, checkpoint_seconds=0)
            record = {"method": name, "config": {}, "seed": 1}
            directory.open(record, resume=run.exists(), restart=False)
            try:
                for epoch in Fitter(data, name, settled, seed=1, run=directory):
                    # the seventh of twenty epochs, the third of ten; and the last
                    size = -(-epoch.total // 20)
                    middle = epoch.done // size == max(1, 7 * epoch.total // (20 * size))
                    if middle or epoch.done == epoch.total:
                        stops.append((epoch.stage, epoch.done))
                        break
                else:
                    break
            finally:
                directory.close()
    stages = {stage for stage, _ in stops}
    assert len(stops) == 2 * len(stages) == len(set(stops)), stops
    assert weights(run) == weights(whole), "a seed does not repeat, or a snapshot lacks something"
    assert (run / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()


def check_refusals(name: str, path: Path, config: Mapping[str, Any], folder: Path) -> None:
    """Data nobody can learn from is refused in one sentence, before anything is trained."""
    with so.load_dataset(path) as data:
        lonely = data.select(episodes=data.episode_index.instance == 0)
        with pytest.raises(DataError, match="at least 2"):
            so.fit(lonely, name, config)
        longer = merge(shortened(config), {"probe_steps": 9})
        if METHODS[name].segments:
            with pytest.raises(DataError, match="shorter than the probe"):
                so.fit(data, name, longer)
        else:
            so.fit(data, name, longer)
        if METHODS[name].privileged:
            with pytest.raises(DataError, match="hidden parameters"):
                so.fit(data.without_hidden(), name, config)
    damaged = folder / "damaged.h5"
    shutil.copy(path, damaged)
    with h5py.File(damaged, "r+") as file:
        file["observations"][3, 0] = np.nan
    with pytest.raises(DataError, match="does not match its own checksum"):
        so.fit(damaged, name, config)


def shortened(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same with few updates: enough to compare bits, not to learn."""
    few = {
        "latent": {"updates": 10},
        "probe": {"steps": 10},
        # averaged before the stage is stopped in its middle
        "control": {"updates": 10, "average_every": 2},
        "dynamics": {"updates": 10, "outcome_updates": 10},
        "bnn": {"infer_steps": 3, "tune_steps": 1, "episodes": 4, "updates": 5},
    }
    return merge(config, few)


def weights(run: Path) -> bytes:
    """The bytes of a finished run's weights."""
    return (run / "agent" / "weights.safetensors").read_bytes()

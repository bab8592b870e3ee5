"""Every method passes the one tester."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import Agent, RefinedContext, SegmentContext
from sept_offline.agent.encoders import LstmEncoder
from sept_offline.agent.networks import Standardiser
from sept_offline.errors import ConfigError
from sept_offline.methods import METHODS
from sept_offline.methods.preset import preset_values
from sept_offline.settings import merge
from tests.margins import Margins
from tests.methods.answers import check_answer
from tests.methods.check_method import SMALL, check_method, shortened
from tests.methods.kept import Kept, fit_from
from tests.methods.two_step import log_two_step, two_step

PAPER_LOOP = {
    "latent": {
        "objective": "segment",
        "dim": 4,
        "updates": 60,
        "learning_rate": 5e-3,
        "learning_rate_end": 5e-3,
        "beta": 0.1,
        "entropy": 0.0,
    },
    "probe": {"reward": "elbo"},
    "control": {"updates": 800},
}
MODEL = {
    "dim": 2,
    "hidden": [32, 32],
    "updates": 400,
    "batch_size": 64,
    "learning_rate": 1e-2,
    "outcome_hidden": [32, 32],
    "outcome_updates": 300,
    "outcome_batch": 64,
    "outcome_rate": 1e-2,
}
PLAN = {
    "every": 1,
    "infer_steps": 10,
    "tune_steps": 2,
    "samples": 4,
    "episodes": 32,
    "horizon": 4,
    "updates": 40,
    "average_decay": 0.7,
}
CASES: dict[str, dict[str, Any]] = {
    # returns: between which the mean return on the two-step family lies; episodes: of each
    # instance, fewer where an episode takes gradient steps by the hundred, more where it guesses
    "sept": {"returns": (1.0, 1.0)},
    "avg": {"returns": (0.3, 0.7), "episodes": 10},
    "oracle": {"returns": (1.0, 1.0), "needs": frozenset({"hidden"})},
    "epopt": {"returns": (0.3, 0.7), "episodes": 10},
    "sept-np": {"returns": (1.0, 1.0)},
    "totalvar": {"returns": (1.0, 1.0)},
    "maxent": {"returns": (1.0, 1.0)},
    "history": {"returns": (1.0, 1.0)},
    "dynasept": {"returns": (1.0, 1.0)},
    # the first guess is right in half of the instances, the second, adapted to its reward, always
    "maml": {
        "returns": (1.3, 1.7),
        "needs": frozenset({"reward"}),
        "learns": True,
        "telling": True,
    },
    "focal": {"returns": (1.0, 1.0), "settings": {"focal": {"rewards": False}}},
    "unicorn": {"returns": (1.0, 1.0), "settings": {"unicorn": {"rewards": False}}},
    # the first guess is random, the reward tells
    "csro": {"returns": (1.3, 1.7), "needs": frozenset({"reward"}), "telling": True},
    "bati": {"returns": (1.0, 1.0), "settings": {"bati": {"rewards": False}}},
    "bnn": {
        "returns": (1.0, 1.0),
        "episodes": 1,
        "learns": True,
        "settings": {
            "dynamics": MODEL,
            "bnn": PLAN,
            "control": {"learning_rate": 1e-2, "target_rate": 0.3, "updates": 200},
        },
    },
    "dpt": {
        "returns": (1.0, 1.0),
        "episodes": 1,
        "learns": True,
        "settings": {"dynamics": MODEL},
    },
}


def test_every_method_has_a_case() -> None:
    assert set(CASES) == set(METHODS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_method(name: str, tmp_path: Path) -> None:
    answer = {"returns", "episodes"}
    check_method(name, tmp_path, **{k: v for k, v in CASES[name].items() if k not in answer})


@pytest.fixture(scope="module")
def kept() -> Kept:
    """What several methods learn in the same way from the same logs."""
    return Kept("latent", "dynamics")


SHARING = {"sept", "sept-np", "totalvar", "maxent", "bnn", "dpt"}
"""The first four have one latent, the last two one model of the dynamics."""


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_method_learns(
    name: str, tmp_path: Path, kept: Kept, training_seed: int, margin: Margins
) -> None:
    case = CASES[name]
    telling = case.get("telling", False)
    path = log_two_step(tmp_path / "x.h5", telling=telling)
    settings = merge(SMALL, case.get("settings", {}))
    shared = kept if name in SHARING else Kept()
    agent = fit_from(shared, path, name, settings, training_seed)
    episodes = case.get("episodes", 4)
    check_answer(agent, two_step(telling=telling), case["returns"], margin, episodes=episodes)


# its probe, latent and control with a box are those of `test_method_with_a_box`
@pytest.mark.parametrize("box", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_papers_loop(box: bool, tmp_path: Path) -> None:
    check_method("sept", tmp_path, settings=PAPER_LOOP, probing=2, box=box)


BOX: dict[str, tuple[float, float]] = {
    # between which the mean return lies with continuous guesses; by chance it is 1/2
    "sept": (0.7, 1.0),
    "avg": (0.3, 0.7),
    "oracle": (0.9, 1.0),
    "history": (0.7, 1.0),
    "sept-np": (0.7, 1.0),
}


# `sept-np` has the latent and the control of `sept`
@pytest.mark.parametrize("name", ["sept", pytest.param("sept-np", marks=pytest.mark.long), "csro"])
def test_method_with_a_box(name: str, tmp_path: Path) -> None:
    check_method(name, tmp_path, box=True, needs=CASES[name].get("needs", frozenset()))


# test_continuous.py has avg and oracle learn with a box, too; sept-np learns as sept, unprobed
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("avg", marks=pytest.mark.long),
        "history",
        pytest.param("oracle", marks=pytest.mark.long),
        "sept",
        pytest.param("sept-np", marks=pytest.mark.long),
    ],
)
def test_a_method_learns_with_a_box(
    name: str, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    path = log_two_step(tmp_path / "x.h5", box=True)
    agent = so.fit(path, name, SMALL, seed=training_seed)
    check_answer(agent, two_step(box=True), BOX[name], margin)


@pytest.mark.parametrize("name", sorted(name for name in METHODS if METHODS[name].finite))
def test_a_method_that_needs_a_finite_set_says_so(name: str, tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", box=True, episodes=8)
    with pytest.raises(ConfigError, match=f"'{name}' needs discrete actions"):
        so.fit(path, name, SMALL)


def test_the_verdict_tries_agents_with_a_box(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", box=True)
    settings = merge(shortened(SMALL), {"verdict": True, "probe": {"use": "auto"}})
    agent = so.fit(path, "sept", settings, seed=1)
    assert agent.record["verdict"] in ("usable", "doubtful", "not usable")
    assert agent.record["evidence"]["missing"] is None


def test_the_papers_loop_learns(tmp_path: Path, training_seed: int, margin: Margins) -> None:
    """Nearly always: an action that the probe takes once in a hundred is new to the VAE.

    What its VAE learns is tested in test_sept_np.py: here an untrained one would do.
    """
    path = log_two_step(tmp_path / "x.h5", probing=2)
    agent = so.fit(path, "sept", merge(SMALL, PAPER_LOOP), seed=training_seed)
    check_answer(agent, two_step(probing=2), (0.95, 1.0), margin)


SEGMENT = {
    "latent": {
        **preset_values(None, "segment")["latent"],
        "updates": 60,
        "learning_rate": 5e-3,
        "encoder_units": 16,
        "decoder_units": 16,
    },
    "probe": {**preset_values(None, "segment")["probe"], "warmup": 30},
}


def test_the_preset_segment(tmp_path: Path) -> None:
    check_method("sept", tmp_path, settings=merge(SEGMENT, {"probe": {"warmup": 2}}))


def test_the_preset_segment_learns_from_one_step(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    """One probing step shows the mode to whoever reads the state that it ends in.

    What an encoder of changes learns is tested in tests/latent: here an untrained one would do.
    """
    path = log_two_step(tmp_path / "x.h5")
    agent = so.fit(path, "sept", merge(SMALL, SEGMENT), seed=training_seed)
    context = agent.context
    assert isinstance(context, SegmentContext)
    encoder = context.encoder
    assert isinstance(encoder, LstmEncoder)
    check_answer(agent, two_step(), (1.0, 1.0), margin)
    # without the changes, whose last one leads to the final state, it is left to guess
    blind = copy.copy(encoder)
    blind.delta_scaler = Standardiser(np.zeros(2), np.full(2, 1e9))
    guessing = replace(agent, context=SegmentContext(context.probe, blind, context.latent_scaler))
    results = so.evaluate(guessing, two_step(), episodes_per_instance=4)
    margin("blind", float(np.mean([e.total for e in results.episodes])), below=0.8)


@pytest.fixture(scope="module")
def shy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Kept]:
    """Logs of shy coins, and the latent that their probes share."""
    return log_two_step(tmp_path_factory.mktemp("shy") / "shy.h5", shy=True), Kept("latent")


def probe_of(
    name: str, shy: tuple[Path, Kept], seed: int, updates: int = 20, **probe: Any
) -> tuple[float, Agent]:
    """How likely the fitted probe is to take action 1 at first, and its agent."""
    # with fewer, a latent may explain both actions of a shy coin equally well
    latent = {"latent": {"updates": 400}, "control": {"updates": updates}}
    settings = merge(SMALL, {**latent, "probe": {"steps": 100, **probe}})
    path, latents = shy
    agent = fit_from(latents, path, name, settings, seed)
    assert isinstance(agent.context, RefinedContext) and agent.context.probe is not None
    first = agent.context.probe.policy(np.array([1.0, 0.0], dtype=np.float32), 0)
    return float(np.exp(first.log_probability(np.array(1)))), agent


def test_maxent_wants_the_opposite_of_the_elbo(
    shy: tuple[Path, Kept], training_seed: int, margin: Margins
) -> None:
    likely, _ = probe_of("sept", shy, training_seed, reward="elbo")
    unlikely, agent = probe_of("maxent", shy, training_seed)
    assert agent.record["probe_reward"] == "negative-elbo"
    margin("by one", min(likely, unlikely), below=0.1)
    margin("by the other", max(likely, unlikely), above=0.9)


def test_totalvar_does_not_look_for_the_instance(
    shy: tuple[Path, Kept], training_seed: int, margin: Margins
) -> None:
    """The face moves by 1 on average whatever a shy coin's probe does, so chance chooses.

    `sept` finds the action that shows the mode: `test_the_probe_probes` in tests/test_learning.py.
    """
    uninformed, agent = probe_of("totalvar", shy, training_seed, updates=400)
    margin("uninformed", uninformed, above=0.3, below=0.7)
    # shown in half of the episodes, guessed in the others: 3/4, give or take 0.03 in 200 episodes
    check_answer(agent, two_step(shy=True), (0.6, 0.9), margin, episodes=10)

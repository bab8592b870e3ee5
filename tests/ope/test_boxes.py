"""Off-policy evaluation where actions are a box: the fitted Q alone, against a value known by hand.

One instance pushes as asked, the other against it. From s₀ = 0 two steps add the pushes; each step
earns 1 − (a − ½)². An actor that always pushes by ½ earns 2, the uniform logs earn less.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Box
from sept_offline.agent import Agent, NoContext, Spaces
from sept_offline.agent.control import Actor
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.cli.evaluate import _print_judgement
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.errors import AgentError
from sept_offline.settings import OpeConfig
from tests.margins import Margins

PUSH = Box.of([-1.0], [1.0], ["push"])
QUICK = OpeConfig(updates=600, hidden=(32,), batch_size=64, replicates=100)
FEW = OpeConfig(updates=20, hidden=(8,), batch_size=32, replicates=50)


def logged(path: Path, narrow: float = 1.0) -> Dataset:
    """Uniform pushes within ±`narrow`."""
    rng = np.random.default_rng(0)
    with DatasetWriter(path, action_space=PUSH) as writer:
        for number in range(120):
            sign = 1 if number % 2 else -1
            actions = rng.uniform(-narrow, narrow, size=(2, 1)).astype(np.float32)
            places = np.concatenate([[0.0], np.cumsum(sign * actions[:, 0])])
            writer.append(
                instance="ab"[number % 2],
                observations=places[:, None].astype(np.float32),
                actions=actions,
                rewards=1 - (actions[:, 0] - 0.5) ** 2,
                log_densities=np.full(2, -np.log(2 * narrow)),
                terminated=True,
                truncated=False,
            )
    return so.load_dataset(path)


def pushes(by: float) -> Agent:
    """An agent that always takes the same push."""
    scaler = Standardiser(np.zeros(1, np.float32), np.ones(1, np.float32))
    bias = np.array([np.arctanh(by)], dtype=np.float32)
    network = MLP([(np.zeros((1, 1), np.float32), bias)], squashed=True)
    spaces = Spaces(("place",), PUSH, np.full(1, -2.0, np.float32), np.full(1, 2.0, np.float32))
    return Agent("avg", "", spaces, NoContext(), Actor(scaler, network, PUSH))


def test_the_value_is_that_of_the_agent(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    data = logged(tmp_path / "log.h5")
    good = so.judge(pushes(0.5), data, QUICK, seed=training_seed, in_sample=True)
    bad = so.judge(pushes(-0.5), data, QUICK, seed=training_seed, in_sample=True)
    margin("value of the best pushes", good.estimators["fqe"].mean, at_least=1.8, below=2.2)
    margin("value of opposite pushes", bad.estimators["fqe"].mean, at_least=-0.4, below=0.4)


def test_no_weights_and_the_verdict_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(FEW, confidence=0.995)
    found = so.judge(pushes(0.5), logged(tmp_path / "log.h5"), config, in_sample=True)
    assert set(found.estimators) == {"fqe", "dm"}
    assert found.headline == "fqe" and found.verdict != "trust"
    assert any("no density" in reason for reason in found.reasons)
    assert found.overlap.support == 1
    _print_judgement(found)
    shown = capsys.readouterr().out
    assert "99.5% intervals" in shown
    assert "overlap of the agent: 100.0% of its actions have support in the logs\n" in shown


def test_actions_that_nobody_logged_are_not_supported(tmp_path: Path) -> None:
    narrow = logged(tmp_path / "narrow.h5", narrow=0.2)
    found = so.judge(pushes(0.9), narrow, FEW, in_sample=True)
    assert found.overlap.support == 0 and found.verdict == "uncovered"


def test_logs_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "finite.h5"
    with DatasetWriter(path, num_actions=1) as writer:
        for instance in "ab":
            writer.append(
                instance=instance,
                observations=np.zeros((2, 1), np.float32),
                actions=np.zeros(1, np.int64),
                rewards=np.zeros(1),
                terminated=True,
                truncated=False,
            )
    with pytest.raises(AgentError, match="actions of 1 number from"):
        so.judge(pushes(0.5), path, FEW, in_sample=True)

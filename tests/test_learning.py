"""A learner learns; one that is broken in a single place fails the very same checks."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.methods import knowledge, sept
from sept_offline.settings import merge
from tests.margins import Margins
from tests.methods.check_method import SMALL as SMALL_TWO_STEP
from tests.methods.kept import Kept, fit_from
from tests.methods.navigation import SMALL, log_navigation
from tests.methods.two_step import log_two_step, two_step

STEPS = 16.0
"""With the hidden mode known from the first step about 13.2 are possible, without it some 50."""
SHOWN, RIGHT = 0.9, 0.95
"""Where one action alone shows the mode, it is taken, and every guess after it is right."""


@pytest.fixture(scope="module")
def navigation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs that stray far from the way: control is asked to act wherever its probe has led it."""
    path = tmp_path_factory.mktemp("learning") / "navigation.h5"
    return log_navigation(path, episodes=2000, limit=40, epsilon=0.6)


@pytest.fixture(scope="module")
def shy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_two_step(tmp_path_factory.mktemp("learning") / "shy.h5", shy=True)


@pytest.fixture(scope="module")
def before_control() -> Kept:
    """What is learned before control is the same whatever is wrong with control."""
    return Kept("latent", "probe")


@pytest.fixture(scope="module")
def before_probing() -> Kept:
    """The latent is the same whatever is wrong with the probe."""
    return Kept("latent")


def walked(path: Path, seed: int, kept: Kept) -> tuple[float, float]:
    """The share of test episodes of 2D navigation that are solved, and their steps."""
    settings = merge(SMALL, {"control": {"updates": 2000}})
    agent = fit_from(kept, path, "sept", settings, seed)
    found = so.evaluate(agent, "navigation2d", episodes_per_instance=4).summary()
    return found["solved"], found["steps_to_solve"]["mean"]


def probed(path: Path, seed: int, kept: Kept) -> tuple[float, float, Agent]:
    """How often the one action that shows the mode is taken, and how often the guess is right."""
    agent = fit_from(kept, path, "sept", SMALL_TWO_STEP, seed)
    results = so.evaluate(agent, two_step(shy=True), episodes_per_instance=4)
    shown = np.mean([e.actions[0] for e in results.episodes])
    right = np.mean([e.total for e in results.episodes])
    return float(shown), float(right), agent


def breaking_control(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """Hand control something else than what it should be given under `name`."""
    real = sept.control_stage

    def broken(*arguments: Any, **named: Any) -> Generator[Any, None, Any]:
        named[name] = change(named[name])
        return real(*arguments, **named)

    monkeypatch.setattr(sept, "control_stage", broken)


def test_the_learner_learns(
    navigation: Path, before_control: Kept, training_seed: int, margin: Margins
) -> None:
    solved, steps = walked(navigation, training_seed, before_control)
    margin("solved", solved, at_least=1)
    margin("steps", steps, below=STEPS)


# latents that name no instance: the next test has latents that say nothing
@pytest.mark.long
def test_latents_permuted_among_instances_fail(
    navigation: Path,
    before_control: Kept,
    training_seed: int,
    margin: Margins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking_control(monkeypatch, "context_instance", np.random.default_rng(0).permutation)
    solved, steps = walked(navigation, training_seed, before_control)
    margin("solved", solved, below=1)
    margin("steps", steps, above=STEPS)


def test_a_control_that_ignores_the_latent_fails(
    navigation: Path,
    before_control: Kept,
    training_seed: int,
    margin: Margins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking_control(monkeypatch, "contexts", np.zeros_like)
    solved, steps = walked(navigation, training_seed, before_control)
    margin("solved", solved, below=1)
    margin("steps", steps, above=STEPS)


def test_the_probe_probes(
    shy: Path, before_probing: Kept, training_seed: int, margin: Margins
) -> None:
    shown, right, agent = probed(shy, training_seed, before_probing)
    margin("shown", shown, at_least=SHOWN)
    margin("right", right, at_least=RIGHT)
    assert agent.record["probe_accepted"]


def test_a_probe_with_inverted_reward_fails(
    shy: Path,
    before_probing: Kept,
    training_seed: int,
    margin: Margins,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = knowledge.segment_rewards
    monkeypatch.setattr(knowledge, "segment_rewards", lambda *given: -real(*given))
    shown, right, _ = probed(shy, training_seed, before_probing)
    margin("shown", shown, below=SHOWN)
    margin("right", right, below=RIGHT)


def judge_recipe(family: str, path: Path, seed: int, margin: Margins, fails: bool = False) -> None:
    """By the shipped recipe and preset, on test instances, the last weights: as good as said.

    fails: the very same bounds must be missed, though not each of them. There is no verdict: it
    would let `avg` or `history` act in place of a broken agent.
    """
    agent = so.fit(path, "sept", {"verdict": False}, seed=seed)
    found = so.evaluate(agent, family, episodes_per_instance=EACH[family]).summary()
    if family == "hiv":
        share = found["normalised"]["mean"]
        if fails:
            margin("share", share, below=SHARE)
        else:
            margin("share", share, at_least=SHARE)
    elif fails:
        margin("steps", found["steps_to_solve"]["mean"], above=LIMITS[family])
    else:
        margin("steps", found["steps_to_solve"]["mean"], at_most=LIMITS[family])
        margin("solved", found["solved"], at_least=0.99)


LIMITS = {"navigation2d": 14.2, "acrobot": 90.0}
"""Steps to solve that no seed may exceed."""
SHARE = 0.58
"""Of the achievable on HIV: `avg` has 0.47, the best constant drug of each patient 0.50."""
EACH = {"navigation2d": 2, "acrobot": 10, "hiv": 1}


@pytest.fixture(scope="module", params=["navigation2d", "acrobot", "hiv"])
def recipe(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    path = tmp_path_factory.mktemp("recipe") / f"{request.param}.h5"
    so.collect_dataset(request.param, path, seed=0).close()
    return request.param, path


@pytest.mark.long
def test_every_family_is_learned_by_its_recipe(
    recipe: tuple[str, Path], training_seed: int, margin: Margins
) -> None:
    judge_recipe(*recipe, training_seed, margin)


@pytest.mark.long
def test_no_family_is_learned_by_control_that_ignores_the_latent(
    recipe: tuple[str, Path], training_seed: int, margin: Margins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latents permuted among instances would not do: on Acrobot such noise helps control."""
    breaking_control(monkeypatch, "contexts", np.zeros_like)
    judge_recipe(*recipe, training_seed, margin, fails=True)

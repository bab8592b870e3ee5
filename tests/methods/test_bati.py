"""A latent by likelihood: weights by hand, latents that name the instance, agents that agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.agent.contexts.candidates import CandidateContext
from sept_offline.agent.control import Control
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.data.records import Steps
from sept_offline.errors import AgentError
from sept_offline.latent import LatentModel
from sept_offline.latent.identification import neighbour_share
from sept_offline.methods.bati import (
    candidate_latents,
    context_latents,
    dynamics_stage,
    with_rewards,
)
from sept_offline.settings import LatentConfig, merge
from tests.latent.tiny_box import SPACE, episodes
from tests.margins import Margins
from tests.methods.answers import check_answer
from tests.methods.check_method import SMALL, check_method, shortened
from tests.methods.two_step import log_two_step, two_step

LENGTH, INSTANCES = 6, 4
STEPS, _ = episodes(per=40, length=LENGTH, seed=0)
FRESH, _ = episodes(per=20, length=LENGTH, seed=1)
CONFIG = LatentConfig(dim=2, updates=250, hidden=32, transitions=256, context=LENGTH)
CONTROL = Control(Standardiser.identity(2), MLP([(np.zeros((2, 4)), np.zeros(2))]))


def learned(steps: Steps, rewards: bool, seed: int = 0, updates: int = 250) -> LatentModel:
    """Dynamics of these steps, and of their rewards."""
    stage = dynamics_stage(
        with_rewards(steps) if rewards else steps,
        replace(CONFIG, updates=updates),
        seed,
        space=SPACE,
        num_instances=INSTANCES,
        predicted=2 + rewards,
    )
    stage.advance(10_000)
    return stage.result()


def context_of(model: LatentModel, rewards: bool) -> CandidateContext:
    assert model.decoder is not None
    candidates = candidate_latents(model, np.arange(INSTANCES), 32, 0)
    scaler = Standardiser.identity(2)
    return CandidateContext(model.decoder, candidates, scaler, LENGTH, rewards)


def latents(context: CandidateContext, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Of whole episodes, as an agent reads them step by step, and their instances."""
    starts = np.flatnonzero(steps.time == 0)
    taken = SPACE.encode(steps.actions)
    ends = []
    for start in starts:
        tracker = context.begin(0, None, CONTROL)
        paid: float | None = None
        for step in range(start, start + LENGTH):
            assert tracker.step(steps.observations[steps.row[step]], paid) is None
            tracker.took(taken[step])
            paid = float(steps.rewards[step]) if context.rewards else None
        tracker.step(steps.observations[steps.row[start + LENGTH - 1] + 1], paid)
        assert tracker.latent is not None
        ends.append(tracker.latent)
    return np.stack(ends), steps.instance[starts]


def identified(context: CandidateContext, known: Steps, asked: Steps) -> float:
    return neighbour_share(*latents(context, known), *latents(context, asked))


def renamed(steps: Steps, seed: int) -> Steps:
    """The same episodes, each under a name of which its dynamics say nothing."""
    names = np.random.default_rng(seed).permutation(steps.instance[::LENGTH])
    return replace(steps, instance=np.repeat(names, LENGTH))


def test_weights_by_hand() -> None:
    # one column that moves by z, with a deviation of 1/2: inputs (s, a, z, a⊗z)
    weight, bias = [[0.0, 0.0, 1.0, 0.0], [0.0] * 4], [0.0, np.log(0.25)]
    decoder = TransitionDecoder(
        MLP([(weight, bias)]), Standardiser.identity(1), Standardiser.identity(1), 1, 1
    )
    scaler = Standardiser([1.0], [2.0])
    context = CandidateContext(decoder, np.array([[0.0], [2.0]]), scaler, 2, rewards=False)
    context.check(1, 1)
    tracker = context.begin(0, None, CONTROL)
    assert tracker.latent == pytest.approx([1.0]) and tracker.uncertainty == pytest.approx(1.0)
    place = 0.0
    for change in (1.1, 0.95):
        tracker.step(np.array([place], dtype=np.float32))
        tracker.took(np.array([0.3], dtype=np.float32))
        place += change
    assert not tracker.settled
    tracker.step(np.array([place], dtype=np.float32))
    # log p under z = 0 and z = 2
    each = [-2 * (1.1**2 + 0.95**2), -2 * (0.9**2 + 1.05**2)]
    share = 1 / (1 + np.exp(each[0] - each[1]))
    assert tracker.latent == pytest.approx([2 * share], rel=1e-4)
    assert tracker.uncertainty == pytest.approx(2 * np.sqrt(share * (1 - share)), rel=1e-4)
    assert tracker.vector == pytest.approx([(2 * share - 1) / 2], rel=1e-3)
    assert tracker.settled


def test_candidates_are_instances_and_points_between_two() -> None:
    model = learned(STEPS, rewards=False, updates=5)
    means = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], dtype=np.float32)
    model = replace(model, instance_mean=means)
    # the last instance has no steps
    drawn = candidate_latents(model, np.arange(3), 20, 0)
    assert drawn.shape == (20, 2)
    np.testing.assert_array_equal(drawn[:3], means[:3])
    on_an_edge = np.isclose(drawn[:, 0], 0) | np.isclose(drawn[:, 1], 0)
    on_an_edge |= np.isclose(drawn.sum(axis=1), 1)
    assert on_an_edge.all() and drawn.min() >= 0 and drawn.max() <= 1
    few = candidate_latents(model, np.arange(4), 2, 0)
    assert all((row == means).all(axis=1).any() for row in few) and len(few) == 2


def test_a_reward_is_a_change() -> None:
    steps = replace(STEPS, rewards=np.arange(len(STEPS.rewards), dtype=np.float64))
    paired = with_rewards(steps)
    before, after = paired.observations[paired.row], paired.observations[paired.row + 1]
    np.testing.assert_array_equal(before[:, 1:], STEPS.observations[STEPS.row])
    np.testing.assert_array_equal(after[:, 1:], STEPS.observations[STEPS.row + 1])
    np.testing.assert_array_equal((after - before)[:, 0], steps.rewards.astype(np.float32))


def test_likelihoods_name_the_instance_and_shuffled_ones_do_not(
    training_seed: int, margin: Margins
) -> None:
    context = context_of(learned(STEPS, rewards=False, seed=training_seed), rewards=False)
    margin("identified", identified(context, STEPS, FRESH), above=0.8)
    known = renamed(STEPS, training_seed)
    broken = context_of(learned(known, rewards=False, seed=training_seed), rewards=False)
    margin("identified by chance", identified(broken, known, FRESH), below=0.45)


def test_rewards_name_what_the_dynamics_do_not(training_seed: int, margin: Margins) -> None:
    rng = np.random.default_rng(training_seed)
    known, asked = (renamed(steps, training_seed) for steps in (STEPS, FRESH))
    known, asked = (
        replace(steps, rewards=steps.instance + 0.3 * rng.normal(size=len(steps.row)))
        for steps in (known, asked)
    )
    seen = context_of(learned(known, rewards=True, seed=training_seed), rewards=True)
    assert seen.needs == {"reward"}
    margin("identified by rewards", identified(seen, known, asked), above=0.7)
    blind = context_of(learned(known, rewards=False, seed=training_seed), rewards=False)
    assert not blind.needs
    margin("identified without", identified(blind, known, asked), below=0.45)


@pytest.mark.parametrize("rewards", [False, True])
def test_control_is_trained_with_the_latents_of_the_agent(rewards: bool) -> None:
    model = learned(STEPS, rewards, updates=50)
    context = context_of(model, rewards)
    steps = with_rewards(STEPS) if rewards else STEPS
    drawn, instance = context_latents(model, steps, context.candidates, LENGTH, 0)
    assert len(drawn) == len(instance) and set(instance) == set(range(INSTANCES))
    # contexts without steps have the latent that an episode begins with
    first = context.begin(0, None, CONTROL).latent
    assert first is not None
    share = np.isclose(drawn, first, atol=1e-5).all(axis=1).mean()
    assert 0.05 < share < 0.2
    # and whole episodes are among them
    whole, _ = latents(context, STEPS)
    nearest = np.abs(whole[:, None] - drawn[None]).max(axis=2).min(axis=1)
    assert np.quantile(nearest, 0.9) < 1e-3


def test_method_with_a_box_and_rewards(tmp_path: Path) -> None:
    check_method("bati", tmp_path, box=True, needs=frozenset({"reward"}))


@pytest.mark.parametrize("rewards", [False, True])
def test_it_learns_with_a_box(
    rewards: bool, tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    path = log_two_step(tmp_path / "x.h5", box=True)
    settings = merge(SMALL, {"bati": {"rewards": rewards}})
    agent = so.fit(path, "bati", settings, seed=training_seed)
    check_answer(agent, two_step(box=True), (0.8, 1.0), margin)
    # with the same likelihood for every candidate it is left to guess
    context = agent.context
    assert isinstance(context, CandidateContext)
    same = np.repeat(context.candidates.mean(axis=0, keepdims=True), 2, axis=0)
    decoder, scaler = context.decoder, context.latent_scaler
    blind = CandidateContext(decoder, same, scaler, context.refine_steps, rewards)
    check_answer(
        replace(agent, context=blind), two_step(box=True), (0.3, 0.7), margin, name="blind"
    )


@pytest.mark.parametrize("rewards", [False, True])
def test_export_refuses_in_one_sentence(rewards: bool, tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "x.h5", episodes=80)
    settings = merge(shortened(SMALL), {"bati": {"rewards": rewards}})
    agent = so.fit(path, "bati", settings, seed=0)
    with pytest.raises(AgentError, match="of the method bati does more in its episode"):
        so.export(agent, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_that_do_not_fit_are_refused() -> None:
    model = learned(STEPS, rewards=False, updates=5)
    context = context_of(model, rewards=False)
    decoder, scaler = context.decoder, context.latent_scaler
    with pytest.raises(AgentError, match="candidates of 2 columns"):
        CandidateContext(decoder, np.zeros((3, 1), dtype=np.float32), scaler, 4, rewards=False)
    with pytest.raises(AgentError, match="candidates of 2 columns"):
        CandidateContext(decoder, np.zeros((0, 2), dtype=np.float32), scaler, 4, rewards=False)
    with pytest.raises(AgentError, match="decoder expects"):
        context.check(3, SPACE.width)

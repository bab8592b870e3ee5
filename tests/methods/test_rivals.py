"""Encoders of contexts: distances by hand, embeddings that name the instance, agents that agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sept_offline.agent import RefinedContext
from sept_offline.agent.contexts import RewardedContext
from sept_offline.agent.control import Control
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.data.records import Steps
from sept_offline.latent.identification import neighbour_share
from sept_offline.methods.rivals import (
    ContextStage,
    CsroStage,
    FocalStage,
    UnicornStage,
    distance_loss,
)
from sept_offline.settings import FitConfig, FocalConfig, LatentConfig
from tests.latent.tiny_box import SPACE, episodes
from tests.margins import Margins
from tests.probe.test_probe import same

LENGTH = 6
STEPS, _ = episodes(per=40, length=LENGTH, seed=0)
FRESH, _ = episodes(per=20, length=LENGTH, seed=1)
CONFIG = LatentConfig(dim=2, updates=250, hidden=32, contexts=64, context=LENGTH)
KINDS: dict[str, type[ContextStage]] = {
    "focal": FocalStage,
    "unicorn": UnicornStage,
    "csro": CsroStage,
}
LEAST = {"focal": 0.55, "unicorn": 0.55, "csro": 0.4}
"""Least share of fresh episodes whose instance is named; chance is 1/4."""
EACH = pytest.mark.parametrize("kind", sorted(KINDS))


def stage(
    kind: str, steps: Steps = STEPS, seed: int = 0, updates: int = 250, rewards: bool = False
) -> ContextStage:
    config = FitConfig(latent=replace(CONFIG, updates=updates), probe_steps=1)
    return KINDS[kind](steps, config, seed, space=SPACE, rewards=rewards)


def latents(learner: ContextStage, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Of whole episodes, as the agent's encoder reads them, and their instances."""
    encoder = learner.encoder().reading(LENGTH)
    seen = steps.observations.reshape(-1, LENGTH + 1, 2)
    taken = SPACE.encode(steps.actions).reshape(-1, LENGTH, SPACE.width)
    return encoder.encode(seen, taken)[0], steps.instance[::LENGTH]


def test_distances_by_hand() -> None:
    z = torch.tensor([[0.0], [1.0], [3.0]])
    config = FocalConfig(repulsion=2.0, softening=0.5)
    # one pair of one instance, 1 apart; two of others, 3 and 2 apart
    expected = 1 + 2 * (1 / 9.5 + 1 / 4.5) / 2
    assert float(distance_loss(torch.tensor([4, 4, 7]), z, config)) == pytest.approx(expected)


@EACH
def test_contexts_name_the_instance_and_shuffled_ones_do_not(
    kind: str, training_seed: int, margin: Margins
) -> None:
    learner = stage(kind, seed=training_seed)
    learner.advance(10_000)
    known, asked = (latents(learner, steps) for steps in (STEPS, FRESH))
    margin("identified", neighbour_share(*known, *asked), above=LEAST[kind])
    # the same episodes, each under a name that says nothing
    names = np.random.default_rng(training_seed).permutation(STEPS.instance[::LENGTH])
    shuffled = replace(STEPS, instance=np.repeat(names, LENGTH))
    broken = stage(kind, shuffled, seed=training_seed, updates=100)
    broken.advance(10_000)
    known = latents(broken, shuffled)
    margin("identified by chance", neighbour_share(*known, *latents(broken, FRESH)), below=0.45)


@EACH
def test_resuming_gives_the_same_bits(kind: str) -> None:
    unbroken, first, second = (stage(kind, updates=9) for _ in range(3))
    unbroken.advance(100)
    first.advance(4)
    second.restore(first.state())
    second.advance(100)
    assert same(unbroken.state(), second.state())


@pytest.mark.parametrize("rewarded", [False, True])
def test_an_episode_has_the_mean_of_its_embeddings(rewarded: bool) -> None:
    steps = replace(STEPS, rewards=np.random.default_rng(0).normal(size=len(STEPS.rewards)))
    learner = stage("focal", steps, updates=5, rewards=rewarded)
    learner.advance(5)
    kind = RewardedContext if rewarded else RefinedContext
    context = kind(None, learner.encoder(), Standardiser.identity(2))
    context.check(2, SPACE.width)
    assert context.needs == ({"reward"} if rewarded else frozenset())
    control = Control(Standardiser.identity(2), MLP([(np.zeros((2, 4)), np.zeros(2))]))
    tracker = context.begin(0, None, control)
    for time in range(LENGTH):
        before = steps.rewards[time - 1] if time else None
        assert tracker.step(steps.observations[time], before if rewarded else None) is None
        tracker.took(SPACE.encode(steps.actions[time]))
    tracker.step(steps.observations[LENGTH], steps.rewards[LENGTH - 1] if rewarded else None)
    with torch.no_grad():
        expected = learner.embed(torch.arange(LENGTH)).mean(dim=0).numpy()
    assert tracker.latent is not None
    np.testing.assert_allclose(tracker.latent, expected, rtol=1e-3, atol=1e-4)


def test_a_reward_is_read() -> None:
    rewards = STEPS.instance.astype(np.float64)
    rewarded = stage("focal", replace(STEPS, rewards=rewards), updates=5, rewards=True)
    other = stage("focal", replace(STEPS, rewards=rewards[::-1].copy()), updates=5, rewards=True)
    rows = torch.arange(50)
    assert rewarded.states.shape[1] == STEPS.observations.shape[1] + 1
    assert not torch.equal(rewarded.embed(rows), other.embed(rows))

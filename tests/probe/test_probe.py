"""The probe: right estimates, learning that helps, a floor that holds, exact resuming."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch

from sept_offline.agent.probes import NetworkProbe
from sept_offline.data.records import Segments
from sept_offline.errors import ConfigError, DataError
from sept_offline.probe import (
    Behaviour,
    PaperLoopStage,
    ProbeStage,
    estimate_behaviour,
    logged_or_estimated,
)
from sept_offline.probe.stage import (
    IMITATION,
    REWARDS,
    ProbeLearner,
    split,
    standardised,
    total_variation,
)
from sept_offline.probe.weights import balance, diagnose, effective, normalised
from sept_offline.settings import LatentConfig, ProbeConfig, Reward
from sept_offline.stage import StageState
from tests.latent.tiny import ACTIONS, SPACE, cut, episodes
from tests.margins import Margins

_, ALL = episodes(per=150, length=3, seed=0)
SEGMENTS = cut(ALL, 2)
REWARD = (SEGMENTS.actions == 1).sum(axis=1).astype(np.float64)
CONFIG = ProbeConfig(steps=60, learning_rate=1e-2)
LOOP = LatentConfig(
    objective="segment", dim=2, updates=8, segments=16, encoder_units=8, decoder_units=8
)


def skewed(observations: np.ndarray) -> np.ndarray:
    high = observations[:, 0] > 0
    return np.where(high[:, None], [[0.6, 0.2, 0.2]], [[0.2, 0.2, 0.6]])


def probe(config: ProbeConfig = CONFIG, reward: np.ndarray = REWARD, seed: int = 0) -> ProbeStage:
    return ProbeStage(SEGMENTS, reward, config, seed, space=SPACE)


def loop(seed: int = 0, changes: bool = False, warmup: int = 0) -> PaperLoopStage:
    latent = dataclasses.replace(LOOP, changes=changes)
    config = ProbeConfig(batch=32, minibatches=2, tracking_rate=0.1, ess_floor=0.2, warmup=warmup)
    return PaperLoopStage(SEGMENTS, latent, config, seed, space=SPACE, num_instances=4)


def chances(probe: NetworkProbe, observations: np.ndarray) -> np.ndarray:
    policies = [probe.policy(row, 0) for row in observations]
    return np.stack([policy.logged(np.array(0)) for policy in policies])


def pushes(probe: NetworkProbe) -> float:
    return float(chances(probe, SEGMENTS.observations[:, 0])[:, 1].mean())


def same(one: StageState, other: StageState) -> bool:
    assert one.tensors.keys() == other.tensors.keys()
    return one.values == other.values and all(
        torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors
    )


def resumed(make: Callable[[], Any], cut: int) -> tuple[Any, Any]:
    """A stage that never stopped and one restored after `cut` updates; their bits are the same."""
    unbroken, first, second = (make() for _ in range(3))
    unbroken.advance(1000)
    first.advance(cut)
    snapshot = first.state()
    first.advance(2)
    second.restore(snapshot)
    second.advance(1000)
    assert same(unbroken.state(), second.state())
    return unbroken, second


def estimate(
    log_ratio: torch.Tensor, shares: torch.Tensor, rewards: torch.Tensor
) -> tuple[float, float]:
    """The estimate of E_π[R] in the diagnostics, and its standard error by the delta method."""
    mean = diagnose(log_ratio, shares, rewards, 0).reward
    weights = normalised(log_ratio, shares)
    return mean, float(torch.sqrt((weights**2 * (rewards - mean) ** 2).sum()))


def test_at_the_behaviour_every_weight_is_one() -> None:
    everything = np.arange(len(SEGMENTS.actions))
    assert SEGMENTS.propensities is not None
    behaviour = Behaviour(SPACE, SEGMENTS.propensities, estimated=False)
    learner = ProbeLearner(SEGMENTS, behaviour, CONFIG, 0, everything)
    ratio = learner.log_ratio(torch.from_numpy(everything)).detach()
    assert torch.allclose(ratio, torch.zeros_like(ratio), atol=1e-6)
    found = learner.diagnostics(torch.from_numpy(everything), torch.from_numpy(REWARD))
    assert found.ess == pytest.approx(len(everything))
    assert found.largest == pytest.approx(1 / len(everything))
    assert found.reward == pytest.approx(REWARD.mean())
    assert found.violations == 0


def test_the_effective_sample_is_whole_at_the_behaviour_however_unbalanced() -> None:
    instance = np.array([0] * 90 + [1] * 10)
    shares = torch.from_numpy(balance(instance))
    assert float(effective(torch.zeros(100), shares)) == pytest.approx(1)
    weights = normalised(torch.zeros(100), shares).numpy()
    assert weights[:90].sum() == pytest.approx(0.5)
    one = torch.full((100,), -1000.0)
    one[3] = 0
    assert diagnose(one, shares, torch.zeros(100), 0).ess_share < 0.02


def test_the_estimate_agrees_with_enumeration() -> None:
    """Two states, two actions, two steps: every segment's probability is written down."""
    rng = np.random.default_rng(0)
    mu = np.array([[0.7, 0.3], [0.4, 0.6]])
    pi = np.array([[0.2, 0.8], [0.5, 0.5]])
    move = np.array([[0.9, 0.3], [0.2, 0.6]])  # chance of state 1 next
    gain = rng.normal(size=(2, 2, 2, 2))
    exact = 0.0
    for s0, a0, s1, a1 in itertools.product(range(2), repeat=4):
        arrives = move[s0, a0] if s1 else 1 - move[s0, a0]
        exact += 0.5 * pi[s0, a0] * arrives * pi[s1, a1] * gain[s0, a0, s1, a1]
    count = 200_000
    s0 = rng.integers(2, size=count)
    a0 = (rng.random(count) < mu[s0, 1]).astype(int)
    s1 = (rng.random(count) < move[s0, a0]).astype(int)
    a1 = (rng.random(count) < mu[s1, 1]).astype(int)
    ratio = np.log(pi[s0, a0] / mu[s0, a0]) + np.log(pi[s1, a1] / mu[s1, a1])
    shares = torch.full((count,), 1 / count, dtype=torch.float64)
    rewards = torch.from_numpy(gain[s0, a0, s1, a1])
    value, error = estimate(torch.from_numpy(ratio), shares, rewards)
    assert abs(value - exact) < 4 * error
    assert error < 0.01
    assert abs(float(rewards.mean()) - exact) > 10 * error, "the behaviour itself must differ"


def test_it_learns_and_an_inverted_reward_unlearns(training_seed: int, margin: Margins) -> None:
    results = {}
    for sign, name in ((1, "learned"), (-1, "unlearned")):
        stage = probe(reward=sign * REWARD, seed=training_seed)
        stage.advance(1000)
        results[name] = found = stage.result()
        margin(f"errors {name}", found.improvement / found.error, above=CONFIG.margin)
        assert found.accepted
    margin("pushes learned", pushes(results["learned"].policy), above=0.6)
    margin("pushes unlearned", pushes(results["unlearned"].policy), below=0.1)
    weights = results["learned"].weights
    assert weights.sum() == pytest.approx(1)
    margin("reward more", weights @ REWARD - REWARD.mean(), above=0.4)


@pytest.mark.parametrize("floor", [0.15, 1.0])
def test_the_floor_holds_at_every_update(floor: float, training_seed: int, margin: Margins) -> None:
    stage = probe(dataclasses.replace(CONFIG, ess_floor=floor), seed=training_seed)
    stage.advance(1000)
    assert len(stage.history) == CONFIG.steps
    assert min(entry.ess_share for entry in stage.history) >= floor - 1e-6
    if floor == 0.15:
        # there must have been something to hold
        margin("share", stage.history[-1].ess_share, below=0.5)


def test_noise_is_not_mistaken_for_a_reward(training_seed: int, margin: Margins) -> None:
    kept = 0
    for seed in range(5 * training_seed, 5 * training_seed + 5):
        noise = np.random.default_rng(seed).normal(size=len(REWARD))
        stage = probe(dataclasses.replace(CONFIG, margin=2.0), noise, seed)
        stage.advance(1000)
        result = stage.result()
        kept += result.accepted
        if not result.accepted:
            assert "starts as the behaviour does" in result.reason
            assert np.allclose(chances(result.policy, SEGMENTS.observations[:, 0]), 1 / ACTIONS)
            assert np.allclose(result.weights, 1 / len(REWARD))
    margin("kept", kept, at_most=1)


def test_it_starts_from_a_behaviour_that_is_not_uniform(
    training_seed: int, margin: Margins
) -> None:
    _, logged = episodes(per=150, length=2, seed=0, policy=skewed)
    nothing = np.zeros(len(logged.actions))
    stage = ProbeStage(logged, nothing, CONFIG, training_seed, space=SPACE)
    stage.advance(1000)
    result = stage.result()
    assert not result.accepted
    seen = logged.observations[:, 0]
    margin("error", np.abs(chances(result.policy, seen) - skewed(seen)).mean(), below=0.06)
    margin("share", result.history[-1].ess_share, above=0.8)


def test_resuming_gives_the_same_bits() -> None:
    resumed(lambda: probe(dataclasses.replace(CONFIG, steps=12)), cut=5)


@pytest.mark.parametrize("cut", [7, IMITATION + 5])
def test_resuming_keeps_the_start_that_was_learned(cut: int) -> None:
    """Where the behaviour is not uniform, and the probe's start is what is kept in the end."""
    _, logged = episodes(per=40, length=2, seed=0, policy=skewed)
    config = dataclasses.replace(CONFIG, steps=10)
    rewards = np.zeros(len(logged.actions))
    unbroken, second = resumed(lambda: ProbeStage(logged, rewards, config, 0, space=SPACE), cut)
    assert not second.result().accepted
    seen = logged.observations[:, 0]
    one, other = (chances(stage.result().policy, seen) for stage in (unbroken, second))
    assert np.array_equal(one, other)


def test_the_seed_decides() -> None:
    runs = [probe(seed=seed) for seed in (0, 0, 1)]
    for run in runs:
        run.advance(5)
    assert same(runs[0].state(), runs[1].state())
    assert not same(runs[0].state(), runs[2].state())


def keeps_its_floor(loop: PaperLoopStage) -> None:
    assert min(entry.ess_share for entry in loop.history) >= 0.2 - 1e-6
    assert float(loop.weights().sum()) == pytest.approx(1)


@pytest.mark.parametrize(("changes", "warmup"), [(False, 0), (True, 2)])
def test_the_paper_loop_resumes_exactly_and_keeps_its_floor(changes: bool, warmup: int) -> None:
    unbroken, second = resumed(lambda: loop(changes=changes, warmup=warmup), cut=3)
    keeps_its_floor(second)
    tracked = unbroken.tracking.state_dict()["decoder_head.0.weight"]
    assert not torch.equal(tracked, unbroken.network.state_dict()["decoder_head.0.weight"])


def test_the_probe_waits_while_the_vae_warms_up() -> None:
    waiting, eager = loop(warmup=5), loop()
    waiting.advance(5)
    eager.advance(5)
    assert [entry.ess_share for entry in waiting.history] == pytest.approx([1.0] * 5)
    assert eager.history[-1].ess_share < 0.999
    waiting.advance(3)
    assert waiting.history[-1].ess_share < 0.999


def test_a_behaviour_is_estimated_and_calibrated(training_seed: int, margin: Margins) -> None:
    _, logged = episodes(per=800, length=2, seed=0, policy=skewed)
    blind = dataclasses.replace(logged, propensities=None)
    guess = estimate_behaviour(blind, SPACE, seed=training_seed)
    assert guess.estimated and guess.ece is not None and guess.nll is not None
    margin("error", np.abs(guess.propensities - logged.propensities).mean(), below=0.06)
    margin("calibration error", guess.ece, below=0.08)
    stage = ProbeStage(blind, np.arange(len(blind.actions)) * 1.0, CONFIG, 0, space=SPACE)
    assert stage.learner.floor == pytest.approx(2 * CONFIG.ess_floor)
    stage.advance(1)
    assert stage.result().estimated


def test_a_behaviour_that_looks_at_nothing_is_given_its_frequencies(
    training_seed: int, margin: Margins
) -> None:
    blind = dataclasses.replace(SEGMENTS, propensities=None)
    guess = estimate_behaviour(blind, SPACE, seed=training_seed)
    # of all: the largest is that of one odd segment, by which nothing is weighted
    margin("error", np.abs(guess.propensities - 1 / ACTIONS).mean(), below=0.04)


def test_unknown_rows_alone_are_estimated() -> None:
    assert SEGMENTS.propensities is not None
    some = SEGMENTS.propensities.copy()
    some[0, 0] = np.nan
    stage = ProbeStage(
        dataclasses.replace(SEGMENTS, propensities=some),
        REWARD,
        CONFIG,
        0,
        space=SPACE,
    )
    assert stage.behaviour.estimated
    assert np.isfinite(stage.behaviour.propensities).all()
    assert np.array_equal(stage.behaviour.propensities[1:], SEGMENTS.propensities[1:])


def test_rewards_are_centred_within_instances() -> None:
    instance = np.repeat([0, 1], 50)
    values = np.tile(np.arange(50.0), 2) + 1000.0 * instance
    total = standardised(values, instance)
    assert abs(total[:50].mean()) < 1e-9 and abs(total[50:].mean()) < 1e-9
    assert np.isfinite(standardised(np.zeros(100), instance)).all()


def test_held_out_rows_come_from_every_instance() -> None:
    kept, held = split(SEGMENTS.instance, 0.2, 0)
    assert len(np.intersect1d(kept, held)) == 0 and len(kept) + len(held) == len(REWARD)
    assert set(np.bincount(SEGMENTS.instance[held])) == {30}


def test_few_rows_are_held_out_too() -> None:
    """One of two at least; where there is a single one, none is both learned from and checked."""
    kept, held = split(np.repeat(np.arange(30), 2), 0.2, 0)
    assert len(np.intersect1d(kept, held)) == 0 and len(held) == 30
    kept, held = split(np.arange(30), 0.2, 0)
    assert len(kept) == 30 and len(held) == 0
    assert all(len(rows) == 30 for rows in split(np.arange(30), 0.0, 0))


def test_total_variation_counts_movement() -> None:
    still = (SEGMENTS.actions == 0).all(axis=1)
    moved = total_variation(SEGMENTS)
    assert moved[still].max() < moved[(SEGMENTS.actions == 1).any(axis=1)].mean() / 3


def test_total_variation_is_the_papers() -> None:
    observations = np.array([[[0, 10], [1, 8], [0.5, 8]]], dtype=np.float32)
    segments = dataclasses.replace(
        SEGMENTS,
        observations=observations,
        actions=np.zeros((1, 2), dtype=np.int64),
        propensities=None,
        instance=np.zeros(1, dtype=np.int64),
    )
    assert total_variation(segments).tolist() == [(1 + 2 + 0.5) / 2]
    assert total_variation(segments, final_state=False).tolist() == [(1 + 2) / 2]


@pytest.mark.parametrize("reward", ["total-variation", "negative-elbo"])
def test_the_papers_loop_uses_the_reward_of_its_settings(reward: Reward) -> None:
    def first(config: ProbeConfig) -> float:
        stage = PaperLoopStage(SEGMENTS, LOOP, config, 0, space=SPACE, num_instances=4)
        stage.advance(1)
        return stage.history[0].reward

    chosen, usual = first(ProbeConfig(reward=reward)), first(ProbeConfig(reward="elbo"))
    if reward == "negative-elbo":
        assert chosen == -usual
    else:
        assert chosen == pytest.approx(total_variation(SEGMENTS, final_state=False).mean(), rel=0.2)


def test_every_reward_of_the_settings_has_a_function() -> None:
    assert set(REWARDS) == set(get_args(Reward))


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"probe\.ess_floor"):
        ProbeConfig(ess_floor=2.0)
    with pytest.raises(ConfigError, match=r"probe\.reward"):
        ProbeConfig(reward="curiosity")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="finite"):
        probe(reward=np.full(len(REWARD), np.nan))
    assert SEGMENTS.propensities is not None
    denied = SEGMENTS.propensities.copy()
    denied[4, 1] = [1, 0, 0] if SEGMENTS.actions[4, 1] else [0, 1, 0]
    wrong: Segments = dataclasses.replace(SEGMENTS, propensities=denied)
    with pytest.raises(DataError, match="Segment 4"):
        ProbeStage(wrong, REWARD, CONFIG, 0, space=SPACE)


def test_the_taken_action_s_probability_alone_is_enough_for_weights() -> None:
    assert SEGMENTS.propensities is not None
    actions = SEGMENTS.actions[..., None]
    chance = np.take_along_axis(SEGMENTS.propensities, actions, axis=-1)
    alone = np.full_like(SEGMENTS.propensities, np.nan)
    np.put_along_axis(alone, actions, chance, axis=-1)
    found = logged_or_estimated(dataclasses.replace(SEGMENTS, propensities=alone), SPACE, seed=0)
    assert not found.estimated
    own = np.take_along_axis(found.propensities, actions, axis=-1)
    np.testing.assert_array_equal(own, chance)
    np.testing.assert_allclose(found.propensities.sum(axis=-1), 1)
    assert (found.propensities >= 0).all()

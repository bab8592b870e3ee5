"""The probe of a box: densities that integrate, weights that are right, doses that are found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sept_offline.actions import Box, Policy, TruncatedNormal
from sept_offline.agent.networks import Array, Standardiser
from sept_offline.agent.probes import LOG_DEVIATION, NetworkProbe
from sept_offline.data.records import Segments
from sept_offline.errors import DataError
from sept_offline.probe import (
    Behaviour,
    PaperLoopStage,
    ProbeStage,
    estimate_behaviour,
    logged_or_estimated,
)
from sept_offline.probe.policy import NormalNetwork, log_truncated
from sept_offline.probe.stage import ProbeLearner
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig, ProbeConfig
from tests.latent.tiny_box import SPACE, episodes
from tests.margins import Margins
from tests.probe.test_probe import estimate, keeps_its_floor, resumed

STEPS, SEGMENTS = episodes(per=150, length=2, seed=0)
DOSE = SEGMENTS.actions[..., 0].sum(axis=1).astype(np.float64)
CONFIG = ProbeConfig(steps=60, learning_rate=1e-2)
LOOP = LatentConfig(
    objective="segment", dim=2, updates=8, segments=16, encoder_units=8, decoder_units=8
)
EVERYTHING = np.arange(len(SEGMENTS.actions))


def narrow(observations: Array) -> Policy:
    mean = np.stack([2 * np.tanh(observations[:, 0]), np.full(len(observations), 0.3)])
    return TruncatedNormal(SPACE, mean.T, np.array([0.8, 0.4]))


def policy_at(probe: NetworkProbe, segments: Segments) -> list[Policy]:
    return [SPACE.decoded(probe.policy(row, 0)) for row in segments.observations[:, 0]]


def dose(probe: NetworkProbe) -> float:
    uniforms = np.tile([0.0, 0.5, 0.5], (50, 1))
    return float(np.mean([policy.draw(uniforms)[0, 0] for policy in policy_at(probe, SEGMENTS)]))


def set_constant(network: NormalNetwork, mean: list[float], log_deviation: list[float]) -> None:
    """Let the policy be the same in every state."""
    with torch.no_grad():
        last = [part for part in network.network if isinstance(part, torch.nn.Linear)][-1]
        last.weight.zero_()
        last.bias.copy_(torch.atanh(torch.tensor(mean)).repeat(2))
        last.bias[SPACE.width :] = torch.tensor(log_deviation)


def test_the_density_integrates_to_one_and_is_finite_on_the_bounds() -> None:
    places = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    for mean in (-0.999, -0.3, 0.0, 0.9999):
        for log_deviation in (LOG_DEVIATION[0], -1.0, LOG_DEVIATION[1]):
            at = [torch.tensor(value, dtype=torch.float64) for value in (mean, log_deviation)]
            density = log_truncated(places, *at)
            assert torch.isfinite(density).all()
            assert float(torch.trapezoid(density.exp(), places)) == pytest.approx(1, abs=1e-4)


def test_it_is_the_density_of_the_actions_own_policy() -> None:
    """In the units of the actions, on the bounds as well."""
    network = NormalNetwork(
        SPACE, (4,), Standardiser.fit(SEGMENTS.observations[:, 0]), torch_generator(0, "network")
    )
    set_constant(network, [0.4, -0.2], [-0.7, 0.2])
    actions = np.concatenate([SEGMENTS.actions[:20, 0], [SPACE.low, SPACE.high]]).astype(np.float32)
    inputs = network.inputs(np.zeros((len(actions), 2), dtype=np.float32))
    found = network.log_probability(inputs, network.read(actions)).detach().numpy()
    mean = SPACE.centre + SPACE.half * np.array([0.4, -0.2])
    policy = TruncatedNormal(SPACE, mean, SPACE.half * np.exp([-0.7, 0.2]))
    np.testing.assert_allclose(found, policy.log_probability(actions), atol=1e-5)
    exported = SPACE.decoded(network.export().policy(np.zeros(2, dtype=np.float32), 0))
    np.testing.assert_allclose(found, exported.log_probability(actions), atol=1e-5)


def test_at_the_behaviour_every_weight_is_one() -> None:
    mean, log_deviation = [0.4, -0.2], [-0.7, 0.2]
    policy = TruncatedNormal(
        SPACE, SPACE.centre + SPACE.half * np.array(mean), SPACE.half * np.exp(log_deviation)
    )
    _, logged = episodes(
        per=100,
        length=2,
        seed=3,
        behaviour=lambda seen: dataclasses.replace(
            policy, mean=np.tile(policy.mean, (len(seen), 1))
        ),
    )
    learner = ProbeLearner(
        logged, logged_or_estimated(logged, SPACE, 0), CONFIG, 0, EVERYTHING[:400]
    )
    assert isinstance(learner.policy, NormalNetwork)
    set_constant(learner.policy, mean, log_deviation)
    rows = torch.arange(400)
    ratio = learner.log_ratio(rows).detach()
    assert torch.allclose(ratio, torch.zeros_like(ratio), atol=1e-5)
    found = learner.diagnostics(rows, torch.zeros(400, dtype=torch.float64))
    assert found.ess == pytest.approx(400) and found.violations == 0
    assert found.largest == pytest.approx(1 / 400)


def test_it_starts_nearly_uniform() -> None:
    learner = ProbeLearner(SEGMENTS, logged_or_estimated(SEGMENTS, SPACE, 0), CONFIG, 0, EVERYTHING)
    assert learner.ess() > 0.99


def test_the_estimate_agrees_with_numerical_integration() -> None:
    """One step in one dimension: E_π[R] from draws of μ, and from a fine grid."""
    space = Box.of([-1.0], [3.0])
    rng = np.random.default_rng(0)
    mu = TruncatedNormal(space, np.array([0.5]), np.array([1.5]))
    pi = TruncatedNormal(space, np.array([2.0]), np.array([0.6]))
    grid = np.linspace(-1, 3, 20_001)[:, None]

    def reward(actions: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(2 * actions[:, 0]) + 0.3 * actions[:, 0] ** 2)

    exact, logged = (
        np.trapezoid(np.exp(policy.log_probability(grid)) * reward(grid), grid[:, 0])
        for policy in (pi, mu)
    )
    count = 100_000
    actions = mu.draw(rng.random((count, space.draws)))
    ratio = pi.log_probability(actions) - mu.log_probability(actions)
    shares = torch.full((count,), 1 / count, dtype=torch.float64)
    value, error = estimate(
        torch.from_numpy(ratio), shares, torch.from_numpy(reward(actions.astype(np.float64)))
    )
    assert abs(value - exact) < 4 * error
    assert error < 0.01
    assert abs(logged - exact) > 10 * error, "the behaviour itself must differ"


def test_it_finds_the_informative_dose(training_seed: int, margin: Margins) -> None:
    """The reward grows with the dose, with some noise."""
    noise = np.random.default_rng(training_seed).normal(size=len(DOSE))
    reward = DOSE / DOSE.std() + 0.3 * noise
    results = {}
    for sign, name in ((1, "learned"), (-1, "unlearned")):
        stage = ProbeStage(SEGMENTS, sign * reward, CONFIG, training_seed, space=SPACE)
        stage.advance(1000)
        results[name] = found = stage.result()
        margin(f"errors {name}", found.improvement / found.error, above=CONFIG.margin)
        assert min(entry.ess_share for entry in found.history) >= CONFIG.ess_floor - 1e-6
    apart = dose(results["learned"].policy) - dose(results["unlearned"].policy)
    margin("dose learned above unlearned", apart, above=0.5)


def test_it_starts_from_a_behaviour_that_is_not_uniform(
    training_seed: int, margin: Margins
) -> None:
    _, logged = episodes(per=150, length=2, seed=0, behaviour=narrow)
    stage = ProbeStage(logged, np.zeros(len(logged.actions)), CONFIG, training_seed, space=SPACE)
    stage.advance(1000)
    result = stage.result()
    assert not result.accepted
    margin("share", result.history[-1].ess_share, above=0.7)


def test_a_density_is_estimated_and_calibrated(training_seed: int, margin: Margins) -> None:
    _, logged = episodes(per=300, length=2, seed=0, behaviour=narrow)
    blind = dataclasses.replace(logged, propensities=None)
    guess = estimate_behaviour(blind, SPACE, seed=training_seed)
    assert guess.estimated and guess.ece is not None and guess.nll is not None
    assert logged.propensities is not None
    margin("error", np.abs(guess.propensities - logged.propensities).mean(), below=0.25)
    margin("calibration error", guess.ece, below=0.05)
    stage = ProbeStage(blind, np.arange(len(blind.actions)) * 1.0, CONFIG, 0, space=SPACE)
    assert stage.learner.floor == pytest.approx(2 * CONFIG.ess_floor)


def test_a_uniform_behaviour_is_recognised() -> None:
    blind = dataclasses.replace(SEGMENTS, propensities=None)
    guess = estimate_behaviour(blind, SPACE, seed=0)
    assert SEGMENTS.propensities is not None
    assert np.abs(guess.propensities - SEGMENTS.propensities).mean() < 0.1
    assert Behaviour(SPACE, SEGMENTS.propensities, estimated=False).uniform


def test_unknown_densities_alone_are_estimated() -> None:
    assert SEGMENTS.propensities is not None
    some = SEGMENTS.propensities.copy()
    some[0, 0] = np.nan
    found = logged_or_estimated(dataclasses.replace(SEGMENTS, propensities=some), SPACE, 0)
    assert found.estimated and np.isfinite(found.propensities).all()
    np.testing.assert_array_equal(found.propensities[1:], SEGMENTS.propensities[1:])


def test_resuming_gives_the_same_bits() -> None:
    config = dataclasses.replace(CONFIG, steps=12)
    unbroken, second = resumed(lambda: ProbeStage(SEGMENTS, DOSE, config, 0, space=SPACE), cut=5)
    one, other = (stage.result().policy.to_arrays("x") for stage in (unbroken, second))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_papers_loop_reads_a_box() -> None:
    config = ProbeConfig(batch=32, ess_floor=0.2)
    _, second = resumed(
        lambda: PaperLoopStage(SEGMENTS, LOOP, config, 0, space=SPACE, num_instances=4), cut=3
    )
    keeps_its_floor(second)


def test_actions_outside_the_box_are_refused() -> None:
    actions = SEGMENTS.actions.copy()
    actions[3, 1, 0] = 2.5
    wrong = dataclasses.replace(SEGMENTS, actions=actions)
    with pytest.raises(DataError, match="outside 2 numbers from"):
        PaperLoopStage(wrong, LOOP, CONFIG, 0, space=SPACE, num_instances=4)

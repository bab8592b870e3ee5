"""The latent tells instances apart, from the first steps only, and survives being stopped."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Segments
from sept_offline.errors import ConfigError, DataError
from sept_offline.latent import (
    LatentModel,
    SegmentLatentStage,
    TransitionLatentStage,
    WindowLatentStage,
    identify,
)
from sept_offline.latent.networks import posterior
from sept_offline.latent.transitions import Contexts, change_scale, draw_latents
from sept_offline.latent.window import all_windows
from sept_offline.settings import LatentConfig
from sept_offline.stage import StageState
from sept_offline.training.inputs import Balanced, changes
from tests.latent.grid import ORDERS, walks
from tests.latent.grid import SPACE as FOUR_MOVES
from tests.latent.tiny import SPACE, cut, episodes
from tests.margins import Margins

STEPS, ALL = episodes(per=100, length=12, seed=0)
_, FRESH_EPISODES = episodes(per=50, length=12, seed=1)
PROBE = 4
SEGMENTS, FRESH = cut(ALL, PROBE), cut(FRESH_EPISODES, PROBE)
CONFIG = LatentConfig(dim=2, updates=600, hidden=48, transitions=256, context=8)
PAPER = LatentConfig(
    objective="segment", dim=2, updates=12, encoder_units=12, decoder_units=10, segments=32
)
CHANGES = dataclasses.replace(PAPER, changes=True)
EACH = pytest.mark.parametrize(
    "config", [CONFIG, PAPER, CHANGES], ids=["transitions", "segment", "changes"]
)


def stage(
    config: LatentConfig = CONFIG, seed: int = 0, segments: Segments = SEGMENTS
) -> TransitionLatentStage | SegmentLatentStage:
    if config.objective == "segment":
        return SegmentLatentStage(segments, config, seed, space=SPACE, num_instances=4)
    return TransitionLatentStage(STEPS, segments, config, seed, space=SPACE, num_instances=4)


@pytest.fixture(scope="module")
def model(training_seed: int) -> LatentModel:
    # with half of these updates an encoder is often sure of what it cannot know
    learner = stage(dataclasses.replace(CONFIG, updates=1200), seed=training_seed)
    learner.advance(10_000)
    return learner.result()


@pytest.mark.parametrize("size", [1e-14, 1e18])
def test_the_unit_of_a_change_is_that_of_its_column(size: float) -> None:
    before, change = np.random.default_rng(0).normal(size=(2, 10_000, 1))
    scale = change_scale(
        (size * before).astype(np.float32), (size * change).astype(np.float32), predicted=1
    )
    assert scale == pytest.approx(size, rel=0.1, abs=0)


def same(one: StageState, other: StageState) -> bool:
    assert one.tensors.keys() == other.tensors.keys()
    assert one.values == other.values
    return all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def informative(segments: Segments) -> np.ndarray:
    """Which segments push at all; the others cannot tell."""
    return (segments.actions == 1).any(axis=1)


def test_instances_are_identified_on_fresh_episodes(model: LatentModel, margin: Margins) -> None:
    keep = informative(FRESH)
    asked = Segments(
        FRESH.observations[keep],
        FRESH.actions[keep],
        FRESH.rewards[keep],
        None,
        FRESH.instance[keep],
        FRESH.episode[keep],
        0,
    )
    found = identify(model, SEGMENTS, asked)
    # Posterior means are drawn to the middle: nearness to the instances' own is the weakest.
    margin("nearest", found.nearest, above=2 * found.chance)
    margin("neighbours", found.neighbours, above=0.93)
    margin("linear", found.linear, above=0.93)


def test_instances_are_identified_on_a_grid(training_seed: int, margin: Margins) -> None:
    # Cells change seldom and by all they can: without a floor the rare slips outweigh the rest.
    (steps, walked), (_, fresh) = walks(per=20, length=30, seed=0), walks(per=20, length=8, seed=1)
    segments = cut(walked, 8)
    config = LatentConfig(dim=4, updates=300, hidden=64)
    learner = TransitionLatentStage(
        steps, segments, config, training_seed, space=FOUR_MOVES, num_instances=len(ORDERS)
    )
    learner.advance(config.updates)
    margin("neighbours", identify(learner.result(), segments, fresh).neighbours, above=0.65)


def test_the_stage_shows_the_identification_that_is_kept() -> None:
    config = dataclasses.replace(CONFIG, updates=12)
    watching = TransitionLatentStage(
        STEPS, SEGMENTS, config, 0, space=SPACE, num_instances=4, fresh=FRESH
    )
    shown = watching.advance(12)["identification"]
    assert shown == identify(watching.result(), SEGMENTS, FRESH).neighbours
    # Whoever watches changes nothing.
    plain = stage(config)
    assert "identification" not in plain.advance(12)
    assert same(watching.state(), plain.state())


def test_latents_of_permuted_instances_identify_nothing(
    training_seed: int, margin: Margins
) -> None:
    shuffled = np.random.default_rng(3).permutation(SEGMENTS.instance)
    broken = TransitionLatentStage(
        dataclasses.replace(STEPS, instance=shuffled[STEPS.episode]),
        dataclasses.replace(SEGMENTS, instance=shuffled),
        dataclasses.replace(CONFIG, updates=300),
        training_seed,
        space=SPACE,
        num_instances=4,
    )
    broken.advance(10_000)
    found = identify(broken.result(), SEGMENTS, FRESH)
    margin("nearest", found.nearest, below=0.5)


def test_unsure_where_nothing_was_pushed(model: LatentModel, margin: Margins) -> None:
    _, log_variance = model.encode(FRESH)
    pushed = informative(FRESH)
    more = log_variance[~pushed].mean() - log_variance[pushed].mean()
    margin("log variance more", more, above=1)


def test_only_the_first_steps_are_read(model: LatentModel) -> None:
    later = FRESH_EPISODES.observations.copy()
    actions = FRESH_EPISODES.actions.copy()
    order = np.random.default_rng(0).permutation(len(later))
    later[:, PROBE + 1 :], actions[:, PROBE:] = later[order, PROBE + 1 :], actions[order, PROBE:]
    permuted = dataclasses.replace(FRESH_EPISODES, observations=later, actions=actions)
    for one, other in zip(model.encode(FRESH_EPISODES), model.encode(permuted), strict=True):
        assert np.array_equal(one, other)
    earlier = FRESH_EPISODES.observations.copy()
    earlier[:, PROBE] = earlier[order, PROBE]
    touched = model.encode(dataclasses.replace(FRESH_EPISODES, observations=earlier))[0]
    assert not np.allclose(touched, model.encode(FRESH_EPISODES)[0])


def test_elbo_falls_for_dynamics_never_seen(model: LatentModel, margin: Margins) -> None:
    turned = FRESH.observations.copy()
    turned[..., :2] = turned[..., 1::-1]
    # as in an agent: the floor is that of episodes which the latent has not seen
    (_, unseen), (_, known) = (episodes(per=250, length=PROBE, seed=seed) for seed in (2, 3))
    floor = np.quantile(model.elbo(unseen), 0.01)
    margin("known below the floor", (model.elbo(known) < floor).mean(), below=0.05)
    pushed = informative(FRESH)
    strange = model.elbo(dataclasses.replace(FRESH, observations=turned))
    margin("strange below the floor", (strange[pushed] < floor).mean(), above=0.9)


def test_a_row_does_not_depend_on_its_batch(model: LatentModel) -> None:
    one = Segments(*(getattr(FRESH, f.name)[3:4] for f in dataclasses.fields(FRESH)[:6]), 0)
    assert np.allclose(model.elbo(one), model.elbo(FRESH)[3:4], rtol=1e-5)


@EACH
def test_the_exported_encoder_says_the_same(config: LatentConfig) -> None:
    learner = stage(config)
    learner.advance(20)
    fitted = learner.result()
    mean, log_variance = fitted.encode(FRESH)
    exported = fitted.encoder.encode(FRESH.observations, SPACE.encode(FRESH.actions))
    assert np.allclose(mean, exported[0], atol=1e-4)
    assert np.allclose(log_variance, exported[1], atol=1e-4)


def test_the_exported_decoder_says_the_same(model: LatentModel) -> None:
    assert model.decoder is not None
    z = model.encode(FRESH)[0]
    with torch.no_grad():
        expected = model.network.log_prob(
            torch.from_numpy(FRESH.observations),
            torch.from_numpy(SPACE.encode(FRESH.actions)),
            torch.from_numpy(z),
        )
    exported = model.decoder.log_prob(FRESH.observations, SPACE.encode(FRESH.actions), z)
    assert np.allclose(expected.numpy(), exported, rtol=1e-3, atol=1e-2)


@EACH
def test_resuming_gives_the_same_bits(config: LatentConfig) -> None:
    config = dataclasses.replace(config, updates=12)
    unbroken, first, second = stage(config), stage(config), stage(config)
    unbroken.advance(12)
    first.advance(5)
    snapshot = first.state()
    first.advance(3)  # must not reach into the snapshot
    second.restore(snapshot)
    second.advance(100)
    assert second.done == second.total == 12
    assert same(unbroken.state(), second.state())


def test_snapshots_keep_the_names_by_which_older_ones_are_resumed() -> None:
    windows = all_windows(STEPS, PROBE)
    window = WindowLatentStage(STEPS, windows, CONFIG, 0, space=SPACE, num_instances=4)
    shared = {"network", "optimiser", "rng"}
    for learner, own in ((stage(), {"posteriors"}), (stage(PAPER), set()), (window, set())):
        learner.advance(1)
        snapshot = learner.state()
        assert {name.partition(".")[0] for name in snapshot.tensors} == shared | own
        assert snapshot.values == {"done": 1}


@EACH
def test_the_seed_decides(config: LatentConfig) -> None:
    config = dataclasses.replace(config, updates=3)
    before = torch.get_rng_state()
    runs = [stage(config, seed) for seed in (0, 0, 1)]
    for run in runs:
        run.advance(3)
    assert same(runs[0].state(), runs[1].state())
    assert not same(runs[0].state(), runs[2].state())
    assert torch.equal(before, torch.get_rng_state())


def test_the_paper_vae_improves(training_seed: int, margin: Margins) -> None:
    learner = stage(dataclasses.replace(PAPER, updates=150, learning_rate=5e-3), training_seed)
    first = learner.advance(10)["log_likelihood"]
    learner.advance(130)
    margin("log likelihood more", learner.advance(10)["log_likelihood"] - first, above=1)


def test_changes_name_the_instance_and_an_untrained_encoder_does_not(
    training_seed: int, margin: Margins
) -> None:
    config = LatentConfig(
        objective="segment",
        changes=True,
        dim=4,
        updates=600,
        learning_rate=5e-3,
        segments=128,
        encoder_units=32,
        decoder_units=32,
        beta=0.3,
        entropy=0.0,
    )

    def pushing(observations: np.ndarray) -> np.ndarray:
        return np.tile([0.1, 0.8, 0.1], (len(observations), 1))

    (_, seen), (_, fresh) = (episodes(per, 2, seed, pushing) for per, seed in ((100, 0), (50, 1)))
    keep = informative(fresh)
    asked = Segments(*(getattr(fresh, f.name)[keep] for f in dataclasses.fields(fresh)[:6]), 0)

    def nearest(updates: int) -> float:
        learner = stage(config, training_seed, seen)
        learner.advance(updates)
        return identify(learner.result(), seen, asked).nearest

    margin("trained", nearest(600), above=0.95)
    margin("untrained", nearest(0), below=0.95)


def test_changes_read_the_final_state_and_pairs_do_not() -> None:
    other = FRESH.observations.copy()
    other[:, -1] += 0.5
    for config, moved in ((PAPER, False), (CHANGES, True)):
        fitted = stage(config).result()
        before = fitted.encode(FRESH)[0]
        after = fitted.encode_arrays(other, FRESH.actions)[0]
        assert (before != after).any() == moved


def test_one_step_with_its_change_is_a_segment() -> None:
    learner = stage(CHANGES, segments=cut(SEGMENTS, 1))
    learner.advance(2)
    assert np.isfinite(learner.result().elbo(cut(FRESH, 1))).all()


def test_weighted_segments_are_drawn_by_their_weights() -> None:
    instance = np.array([0, 0, 0, 1, 1])
    weights = np.array([1.0, 0.0, 3.0, 5.0, 5.0])
    rows = Balanced(instance, weights).draw(20_000, torch.Generator().manual_seed(0))
    share = np.bincount(rows.numpy(), minlength=5) / 20_000
    assert np.allclose(share, [0.125, 0, 0.375, 0.25, 0.25], atol=0.02)


@pytest.mark.parametrize("level", [1e-6, 1e-3, 1.0, 1e3])
def test_rounding_noise_of_a_constant_column_is_no_change(level: float) -> None:
    rng = np.random.default_rng(0)
    noise = level * (1 + 1e-7 * rng.normal(size=(1001, 1)))
    walk = level * rng.normal(size=(1001, 1)).cumsum(0)
    clock = level * np.arange(1001.0)[:, None]
    last = np.where(np.arange(1001) == 1000, level, 0.0)[:, None]  # a flag of the final state
    rows = np.concatenate([noise, walk, clock, last], axis=1).astype(np.float32)
    change = changes(rows[:-1], rows[1:])
    assert not change[:, 0].any()
    assert np.array_equal(change[:, 1:], (rows[1:] - rows[:-1])[:, 1:])
    assert change_scale(rows[:-1], change, 4)[0] == 0


def test_a_constant_feature_is_not_blown_up() -> None:
    values = np.full((50, 2), 7.0, dtype=np.float32)
    values[:, 1] = np.arange(50)
    values[0, 0] = np.nextafter(np.float32(7), np.float32(8))
    scaling = Standardiser.fit(values)
    assert scaling.scale[0] == 1
    assert abs(scaling(values)[:, 1].std() - 1) < 1e-3


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"latent\.dim"):
        LatentConfig(dim=0)
    with pytest.raises(ConfigError, match="at least 2"):
        stage(PAPER, segments=cut(SEGMENTS, 1))
    lonely = dataclasses.replace(SEGMENTS, instance=np.zeros_like(SEGMENTS.instance))
    with pytest.raises(DataError, match="at least 2"):
        stage(segments=lonely)


def test_contexts_are_summed_block_by_block() -> None:
    """The sums are those of all evidence at once, to the bit, wherever a block ends."""
    rng = torch.Generator().manual_seed(0)
    instance = np.repeat(np.arange(3), 40)
    time = np.tile(np.arange(20), 6)
    contexts = Contexts(instance, time, longest=64)
    evidence = torch.rand(len(time), 6, generator=rng)

    def drawn(sizes: list[int]) -> Any:
        blocks = iter(torch.split(evidence, sizes))
        return draw_latents(blocks, contexts, torch.Generator().manual_seed(1))

    (mean, log_variance), owner, first = drawn([120])
    sums = torch.cat((torch.zeros(1, 6, dtype=torch.float64), evidence.double().cumsum(0)))
    _, length = contexts.draw(owner, torch.Generator().manual_seed(1))
    assert (first + length == 120).any() and (length == 0).any() and (length > 7).any()
    whole = (sums[first + length] - sums[first]).float()
    expected = posterior(whole)
    assert torch.equal(mean, expected[0]) and torch.equal(log_variance, expected[1])
    for sizes in ([1, 119], [50, 70], [7] * 17 + [1]):
        (again, wide), *_ = drawn(sizes)
        assert torch.equal(again, mean) and torch.equal(wide, log_variance)

"""What may not be done, and what was never seen: masks and ranges at act time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sept_offline.agent import Novelty, SegmentContext, TableProbe, segment_elbo
from sept_offline.errors import AgentError
from tests.agent import builders

METHODS = ["sept", "avg", "oracle", "history", "sept-np", "dynasept"]
HIDDEN = {"mass": 0.4, "length": 1.2}


def states(count: int, steps: int) -> np.ndarray:
    return np.random.default_rng(9).normal(size=(count, steps, 4)).astype(np.float32)


def masks(count: int, steps: int) -> np.ndarray:
    rng = np.random.default_rng(10)
    allowed = rng.random((count, steps, 3)) < 0.5
    allowed[..., 0] |= ~allowed.any(axis=2)
    return allowed


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fallback", [True, False])
def test_only_allowed_actions_are_taken_alone_and_together(method: str, fallback: bool) -> None:
    agent = builders.make_agent(method, fallback=fallback)
    count = 24
    rows, allowed = states(count, 9) * 2, masks(count, 9)
    hidden = [HIDDEN] * count if agent.needs else None
    together = agent.begin_batch(range(count), hidden)
    found = np.stack([together.act(rows[:, t], masks=allowed[:, t]) for t in range(9)], axis=1)
    changed = 0
    for index in range(count):
        alone, free = (agent.begin(index, HIDDEN if hidden else None) for _ in range(2))
        for time in range(9):
            action = alone.act(rows[index, time], mask=allowed[index, time])
            assert action == found[index, time]
            assert allowed[index, time, action]
            if alone.values is not None:
                best = np.where(allowed[index, time], alone.values, -np.inf).argmax()
                assert action == best
            changed += action != free.act(rows[index, time])
    assert changed > count


def test_a_mask_that_allows_everything_changes_nothing() -> None:
    agent = builders.make_agent("sept")
    for row in states(20, 9):
        free, masked = agent.begin(seed=4), agent.begin(seed=4)
        for state in row:
            assert free.act(state) == masked.act(state, mask=np.ones(3, dtype=bool))


def test_a_probe_keeps_its_proportions_over_what_is_allowed() -> None:
    agent = builders.make_agent("sept")
    old = agent.context
    table = np.array([[0.1, 0.3, 0.6], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
    context = SegmentContext(TableProbe(table), old.encoder, old.latent_scaler, old.novelty)
    agent = replace(agent, context=context)
    state, first, second = np.zeros(4), [], []
    for seed in range(2000):
        episode = agent.begin(seed)
        first.append(episode.act(state, mask=[True, True, False]))
        # the probe would take neither of these: both equally
        second.append(episode.act(state, mask=[0, 1, 1]))
    assert np.bincount(first, minlength=3) / 2000 == pytest.approx([0.25, 0.75, 0], abs=0.04)
    assert np.bincount(second, minlength=3) / 2000 == pytest.approx([0, 0.5, 0.5], abs=0.04)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ([False, False, False], "forbids every action"),
        ([True, False], "true or false of shape [3], found"),
        ([[True, True, True]], "true or false of shape [3], found"),
        ([0.2, 0.8, 1.0], "true or false"),
        ([2, 0, 0], "true or false"),
    ],
)
def test_a_wrong_mask_is_refused_and_costs_no_step(mask: list[float], words: str) -> None:
    agent = builders.make_agent("sept")
    row = states(1, 9)[0]
    episode, other = agent.begin(seed=2), agent.begin(seed=2)
    for state in row:
        with pytest.raises(AgentError) as refusal:
            episode.act(state, mask=np.array(mask))
        assert words in str(refusal.value)
        assert episode.act(state) == other.act(state)


def test_a_batch_checks_the_masks_of_those_that_go_on() -> None:
    agent = builders.make_agent("avg")
    together = agent.begin_batch(range(3))
    allowed = np.array([[True, False, False], [False, False, False], [False, True, False]])
    rows = states(3, 1)[:, 0]
    with pytest.raises(AgentError, match="forbids every action"):
        together.act(rows, masks=allowed)
    active = np.array([True, False, True])
    assert together.act(rows, active, masks=allowed).tolist() == [0, -1, 1]
    with pytest.raises(AgentError, match=r"true or false of shape \[3, 3\], found"):
        together.act(rows, active, masks=allowed[0])


def test_columns_outside_the_training_range_are_named() -> None:
    agent = builders.make_agent("sept")
    spaces = agent.spaces
    middle = (spaces.low + spaces.high) / 2
    width = spaces.high - spaces.low
    episode = agent.begin()
    assert episode.out_of_range == ()
    for _ in range(6):
        episode.act(middle)
        assert episode.out_of_range == ()
        # a little beyond what was seen is nothing to report
        episode.act(spaces.high + 0.04 * width)
        assert episode.out_of_range == ()
        far = middle.copy()
        far[1] = spaces.low[1] - 0.06 * width[1]
        far[3] = spaces.high[3] + 10 * width[3]
        episode.act(far)
        far[:] = middle  # what the caller does with its array afterwards is the caller's business
        assert episode.out_of_range == ("observation_1", "observation_3")
    together = agent.begin_batch(range(3))
    rows = np.stack([middle, middle, middle])
    rows[1, 2] = rows[2, 2] = 99
    for _ in range(6):
        together.act(rows, np.array([True, True, False]))
        assert together.out_of_range == [(), ("observation_2",), ()]


def test_a_constant_column_allows_for_rounding_only() -> None:
    agent = builders.make_agent("avg")
    spaces = agent.spaces
    low, high = spaces.low.copy(), spaces.high.copy()
    low[0] = high[0] = 1000.0
    fixed = replace(spaces, low=low, high=high)
    inside = np.zeros((3, 4), dtype=np.float32)
    inside[:, 0] = (1000.0, 1000.0005, 1000.1)
    assert fixed.outside(inside)[:, 0].tolist() == [False, False, True]


def test_rounding_does_not_part_a_segment_from_its_likes() -> None:
    context = builders.make_agent("sept").context
    encoder, decoder = context.encoder, context.novelty.decoder
    rows, actions = builders.segments(np.random.default_rng(0), 200)
    elbos = segment_elbo(encoder, decoder, rows, actions)
    for index in range(200):
        # one segment logged a thousand times, met again
        crowd = Novelty(decoder, np.full(1000, elbos[index]))
        one = rows[index : index + 1], actions[index : index + 1]
        assert crowd.quantile(*one, *encoder.encode(*one))[0] == 1
        stranger = Novelty(decoder, np.full(1000, elbos[index] + 0.01))
        assert stranger.quantile(*one, *encoder.encode(*one))[0] == 0

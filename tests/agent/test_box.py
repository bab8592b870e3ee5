"""Agents whose actions are a box: actors, bounds and probes with a density."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sept_offline.actions import Box, TruncatedNormal
from sept_offline.agent import (
    Actor,
    Agent,
    Control,
    NormalProbe,
    SegmentContext,
    UniformBoxProbe,
    load_agent,
    save_agent,
)
from sept_offline.agent.networks import MLP, Ensemble, Standardiser, plain_networks
from sept_offline.agent.probes import LOG_DEVIATION
from sept_offline.errors import AgentError
from tests.agent import builders

METHODS = ["sept", "lstm", "avg", "oracle", "history", "sept-np", "dynasept", "refined", "unprobed"]
HIDDEN = {"mass": 0.4, "length": 1.2}


def rows(count: int, steps: int = 9) -> np.ndarray:
    return np.random.default_rng(9).normal(size=(count, steps, 4)).astype(np.float32)


def begin(agent: Agent, seed: int) -> Any:
    return agent.begin(seed, HIDDEN if agent.needs else None)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("fallback", "stack"), [(True, 1), (False, 3)])
def test_alone_batched_and_saved_it_acts_the_same(
    tmp_path: Path, method: str, fallback: bool, stack: int
) -> None:
    box = builders.BOX
    agent = builders.make_agent(method, fallback=fallback, stack=stack, space=box)
    again = load_agent(save_agent(agent, tmp_path / "agent"))
    assert again.spaces.actions == box and isinstance(again.control, Actor)
    states = rows(10) * np.linspace(1, 4, 10, dtype=np.float32)[:, None, None]
    together = agent.begin_batch(range(10), [HIDDEN] * 10 if agent.needs else None)
    active = np.ones(10, dtype=bool)
    alone, loaded = ([begin(one, seed) for seed in range(10)] for one in (agent, again))
    for time in range(9):
        active[:time] = False
        batch = together.act(states[:, time], active)
        assert batch.dtype == np.float32 and np.isnan(batch[~active]).all()
        for index in np.flatnonzero(active):
            action = alone[index].act(states[index, time])
            assert action.dtype == np.float32 and action.shape == (2,)
            assert not box.outside(action)
            np.testing.assert_array_equal(action, loaded[index].act(states[index, time]))
            # a product of matrices rounds otherwise than one of a matrix and a vector
            np.testing.assert_allclose(batch[index], action, atol=2e-5)
            assert alone[index].values is None


def test_an_actor_is_the_mean_of_its_members_tanh_in_the_box() -> None:
    agent = builders.make_agent("sept", space=builders.BOX)
    control = agent.control
    assert isinstance(control.network, Ensemble)
    inputs = np.random.default_rng(0).normal(size=(50, control.network.input_dim))
    each = []
    for member in control.network.members:
        plain = MLP(member.layers, member.norms, member.activation, member.norm_first)
        each.append(np.tanh(plain(inputs.astype(np.float32)).astype(np.float64)))
    low, high = np.array(builders.BOX.low), np.array(builders.BOX.high)
    expected = low + (np.mean(each, axis=0) + 1) / 2 * (high - low)
    np.testing.assert_allclose(control.greedy(inputs.astype(np.float32)), expected, atol=1e-6)
    for row, action in zip(inputs.astype(np.float32), expected, strict=True):
        np.testing.assert_allclose(control.act(row), action, atol=1e-6)


@pytest.mark.parametrize("method", ["sept", "avg", "refined"])
def test_agents_in_a_box_act_without_numba(tmp_path: Path, method: str) -> None:
    agent = builders.make_agent(method, space=builders.BOX)
    save_agent(agent, tmp_path / "agent")
    with plain_networks():
        plain = load_agent(tmp_path / "agent")
    for seed, states in enumerate(rows(10)):
        one, other = begin(agent, seed), begin(plain, seed)
        for state in states:
            np.testing.assert_allclose(one.act(state), other.act(state), atol=2e-6)


@pytest.mark.parametrize("method", METHODS)
def test_actions_stay_within_their_bounds_alone_and_together(method: str) -> None:
    agent = builders.make_agent(method, fallback=True, space=builders.BOX)
    states, rng = rows(12) * 2, np.random.default_rng(3)
    ends = np.sort(rng.uniform([-2, 0], [2, 0.5], (9, 2, 12, 2)), axis=1).astype(np.float32)
    ends[:, 1, :, 1] = ends[:, 0, :, 1]  # a component can be fixed
    together = agent.begin_batch(range(12), [HIDDEN] * 12 if agent.needs else None)
    found = [together.act(states[:, t], bounds=ends[t]) for t in range(9)]
    changed = 0
    for index in range(12):
        alone, free = begin(agent, index), begin(agent, index)
        for time in range(9):
            low, high = ends[time, :, index]
            action = alone.act(states[index, time], bounds=(low, high))
            np.testing.assert_allclose(found[time][index], action, atol=2e-5)
            assert (low <= action).all() and (action <= high).all()
            changed += not np.array_equal(action, free.act(states[index, time]))
    assert changed > 80


def test_control_is_clipped_and_bounds_beyond_the_box_change_nothing() -> None:
    agent = builders.make_agent("avg", space=builders.BOX)
    for state in rows(1)[0]:
        free = agent.begin().act(state)
        wide = agent.begin().act(state, bounds=([-np.inf, -9], [np.inf, 9]))
        np.testing.assert_array_equal(free, wide)
        low, high = [-0.1, 0.2], [0.1, 0.3]
        narrow = agent.begin().act(state, bounds=(low, high))
        np.testing.assert_allclose(narrow, np.clip(free, low, high), rtol=1e-6)
        assert (narrow >= np.array(low)).all() and (narrow <= np.array(high)).all()


@pytest.mark.parametrize("bounds", [None, ([-1.0, 0.1], [0.5, 0.4])])
def test_a_probe_draws_from_its_truncated_distribution(bounds: Any) -> None:
    agent = builders.make_agent("sept", space=builders.BOX)
    state, probe, box = rows(1)[0, 0], agent.context.probe, builders.BOX
    drawn = np.array([agent.begin(seed).act(state, bounds=bounds) for seed in range(600)])
    assert (drawn[:20] != drawn[0]).any()
    output = probe.network(probe.scaler(state)[None])[0].astype(np.float64)
    low, high = (np.array(box.low), np.array(box.high)) if bounds is None else map(np.array, bounds)
    for k in range(2):
        mean = box.centre[k] + box.half[k] * math.tanh(output[k])
        deviation = box.half[k] * math.exp(np.clip(output[2 + k], *LOG_DEVIATION))
        ends = (low[k] - mean) / deviation, (high[k] - mean) / deviation
        normal = stats.truncnorm(*ends, loc=mean, scale=deviation)
        assert stats.kstest(drawn[:, k], normal.cdf).pvalue > 1e-3
    # what a probe says of its density is of the actions themselves
    policy = box.decoded(probe.policy(state, 0))
    assert isinstance(policy, TruncatedNormal)
    edges = [(box.low[k] - policy.mean[k]) / policy.deviation[k] for k in range(2)]
    tops = [(box.high[k] - policy.mean[k]) / policy.deviation[k] for k in range(2)]
    expected = stats.truncnorm(edges, tops, loc=policy.mean, scale=policy.deviation)
    inside = drawn[:50].astype(np.float64)
    np.testing.assert_allclose(
        policy.log_probability(inside), expected.logpdf(inside).sum(axis=1), atol=1e-6
    )


def test_a_uniform_probe_fills_the_box(tmp_path: Path) -> None:
    agent = builders.make_agent("sept", space=builders.BOX)
    old = agent.context
    context = SegmentContext(UniformBoxProbe(2), old.encoder, old.latent_scaler, old.novelty)
    agent = load_agent(save_agent(replace(agent, context=context), tmp_path / "agent"))
    drawn = np.array([agent.begin(seed).act(np.zeros(4)) for seed in range(800)])
    for k, (low, high) in enumerate(zip(builders.BOX.low, builders.BOX.high, strict=True)):
        assert stats.kstest(drawn[:, k], stats.uniform(low, high - low).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask": [True, True]}, "bounds, not a mask"),
        ({"bounds": ([0.3, 0.0], [0.2, 0.5])}, "leave an action"),
        ({"bounds": ([0.0, 0.6], [1.0, 0.9])}, "leave an action"),
        ({"bounds": ([0.0, np.nan], [1.0, 0.5])}, "leave an action"),
        ({"bounds": ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])}, "2 numbers each"),
        ({"bounds": 3.0}, "2 numbers each"),
        ({"bounds": ([0.1], [0.2])}, "2 numbers each"),
        ({"bounds": (0.1, 0.2)}, "2 numbers each"),
        ({"bounds": ("a", "b")}, "2 numbers each"),
        ({"bounds": ([0, 0], [1, 1], [1, 1])}, "2 numbers each"),
    ],
)
def test_wrong_bounds_are_refused_and_cost_no_step(options: dict[str, Any], words: str) -> None:
    agent = builders.make_agent("refined", space=builders.BOX)
    one, other = agent.begin(), agent.begin()
    for state in rows(1)[0]:
        with pytest.raises(AgentError, match=words):
            one.act(state, **options)
        np.testing.assert_array_equal(one.act(state), other.act(state))
    finite = builders.make_agent("avg")
    with pytest.raises(AgentError, match="mask, not bounds"):
        finite.begin().act(rows(1)[0, 0], bounds=([0], [1]))


@pytest.mark.parametrize(
    "damage",
    [
        {"low": [-2.0]},
        {"low": [3.0, 0.0]},
        {"high": [2.0, 1e999]},
        {"high": "wide"},
        {"low": [True, 0.0]},
        {"names": ["a"]},
        {"names": [1, 2]},
        {"kind": "ball"},
    ],
)
def test_damaged_bounds_are_refused_in_one_sentence(tmp_path: Path, damage: dict[str, Any]) -> None:
    folder = save_agent(builders.make_agent("avg", space=builders.BOX), tmp_path / "agent")
    builders.forge(folder)
    load_agent(folder)
    builders.forge(folder, lambda d: d["action_space"].update(damage))
    with pytest.raises(AgentError) as raised:
        load_agent(folder)
    assert str(folder) in str(raised.value) or "agent.json" in str(raised.value)


def test_parts_of_the_other_kind_are_refused() -> None:
    box, rng = builders.BOX, np.random.default_rng(0)
    agent = builders.make_agent("avg", space=box)
    scaler, network = agent.control.scaler, agent.control.network
    open_ended = builders.mlp(rng, [4, 8, 2])
    for control in (
        Control(scaler, network),
        Actor(scaler, open_ended, box),
        Actor(scaler, network, Box.of([-1, -1], [1, 1])),
        Actor(Standardiser.identity(3), network, box),
    ):
        with pytest.raises(AgentError):
            replace(agent, control=control)
    with pytest.raises(AgentError):
        replace(builders.make_agent("avg"), control=agent.control)
    with pytest.raises(AgentError, match="mean and a deviation"):
        NormalProbe(scaler, builders.mlp(rng, [4, 3]))
    with pytest.raises(AgentError, match="cannot be counted"):
        _ = agent.spaces.num_actions

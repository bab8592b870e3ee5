"""Collections whose actions are vectors: exact densities, one hash, interruptions, experts."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sept_offline as so
import simulators
from sept_offline.actions import Box, TruncatedNormal
from sept_offline.collect.expert import ExpertStage
from sept_offline.collect.expert_files import load_expert, train_expert
from sept_offline.collect.recipe import ExpertConfig, Recipe
from sept_offline.collect.rollout import hidden_rows
from sept_offline.engines.local import attempt
from sept_offline.errors import ConfigError
from sept_offline.progress import Silent
from sept_offline.settings import build

KNOWN = {"pendulum": "1d6c0b12a0397071", "point-robot-wind": "1ed71691b1232bcb"}
"""Content hashes of random logs, the same on every processor."""
EXPERT = {
    "rounds": 3,
    "environments": 12,
    "snapshots": 3,
    "updates_per_step": 1,
    "control": {"hidden": [8], "batch_size": 8},
}


def random_recipe(episodes: int, **more: Any) -> dict[str, Any]:
    return {"behaviour": "random", "episodes": episodes, **more}


def as_sent(function: Any, tasks: Any, *_: Any) -> Any:
    """Tasks and results as workers get and give them; test_collect.py starts real ones."""
    for task in tasks:
        sent = pickle.loads(pickle.dumps((function, task)))
        yield pickle.loads(pickle.dumps(attempt(*sent))).outcome(task, 1)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_random_logs_have_one_hash(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sept_offline.engines.local._run_processes", as_sent)
    overrides = random_recipe(300, max_steps=10)
    shared = {"workers": 2}
    for out, more in (("a.h5", {}), ("b.parquet", shared), ("c", {})):
        with so.collect_dataset(name, tmp_path / out, overrides=overrides, seed=1, **more) as data:
            assert data.content_hash.startswith(KNOWN[name])
    assert so.validate(tmp_path / "c").ok
    assert not list(tmp_path.glob("*.partial"))


def test_random_actions_fill_the_box(tmp_path: Path) -> None:
    with so.collect_dataset(
        "point-robot-wind", tmp_path / "a.h5", overrides=random_recipe(80)
    ) as data:
        actions = np.concatenate([episode.actions for episode in data.episodes()])
        densities = np.concatenate([episode.log_densities for episode in data.episodes()])
        assert data.action_space == Box.of([-0.1, -0.1], [0.1, 0.1], ["move_x", "move_y"])
    assert actions.shape == (2000, 2) and actions.dtype == np.float32
    assert np.abs(actions.mean(axis=0)).max() < 0.01 and np.abs(actions).max() > 0.099
    np.testing.assert_allclose(densities, -np.log(0.2 * 0.2), rtol=1e-7)


def pushing(observations: np.ndarray) -> Any:
    return np.tanh(observations[:, 1:2]), [0.5]


class Swinging:
    """Pushes the other way at every step, ever more surely."""

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, observation: Any, action: Any, reward: float | None) -> Any:
        assert (action is None) == (self.steps == 0)
        assert action is None or (action.shape == (1,) and action.dtype == np.float32)
        self.steps += 1
        return np.array([1.5 * (-1) ** self.steps]), 1 / self.steps


def test_densities_are_those_that_acted(tmp_path: Path) -> None:
    overrides = random_recipe(12, max_steps=9, probe_steps=2)
    for policy in (pushing, Swinging):
        data = so.collect_dataset("pendulum", tmp_path / "a.h5", overrides=overrides, policy=policy)
        space = data.action_space
        assert isinstance(space, Box)
        for episode in data.episodes():
            found = episode.log_densities
            assert found is not None
            np.testing.assert_allclose(found[:2], -np.log(4))
            steps = np.arange(1, 10)
            mean, deviation = 1.5 * (-1.0) ** steps[:, None], 1 / steps[:, None]
            if policy is pushing:
                mean, deviation = pushing(episode.observations[:-1])
            acting = TruncatedNormal(space, np.asarray(mean), np.asarray(deviation, dtype=float))
            expected = acting.log_probability(episode.actions)
            np.testing.assert_allclose(found[2:], expected[2:], rtol=1e-6)
        data.close()


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        (lambda seen: np.zeros((len(seen), 1)), "returned ndarray; expected a pair: means"),
        (lambda seen: (np.zeros((len(seen), 2)), 1.0), r"expected means of shape \(12, 1\)"),
        (lambda seen: (np.zeros((len(seen), 1)), 0.0), "not a positive number"),
    ],
)
def test_a_policy_that_fails_is_named(tmp_path: Path, policy: Any, cause: str) -> None:
    with pytest.raises(ConfigError, match=f"Policy .*{cause}"):
        so.collect_dataset(
            "pendulum", tmp_path / "b.h5", overrides=random_recipe(12), policy=policy
        )
    assert not (tmp_path / "b.h5").exists()


def test_an_interrupted_collection_continues(tmp_path: Path) -> None:
    calls = 0

    def stops(observations: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        if calls == 15:
            raise KeyboardInterrupt
        return np.zeros((len(observations), 2)), 0.05

    given: dict[str, Any] = {"overrides": random_recipe(600, max_steps=8), "policy": stops}
    for out in ("a.h5", "b"):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            so.collect_dataset("point-robot-wind", tmp_path / out, **given)
        so.collect_dataset("point-robot-wind", tmp_path / out, resume=True, **given).close()
    whole = so.collect_dataset("point-robot-wind", tmp_path / "c.h5", **given)
    for out in ("a.h5", "b"):
        with so.load_dataset(tmp_path / out) as data:
            assert data.content_hash == whole.content_hash


def stage(seed: int) -> ExpertStage:
    config = build(ExpertConfig, EXPERT)
    return ExpertStage(simulators.family("pendulum"), config, 20, seed)


def test_an_expert_resumed_is_the_expert(tmp_path: Path) -> None:
    whole, half, again = stage(3), stage(3), stage(3)
    whole.advance(3)
    half.advance(2)
    again.restore(half.state())
    again.advance(1)
    for name, tensor in whole.state().tensors.items():
        assert torch.equal(tensor, again.state().tensors[name]), name
    assert whole.memory.actions.shape[1:] == (1,)
    assert whole.memory.actions.abs().max() <= 1
    assert not torch.equal(
        stage(4).learner.state().tensors["member0.average"],
        stage(3).learner.state().tensors["member0.average"],
    )


def test_an_expert_acts_as_it_learned_to() -> None:
    """The logged behaviour prefers the actor's own action: tanh is applied once."""
    family = simulators.family("pendulum")
    space = so.Box.of([-2.0], [2.0])
    trained = stage(3)
    trained.advance(2)
    expert = trained.result()
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(50, 3)).astype(np.float32)
    hidden = np.tile(hidden_rows(family.instances("train")[:1], family.hidden_names), (50, 1))
    network = expert.snapshots[-1].network
    expected = space.decode(network(expert.features(seen, hidden)))
    policy = expert.final(space).policy(seen, hidden, np.zeros(50))
    np.testing.assert_allclose(policy.draw(np.zeros((50, 2))), expected, rtol=1e-5, atol=1e-5)


def test_an_expert_reads_its_own_hidden_parameters(tmp_path: Path) -> None:
    """By their names: a split that lacks one has 0 there, and one that adds one is refused."""
    family = simulators.family("pendulum")
    names = family.hidden_names
    assert names == ["length", "mass", "sign"]
    np.testing.assert_array_equal(hidden_rows([{"mass": 2.0}], names), [[0.0, 2.0, 0.0]])
    splits = {**family.splits, "test": [{"mass": 1.0, "wind": 1.0}]}
    other = dataclasses.replace(family, splits=splits, experts=None)
    recipe = build(Recipe, {"behaviour": "replay", "instances": "test", "expert": EXPERT})
    with pytest.raises(ConfigError, match="'wind', which no training instance has"):
        so.collect_dataset(other, tmp_path / "x.h5", recipe=recipe)


def test_actions_without_noise_have_no_density(tmp_path: Path) -> None:
    recipe = build(Recipe, {"behaviour": "expert", "expert": {**EXPERT, "noise": 0.0}})
    with pytest.raises(ConfigError, match=r"expert\.noise is 0"):
        so.collect_dataset("pendulum", tmp_path / "x.h5", recipe=recipe)
    assert not list(tmp_path.iterdir())


def test_the_history_of_an_expert_has_exact_densities(tmp_path: Path) -> None:
    family = dataclasses.replace(simulators.family("pendulum"), experts=None, train_steps=20)
    recipe = build(
        Recipe, {"behaviour": "replay", "episodes": 24, "max_steps": 8, "expert": EXPERT}
    )
    data = so.collect_dataset(family, tmp_path / "a.h5", recipe=recipe, seed=5)
    space = data.action_space
    expert = load_expert(train_expert(family, recipe, 5, tmp_path, Silent()))
    behaviour = expert.replay(space, recipe.expert.noise)
    hidden = hidden_rows(family.instances("train"), family.hidden_names)
    for instance, row in zip(data.instances, hidden, strict=True):
        for place, episode in enumerate(data.episodes(instance)):
            steps = len(episode.actions)
            policy = behaviour.policy(
                episode.observations[:-1],
                np.tile(row, (steps, 1)),
                np.full(steps, (place + 0.5) / 2),
            )
            expected = policy.log_probability(episode.actions)
            found = episode.log_densities
            assert found is not None
            np.testing.assert_allclose(found[family.probe_steps :], expected[family.probe_steps :])

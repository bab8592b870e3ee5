"""Collecting: the same bytes whatever the workers, honest probabilities, clear refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sept_offline as so
import simulators
from sept_offline.collect.recipe import interleave, load_recipe, parse_behaviour
from sept_offline.errors import ConfigError, DataError, FamilyError, SeptError
from sept_offline.progress import Silent

QUICK = {
    "expert": {
        "rounds": 2,
        "environments": 4,
        "snapshots": 4,
        "updates_per_step": 1,
        "control": {"hidden": [16], "batch_size": 16},
    }
}


def random_recipe(episodes: int = 60, **more: object) -> dict[str, object]:
    return {"behaviour": "random", "episodes": episodes, **more}


SHARDS = random_recipe(600, max_steps=10)
"""Three shards of short episodes."""


class Heard(Silent):
    def __init__(self) -> None:
        self.done: list[float] = []
        self.steps: list[float] = []

    def update(self, done: float, **metrics: float) -> None:
        self.done.append(done)
        self.steps.append(metrics["steps"])

    def check(self, data: so.Dataset) -> None:
        assert self.done == sorted(self.done) and self.steps == sorted(self.steps)
        assert (self.done[-1], self.steps[-1]) == (data.num_episodes, data.num_steps)


def test_one_hash_for_formats_and_workers(tmp_path: Path) -> None:
    """And progress that never goes back, in one process and in two."""
    overrides = SHARDS
    hashes = set()
    for name, workers in (("a.h5", 1), ("b.h5", 2), ("c.parquet", 1)):
        heard = Heard()
        data = so.collect_dataset(
            "navigation2d",
            tmp_path / name,
            overrides=overrides,
            seed=1,
            workers=workers,
            progress=heard,
        )
        heard.check(data)
        hashes.add(data.content_hash)
    assert len(hashes) == 1
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    other = so.collect_dataset("navigation2d", tmp_path / "d.h5", overrides=overrides, seed=2)
    assert other.content_hash not in hashes


def test_an_episode_depends_on_seed_instance_and_number_alone(tmp_path: Path) -> None:
    few = so.collect_dataset("acrobot", tmp_path / "few.h5", overrides=random_recipe(8), seed=3)
    many = so.collect_dataset("acrobot", tmp_path / "many.h5", overrides=random_recipe(40), seed=3)
    for instance in few.instances:
        for a, b in zip(few.episodes(instance), many.episodes(instance), strict=False):
            np.testing.assert_array_equal(a.observations, b.observations)
            np.testing.assert_array_equal(a.actions, b.actions)


def test_logged_numbers_are_the_simulator_s(tmp_path: Path) -> None:
    """Replay a logged episode in the scalar environment: same states, rewards, end."""
    data = so.collect_dataset("navigation2d", tmp_path / "a.h5", overrides=random_recipe(40))
    family = simulators.family("navigation2d")
    for instance, hidden in zip(data.instances, family.instances("train"), strict=True):
        for episode in data.episodes(instance):
            env = family.make(hidden)
            observation, _ = env.reset(seed=episode.seed)
            np.testing.assert_array_equal(observation, episode.observations[0])
            for step, action in enumerate(episode.actions):
                observation, reward, terminated, _, _ = env.step(int(action))
                np.testing.assert_array_equal(observation, episode.observations[step + 1])
                assert reward == episode.rewards[step]
            assert terminated == episode.terminated
            assert episode.truncated == (not terminated)


def test_mixtures_are_crossed_with_instances(tmp_path: Path) -> None:
    overrides = random_recipe(42) | QUICK | {"behaviour": "random:0.5,expert:0.25,replay:0.25"}
    data = so.collect_dataset("navigation2d", tmp_path / "a.h5", overrides=overrides)
    for instance in data.instances:
        names = [episode.behaviour for episode in data.episodes(instance)]
        assert abs(names.count("random") - 10.5) <= 1
        assert abs(names.count("expert") - 5.25) <= 1
        assert abs(names.count("replay") - 5.25) <= 1


@pytest.mark.parametrize("behaviour", ["random", "replay", "medium", "expert"])
def test_probabilities_are_those_that_acted(tmp_path: Path, behaviour: str) -> None:
    overrides = random_recipe(80) | QUICK | {"behaviour": behaviour}
    data = so.collect_dataset("navigation2d", tmp_path / "a.h5", overrides=overrides, seed=4)
    steps = data.steps()
    assert steps.propensities is not None
    np.testing.assert_allclose(steps.propensities.sum(axis=1), 1.0, atol=1e-12)
    taken = steps.propensities[np.arange(len(steps.actions)), steps.actions]
    assert (taken > 0).all()
    # The start of every episode is blind to the instance.
    start = steps.time < simulators.family("navigation2d").probe_steps
    np.testing.assert_array_equal(steps.propensities[start], 0.25)
    # Calibration: the sum of probabilities of each action is the expected count of it.
    for action in range(4):
        expected = steps.propensities[:, action]
        spread = np.sqrt((expected * (1 - expected)).sum())
        assert abs((steps.actions == action).sum() - expected.sum()) < 5 * spread + 1e-9


def test_replay_explores_first_and_exploits_last(tmp_path: Path) -> None:
    overrides = random_recipe(40) | QUICK | {"behaviour": "replay"}
    data = so.collect_dataset("navigation2d", tmp_path / "a.h5", overrides=overrides)
    for instance in data.instances:
        episodes = list(data.episodes(instance))
        first, last = episodes[0].propensities, episodes[-1].propensities
        assert first is not None
        assert last is not None
        assert first[5:].max() < 0.6
        assert last[5:].max() > 0.8


def test_a_policy_of_one_s_own(tmp_path: Path) -> None:
    def eastward(observations: np.ndarray) -> np.ndarray:
        return np.tile([0.0, 0.1, 0.9, 0.0], (len(observations), 1))

    data = so.collect_dataset(
        "navigation2d", tmp_path / "a.h5", overrides=random_recipe(10), policy=eastward
    )
    episode = data.episodes()[0]
    assert episode.behaviour == "eastward"
    assert set(episode.actions[2:]) <= {1, 2}

    def broken(observations: np.ndarray) -> np.ndarray:
        return np.ones((len(observations), 4))

    with pytest.raises(ConfigError, match="sum to 1"):
        so.collect_dataset(
            "navigation2d", tmp_path / "b.h5", overrides=random_recipe(10), policy=broken
        )
    assert not (tmp_path / "b.h5").exists()


def test_a_family_without_a_recipe_or_batch_gets_the_default(tmp_path: Path) -> None:
    shipped = simulators.family("navigation2d")
    plain = so.Family(
        name="plain",
        make=shipped.make,
        splits=shipped.splits,
        train_steps=6,
        test_steps=6,
        probe_steps=2,
        latent_dim=2,
    )
    data = so.collect_dataset(plain, tmp_path / "a.h5")
    assert data.num_episodes == 200
    assert {episode.behaviour for episode in data.episodes()} == {"random"}


def test_shares_are_kept_in_every_prefix() -> None:
    names = interleave({"a": 0.5, "b": 0.3, "c": 0.2}, 100)
    for length in range(1, 101):
        for name, share in (("a", 0.5), ("b", 0.3), ("c", 0.2)):
            assert abs(names[:length].count(name) - share * length) <= 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("expret", "expert"),
        ("random:x", "is not a number"),
        ("random:0", "positive"),
        ("random:1,random:2", "twice"),
    ],
)
def test_wrong_behaviours_are_named(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_behaviour(text)


def test_refusals_leave_nothing_behind(tmp_path: Path) -> None:
    cases: list[tuple[type[SeptError], dict[str, object]]] = [
        (ConfigError, {"overrides": {"episodes": 1}}),
        (ConfigError, {"overrides": {"episode": 10}}),
        (FamilyError, {"overrides": {"instances": "trian"}}),
        (ConfigError, {"recipe": tmp_path / "missing.toml"}),
        (FamilyError, {"policy": "no.such.module:policy"}),
    ]
    for error, arguments in cases:
        with pytest.raises(error):
            so.collect_dataset("navigation2d", tmp_path / "a.h5", **arguments)  # type: ignore[arg-type]
        assert not (tmp_path / "a.h5").exists()
    with pytest.raises(FamilyError, match="navigation2d"):
        so.collect_dataset("navigation2", tmp_path / "a.h5")
    with pytest.raises(ConfigError, match=r"\.h5 or \.parquet"):
        so.collect_dataset("navigation2d", tmp_path / "a.csv")


class Alternating:
    """Takes the actions in turn, by counting its own steps; what it is given is kept."""

    heard: ClassVar[list[list[tuple[Any, ...]]]] = []

    def __init__(self) -> None:
        self.steps = 0
        self.mine: list[tuple[Any, ...]] = []
        self.heard.append(self.mine)

    def __call__(self, observation: Any, action: int | None, reward: float | None) -> Any:
        self.mine.append((observation.copy(), action, reward))
        self.steps += 1
        return np.eye(4)[self.steps % 4]


@pytest.mark.parametrize("make_vec", [True, False])
def test_a_policy_that_remembers(tmp_path: Path, make_vec: bool) -> None:
    family = simulators.family("navigation2d")
    if not make_vec:
        family = dataclasses.replace(family, make_vec=None)
    Alternating.heard.clear()
    overrides = {"episodes": 10, "behaviour": "random", "probe_steps": 3}
    data = so.collect_dataset(family, tmp_path / "a.h5", overrides=overrides, policy=Alternating)
    assert data.metadata.behaviours == ("Alternating",)
    assert len(Alternating.heard) == 10
    for episode, heard in zip(data.episodes(), Alternating.heard, strict=True):
        steps = len(episode.actions)
        wanted = [(step + 1) % 4 for step in range(3, steps)]
        assert episode.actions[3:].tolist() == wanted
        assert episode.propensities is not None
        assert (episode.propensities[:3] == 0.25).all()
        assert (episode.propensities[3:].max(axis=1) == 1).all()
        # It saw every step of its own episode, the probe's too, and nothing of another.
        assert len(heard) == steps
        assert np.array_equal([seen for seen, _, _ in heard], episode.observations[:-1])
        assert [action for _, action, _ in heard] == [None, *episode.actions[:-1].tolist()]
        assert [reward for _, _, reward in heard] == [None, *episode.rewards[:-1].tolist()]


def test_a_policy_among_other_behaviours(tmp_path: Path) -> None:
    overrides = {"episodes": 12, "behaviour": "random:0.5,policy:0.5"}
    data = so.collect_dataset(
        "navigation2d", tmp_path / "a.h5", overrides=overrides, policy=Alternating
    )
    named = [episode.behaviour for episode in data.episodes()]
    assert (named.count("random"), named.count("Alternating")) == (6, 6)
    for instance in data.instances:
        assert len({episode.behaviour for episode in data.episodes(instance)}) == 2
    for episode in data.episodes():
        assert episode.propensities is not None
        sure = (episode.propensities[5:].max(axis=1) == 1).all()
        assert sure == (episode.behaviour == "Alternating")
    with pytest.raises(ConfigError, match="pass it with --policy"):
        so.collect_dataset("navigation2d", tmp_path / "b.h5", overrides=overrides)


def raises(observations: Any) -> Any:
    raise LookupError("no table")


class NotCalled:
    pass


class Short:
    def __call__(self, observation: Any, action: int | None, reward: float | None) -> Any:
        return np.full(3, 1 / 3)


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        (raises, "raised LookupError: no table"),
        (NotCalled, "is a class without __call__; define __call__"),
        (Short, r"returned shape \(3,\); expected probabilities of shape \(4,\)"),
    ],
)
def test_a_policy_that_fails_is_named(tmp_path: Path, policy: Any, cause: str) -> None:
    with pytest.raises(ConfigError, match=f"Policy .*{cause}"):
        so.collect_dataset(
            "navigation2d", tmp_path / "b.h5", overrides=random_recipe(10), policy=policy
        )
    assert not (tmp_path / "b.h5").exists()


def test_progress_moves_within_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; others tell every tenth of a second, which may be never."""
    monkeypatch.setattr("sept_offline.collect.rollout.INTERVAL", 0.0)
    heard = Heard()
    data = so.collect_dataset(
        "navigation2d",
        tmp_path / "a.h5",
        overrides=random_recipe(300),
        progress=heard,
    )
    heard.check(data)
    assert len([done for done in heard.done if 0 < done < 256]) >= 20


class Stopping:
    """Uniform actions, until it is interrupted."""

    left = 15

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return np.full((len(observations), 4), 0.25)


def test_an_unfinished_collection_is_not_thrown_away(tmp_path: Path) -> None:
    policy = Stopping()

    def collect(name: str, **more: Any) -> so.Dataset:
        out = tmp_path / name
        return so.collect_dataset("navigation2d", out, overrides=SHARDS, policy=policy, **more)

    with pytest.raises(KeyboardInterrupt):
        collect("a.h5")
    assert not (tmp_path / "a.h5").exists()
    with pytest.raises(DataError, match="--resume"):
        collect("a.h5")
    with pytest.raises(DataError, match="seed"):
        collect("a.h5", resume=True, seed=9)
    policy.left = 2000
    assert collect("a.h5", resume=True).content_hash == collect("b.h5").content_hash
    assert not list(tmp_path.glob("*.partial"))


def test_recipes_ship_and_stay_within_the_paper_s_episodes() -> None:
    paper = {"navigation2d": 10_000, "navigation2d-switch": 10_000, "acrobot": 4_000, "hiv": 2_500}
    for name, most in paper.items():
        family = simulators.family(name)
        assert family.recipe is not None, name
        recipe = load_recipe(family)
        assert recipe.instances == "train"
        assert recipe.episodes is not None
        assert recipe.episodes <= most


def test_shards_without_their_plan_are_not_taken_over(tmp_path: Path) -> None:
    """A kill while an old collection was being discarded must not leak into another one."""
    target, overrides = tmp_path / "a.h5", SHARDS
    with pytest.raises(KeyboardInterrupt):
        so.collect_dataset("navigation2d", target, overrides=overrides, policy=Stopping(), seed=1)
    assert list((tmp_path / "a.h5.partial").glob("part-*"))
    (tmp_path / "a.h5.partial" / "_plan.json").unlink()
    made = so.collect_dataset("navigation2d", target, overrides=overrides, seed=2)
    clean = so.collect_dataset("navigation2d", tmp_path / "b.h5", overrides=overrides, seed=2)
    assert made.content_hash == clean.content_hash


def test_resume_does_not_pass_off_another_dataset(tmp_path: Path) -> None:
    target = tmp_path / "a.h5"
    made = so.collect_dataset("navigation2d", target, overrides=random_recipe(20), seed=1)
    again = so.collect_dataset(
        "navigation2d", target, overrides=random_recipe(20), seed=1, resume=True
    )
    assert again.content_hash == made.content_hash
    for arguments in ({"seed": 2}, {"seed": 1, "overrides": random_recipe(30)}):
        given = {"overrides": random_recipe(20), **arguments}
        with pytest.raises(DataError, match="another kind"):
            so.collect_dataset("navigation2d", target, resume=True, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting", [{"rounds": 1}, {"snapshots": 0}, {"epsilon_end": 2.0}, {"environments": 0}]
)
def test_wrong_expert_settings_are_named(tmp_path: Path, setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"expert.{next(iter(setting))}"):
        so.collect_dataset(
            "navigation2d",
            tmp_path / "a.h5",
            overrides={"behaviour": "expert", "episodes": 4, "expert": setting},
        )
    assert not list(tmp_path.iterdir())

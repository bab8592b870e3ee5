"""Whatever the episodes: a trip through the formats changes nothing, and alignment holds."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sept_offline as so
from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.data import DatasetWriter, hdf5, parquet
from sept_offline.data.dataset import open_source

Drawn = tuple[ActionSpace, list[dict[str, Any]]]


@st.composite
def datasets(draw: st.DrawFn) -> Drawn:
    size, dim = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    space: ActionSpace = Finite.of(size)
    if draw(st.booleans()):
        low = rng.normal(size=size) * 10.0 ** rng.integers(-30, 30)
        space = Box.of(low, low + np.abs(low) + 1)
    episodes = []
    for steps in draw(st.lists(st.integers(1, 30), min_size=1, max_size=12)):
        terminated = draw(st.booleans())
        known = draw(st.sampled_from(["all", "some", "logged", "none"]))
        policy = space.uniform(steps)
        actions = policy.draw(rng.random((steps, space.draws)))
        propensities = np.array(policy.logged(actions))
        if isinstance(space, Finite):
            propensities = rng.dirichlet(np.ones(size) * 9, size=steps)
            if known == "logged" and size > 1:
                propensities[np.arange(size) != actions[:, None]] = np.nan
        if known == "some":
            propensities[rng.random(steps) < 0.5] = np.nan
        episodes.append(
            {
                "instance": draw(st.sampled_from(["a", "b/ü", "c=1"])),
                "observations": (rng.normal(size=(steps + 1, dim)) * 10.0 ** rng.integers(-30, 30)),
                "actions": actions,
                "rewards": rng.normal(size=steps) * 10.0 ** rng.integers(-200, 200),
                "terminated": terminated,
                "truncated": not terminated,
                "propensities": None if known == "none" else propensities,
                "behaviour": draw(st.sampled_from(["random", "expert", ""])),
                "seed": draw(st.integers(0, 2**63 - 1)),
            }
        )
    return space, episodes


@settings(max_examples=13, deadline=None)
@given(datasets())
def test_there_and_back_again(drawn: Drawn) -> None:
    space, episodes = drawn
    with TemporaryDirectory() as folder:
        first, middle, last = (Path(folder) / name for name in ("a.h5", "b.parquet", "c.h5"))
        with DatasetWriter(first, action_space=space) as writer:
            for episode in episodes:
                writer.append(**episode)
        hashes = {so.convert(first, middle), so.convert(middle, last)}
        assert hashes == {so.load_dataset(first).content_hash}
        assert first.read_bytes() == last.read_bytes()
        assert so.validate(middle).ok
        order = list(dict.fromkeys(e["instance"] for e in episodes))
        ordered = sorted(episodes, key=lambda e: order.index(e["instance"]))
        for path in (middle, last):
            data = so.load_dataset(path)
            for found, wrote in zip(data.episodes(), ordered, strict=True):
                np.testing.assert_array_equal(
                    found.observations, wrote["observations"].astype(np.float32)
                )
                np.testing.assert_array_equal(found.rewards, wrote["rewards"])
                np.testing.assert_array_equal(found.actions, wrote["actions"])
                assert found.actions.dtype == space.dtype
                if found.propensities is not None:
                    unknown = np.full((len(found.actions), *space.propensity_shape), np.nan)
                    logged = wrote["propensities"]
                    np.testing.assert_array_equal(
                        found.propensities, unknown if logged is None else logged
                    )
                assert (found.seed, found.behaviour) == (wrote["seed"], wrote["behaviour"])
                assert found.terminated is wrote["terminated"]
            data.close()


@settings(max_examples=6, deadline=None)
@given(datasets(), st.integers(16, 4000), st.integers(2, 40))
def test_chunks_do_not_show(drawn: Drawn, chunk_bytes: int, group_rows: int) -> None:
    space, episodes = drawn
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        with DatasetWriter(path, action_space=space) as writer:
            for episode in episodes:
                writer.append(**episode)
        source, _ = open_source(path)
        small, groups = Path(folder) / "b.h5", Path(folder) / "c.parquet"
        hdf5.write_hdf5(small, source, source.header, None, chunk_bytes=chunk_bytes)
        parquet.write_parquet(groups, source, source.header, None, group_rows=group_rows)
        source.close()
        expected = so.load_dataset(path)
        for other in (small, groups):
            assert so.validate(other).ok
            data = so.load_dataset(other)
            for n in (1, 7):
                np.testing.assert_array_equal(
                    data.segments(n).observations, expected.segments(n).observations
                )
            np.testing.assert_array_equal(data.steps().rewards, expected.steps().rewards)


@settings(max_examples=6, deadline=None)
@given(datasets())
def test_d3rlpy_gets_every_transition(drawn: Drawn) -> None:
    space, episodes = drawn
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        with DatasetWriter(path, action_space=space) as writer:
            for episode in episodes:
                writer.append(**{**episode, "rewards": np.arange(len(episode["rewards"])) + 0.5})
        data = so.load_dataset(path)
        buffer = data.to_d3rlpy()
        assert buffer.transition_count == data.num_steps
        assert buffer.dataset_info.action_size == space.width
        for found, episode in zip(buffer.episodes, data.episodes(), strict=True):
            steps = len(episode.actions)
            assert found.transition_count == steps
            for t in range(steps):
                transition = buffer.transition_picker(found, t)
                np.testing.assert_array_equal(transition.observation, episode.observations[t])
                np.testing.assert_array_equal(transition.action, np.atleast_1d(episode.actions[t]))
                assert transition.reward[0] == np.float32(episode.rewards[t])
                ends = episode.terminated and t == steps - 1
                assert transition.terminal == float(ends)
                if not ends:
                    np.testing.assert_array_equal(
                        transition.next_observation, episode.observations[t + 1]
                    )

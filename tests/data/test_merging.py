"""Several datasets of one system as one: what is kept, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.data import DatasetWriter, Episode, validate
from sept_offline.errors import DataError
from sept_offline.progress import Silent

NUM_ACTIONS, DIM = 4, 3
HIDDEN = {f"train-{i}": {"m": float(i)} for i in range(3)}
COMPARED = ("observations", "actions", "rewards", "terminated", "truncated", "behaviour", "seed")


def write(path: Path, seed: int, instances: int = 3, *, known: bool = True, **options: Any) -> Path:
    """A file of 12 random episodes, with or without known probabilities."""
    rng = np.random.default_rng(seed)
    with DatasetWriter(path, num_actions=NUM_ACTIONS, **options) as writer:
        for number in range(12):
            steps = int(rng.integers(4, 12))
            terminated = bool(rng.integers(2))
            writer.append(
                instance=f"train-{number % instances}",
                observations=rng.normal(size=(steps + 1, DIM)),
                actions=rng.integers(NUM_ACTIONS, size=steps),
                rewards=rng.normal(size=steps),
                terminated=terminated,
                truncated=not terminated,
                propensities=rng.dirichlet(np.full(NUM_ACTIONS, 5.0), size=steps)
                if known
                else None,
                behaviour=("random", "expert")[int(rng.integers(2))],
                seed=100 + number,
            )
    return path


def same(one: Episode, other: Episode) -> bool:
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in COMPARED)


def test_every_episode_is_there_in_order(tmp_path: Path, suffix: str) -> None:
    first = write(tmp_path / "a.h5", 0)
    second = write(tmp_path / "b.parquet", 1, instances=4)
    target = tmp_path / f"c.{suffix}"
    with so.merge([first, second], target) as merged:
        assert merged.instances == [f"train-{i}" for i in range(4)]
        assert validate(target).ok
        for name in merged.instances:
            wanted = [
                episode
                for path in (first, second)
                for episode in so.load_dataset(path).episodes()
                if episode.instance == name
            ]
            found = merged.episodes(name)
            assert len(found) == len(wanted)
            assert all(same(one, other) for one, other in zip(found, wanted, strict=True))
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one.propensities, other.propensities)


def test_the_same_sources_give_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    first, second = write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1)
    other = tmp_path / "b.parquet"
    so.convert(second, other)
    made = [tmp_path / f"{name}.{suffix}" for name in ("c", "d", "e")]
    for target, last in zip(made, (second, second, other), strict=True):
        so.merge([first, last], target).close()
    assert made[0].read_bytes() == made[1].read_bytes() == made[2].read_bytes()


def test_formats_agree_in_content(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1)]
    hashes = {so.merge(paths, tmp_path / name).content_hash for name in ("c.h5", "c.parquet")}
    assert len(hashes) == 1


def test_unknown_probabilities_stay_unknown(tmp_path: Path, suffix: str) -> None:
    paths = [write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1, known=False)]
    with so.merge(paths, tmp_path / f"c.{suffix}") as merged:
        known = [not np.isnan(episode.propensities).any() for episode in merged.episodes("train-0")]
        assert known == [True] * 4 + [False] * 4
    other = write(tmp_path / "d.h5", 2, known=False)
    with so.merge([paths[1], other], tmp_path / "e.h5") as merged:
        assert not merged.has_propensities


def test_hidden_parameters_are_joined(tmp_path: Path, suffix: str) -> None:
    first = write(tmp_path / "a.h5", 0, hidden=HIDDEN)
    second = write(tmp_path / "b.h5", 1, instances=4)
    third = write(tmp_path / "c.h5", 2, hidden={name: {"k": 5.0} for name in HIDDEN})
    with so.merge([first, second, third], tmp_path / f"d.{suffix}") as merged:
        assert merged.hidden is not None and merged.hidden.names == ("m", "k")
        assert merged.hidden[1] == {"m": 1.0, "k": 5.0}
        assert np.isnan(merged.hidden.values[3]).all()
    with so.merge([second, write(tmp_path / "e.h5", 3)], tmp_path / "f.h5") as merged:
        assert merged.hidden is None


def test_contradicting_instances_are_refused_or_kept_apart(tmp_path: Path) -> None:
    first = write(tmp_path / "a.h5", 0, hidden=HIDDEN)
    other = {name: {"m": row["m"] + (name == "train-1")} for name, row in HIDDEN.items()}
    second = write(tmp_path / "b.h5", 1, hidden=other)
    target = tmp_path / "c.h5"
    with pytest.raises(DataError, match=r"'m' of instance 'train-1' is 1.0 .* 2.0 .*--separate"):
        so.merge([first, second], target)
    assert not target.exists()
    with so.merge([first, second], target, separate=True) as merged:
        assert merged.instances == [f"{f}/train-{i}" for f in "ab" for i in range(3)]
        assert merged.hidden is not None and merged.hidden[4] == {"m": 2.0}


def test_separate_files_of_one_name(tmp_path: Path) -> None:
    paths = []
    for seed, folder in enumerate(("x", "y")):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "a.h5", seed))
    with so.merge(paths, tmp_path / "c.h5", separate=True) as merged:
        assert len(merged.instances) == 6


def test_metadata(tmp_path: Path) -> None:
    names = [f"o{i}" for i in range(DIM)]
    first = write(
        tmp_path / "a.h5",
        0,
        family="pump",
        root_seed=3,
        probe_steps=5,
        observation_names=names,
        extra={"latent_dim": 2, "note": "a"},
        family_arguments={"max_episode_steps": 50, "kind": 1},
    )
    second = write(
        tmp_path / "b.h5",
        1,
        root_seed=4,
        probe_steps=3,
        extra={"latent_dim": 2, "note": "b"},
        family_arguments={"max_episode_steps": 40, "kind": 1},
    )
    with so.merge([first, second], tmp_path / "c.h5") as merged:
        meta = merged.metadata
        assert (meta.family, meta.root_seed, meta.probe_steps) == ("pump", None, 3)
        assert meta.observation_names == tuple(names)
        assert meta.family_arguments == {"kind": 1}
        assert meta.extra["latent_dim"] == 2 and "note" not in meta.extra
        assert [entry["episodes"] for entry in meta.extra["merged"]] == [12, 12]
        assert meta.extra["merged"][0]["content_hash"] == so.load_dataset(first).content_hash


@pytest.mark.parametrize(
    ("mine", "theirs", "cause"),
    [
        ({"family": "pump"}, {"family": "valve"}, "family is 'pump' .* 'valve'"),
        (
            {"action_names": list("abcd")},
            {"action_names": list("abdc")},
            "of different systems: action_names",
        ),
        ({"observation_names": list("abc")}, {"observation_names": list("abd")}, "observation_nam"),
    ],
)
def test_other_systems_are_refused(
    tmp_path: Path, mine: dict[str, Any], theirs: dict[str, Any], cause: str
) -> None:
    silent = write(tmp_path / "s.h5", 2)
    paths = [write(tmp_path / "a.h5", 0, **mine), silent, write(tmp_path / "b.h5", 1, **theirs)]
    with pytest.raises(DataError, match=cause):
        so.merge(paths, tmp_path / "c.h5")
    assert not (tmp_path / "c.h5").exists()


@pytest.mark.parametrize(("actions", "dim", "cause"), [(3, DIM, "the action space"), (4, 2, "obs")])
def test_other_sizes_are_refused(tmp_path: Path, actions: int, dim: int, cause: str) -> None:
    other = tmp_path / "b.h5"
    with DatasetWriter(other, num_actions=actions) as writer:
        writer.append(
            instance="train-0",
            observations=np.zeros((3, dim)),
            actions=[0, 1],
            rewards=[0.0, 0.0],
            terminated=True,
            truncated=False,
        )
    with pytest.raises(DataError, match=f"of different systems: {cause}"):
        so.merge([write(tmp_path / "a.h5", 0), other], tmp_path / "c.h5")


def test_wrong_use(tmp_path: Path) -> None:
    first = write(tmp_path / "a.h5", 0)
    copy = tmp_path / "copy.parquet"
    so.convert(first, copy)
    for paths, target, cause in (
        ([first], "c.h5", "at least two"),
        ([first, copy], "c.h5", "contain the same episodes"),
        ([first, write(tmp_path / "b.h5", 1)], "a.h5", "one of the datasets to merge"),
        ([first, tmp_path / "b.h5"], "c.csv", r"\.h5 or \.parquet"),
        ([first, tmp_path / "nowhere.h5"], "c.h5", "nowhere"),
    ):
        with pytest.raises(DataError, match=cause):
            so.merge(paths, tmp_path / target)
    assert so.load_dataset(first).num_episodes == 12


def test_edited_content_is_refused(tmp_path: Path) -> None:
    import h5py

    first, second = write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1)
    with h5py.File(second, "r+") as file:
        found: list[Any] = []
        file.visititems(lambda name, item: found.append(item) if "rewards" in name else None)
        found[0][0] = 99.0
    with pytest.raises(DataError, match=r"b\.h5"):
        so.merge([first, second], tmp_path / "c.h5")
    assert not (tmp_path / "c.h5").exists()


def test_progress_counts_episodes(tmp_path: Path) -> None:
    class Heard(Silent):
        total, done = 0.0, 0.0

        def start(self, title: str, total: float, unit: str = "") -> None:
            self.total = total

        def update(self, done: float, **metrics: float) -> None:
            self.done = done

    heard = Heard()
    so.merge(
        [write(tmp_path / "a.h5", 0), write(tmp_path / "b.h5", 1)],
        tmp_path / "c.h5",
        progress=heard,
    )
    assert heard.done == heard.total == 24


@pytest.mark.parametrize("first", ["named", "unnamed"])
def test_a_box_without_names_takes_those_of_the_other(tmp_path: Path, first: str) -> None:
    rng = np.random.default_rng(0)
    for name, given in (("named", ["x", "y"]), ("unnamed", None)):
        box = so.Box.of([-1.0, -1.0], [1.0, 1.0], given)
        with so.DatasetWriter(tmp_path / f"{name}.h5", action_space=box) as writer:
            writer.append(
                instance="a",
                observations=rng.normal(size=(4, 2)),
                actions=rng.uniform(-1, 1, size=(3, 2)),
                rewards=np.zeros(3),
                terminated=False,
                truncated=True,
            )
    paths = sorted(tmp_path.glob("*.h5"), key=lambda path: path.stem != first)
    with so.merge(paths, tmp_path / "both.h5") as data:
        assert data.action_space.names == data.metadata.action_names == ("x", "y")
        assert data.num_episodes == 2

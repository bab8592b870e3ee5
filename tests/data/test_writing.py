"""The writer: what it refuses, and that a file is whole or absent whatever happens."""

from __future__ import annotations

import errno
import re
import resource
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Discrete

import sept_offline as so
from sept_offline.data import DatasetWriter
from sept_offline.errors import DataError
from tests.processes import run, start


def test_equal_content_gives_equal_bytes(tmp_path: Path, episodes: Any, write: Any) -> None:
    first = [write(tmp_path / name, episodes) for name in ("one.h5", "one.parquet")]
    time.sleep(1.1)  # A time of writing in the file would show as another second.
    second = [write(tmp_path / name, episodes) for name in ("two.h5", "two.parquet")]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_both_formats_share_the_hash(tmp_path: Path, episodes: Any, write: Any) -> None:
    one = so.load_dataset(write(tmp_path / "a.h5", episodes))
    two = so.load_dataset(write(tmp_path / "a.parquet", episodes))
    assert one.content_hash == two.content_hash
    assert re.fullmatch("[0-9a-f]{64}", one.content_hash)


def test_a_writer_like_a_dataset_makes_a_copy_of_it(
    tmp_path: Path, episodes: Any, write: Any
) -> None:
    options = {"family": "f", "root_seed": 3, "probe_steps": 1, "extra": {"a": [1]}}
    data = so.load_dataset(write(tmp_path / "a.h5", episodes, **options))
    hidden = None
    if data.hidden is not None:
        hidden = {name: data.hidden[row] for row, name in enumerate(data.instances)}
    with DatasetWriter.like(data, tmp_path / "b.h5", hidden=hidden) as writer:
        for episode in data.episodes():
            writer.copy(episode)
    assert so.load_dataset(tmp_path / "b.h5").content_hash == data.content_hash
    with DatasetWriter.like(data, tmp_path / "c.h5", family="g") as writer:
        writer.copy(data.episodes()[0], instance="only")
    part = so.load_dataset(tmp_path / "c.h5")
    assert (part.metadata.family, part.metadata.root_seed) == ("g", 3)
    assert part.instances == ["only"] and part.hidden is None


def test_versions_do_not_reach_the_hash(tmp_path: Path, episodes: Any, write: Any) -> None:
    one = so.load_dataset(write(tmp_path / "a.h5", episodes))
    two = so.load_dataset(write(tmp_path / "b.h5", episodes, versions={"numpy": "9.9"}))
    assert two.metadata.versions == {"numpy": "9.9"}
    assert one.content_hash == two.content_hash


@pytest.mark.parametrize("change", ["reward", "seed", "behaviour", "family", "order"])
def test_content_reaches_the_hash(tmp_path: Path, episodes: Any, write: Any, change: str) -> None:
    before = so.load_dataset(write(tmp_path / "a.h5", episodes)).content_hash
    options = {"family": "other"} if change == "family" else {}
    changed = [dict(e) for e in episodes]
    if change == "reward":
        changed[3]["rewards"] = np.nextafter(changed[3]["rewards"], 1e9)
    elif change == "seed":
        changed[3]["seed"] = 0
    elif change == "behaviour":
        changed[3]["behaviour"] = "another"
    elif change == "order":
        changed[0], changed[3] = changed[3], changed[0]
    assert so.load_dataset(write(tmp_path / "b.h5", changed, **options)).content_hash != before


def test_instances_in_the_order_given(
    tmp_path: Path, suffix: str, episodes: Any, write: Any
) -> None:
    order = ["train-2", "unused", "train-0", "train-1"]
    data = so.load_dataset(write(tmp_path / f"a.{suffix}", episodes, instances=order))
    assert data.instances == ["train-2", "train-0", "train-1"]
    shuffled = sorted(episodes, key=lambda e: (e["seed"] % 3, e["seed"]))
    again = so.load_dataset(write(tmp_path / f"b.{suffix}", shuffled, instances=order))
    assert again.content_hash == data.content_hash
    with pytest.raises(DataError, match="not among the writer's instances"):
        write(tmp_path / "c.h5", episodes, instances=["train-0"])


def test_truncated_is_false_where_terminated_is_true(
    tmp_path: Path, suffix: str, episodes: Any, write: Any
) -> None:
    both = [{**e, "terminated": True, "truncated": True} for e in episodes]
    steps = so.load_dataset(write(tmp_path / f"a.{suffix}", both)).steps()
    assert steps.terminations.sum() == 20
    assert not steps.truncations.any()


BAD = {
    "T observations": ({"observations": np.zeros((5, 3))}, "observation after the last step"),
    "observation width": ({"observations": np.zeros((6, 2))}, r"expected shape \(6, 3\)"),
    "flat observations": ({"observations": np.zeros(6)}, "expected shape"),
    "observation NaN": ({"observations": np.full((6, 3), np.nan)}, "step 0.*finite"),
    "observation beyond float32": ({"observations": np.full((6, 3), 1e300)}, "finite"),
    "complex numbers": ({"rewards": np.full(5, 1 + 2j)}, "found complex numbers"),
    "words": ({"rewards": ["a"] * 5}, "array of numbers"),
    "reward inf": ({"rewards": [0, 0, 0, np.inf, 0]}, "rewards of .*step 3"),
    "reward count": ({"rewards": np.zeros(4)}, r"rewards.*expected shape \(5,\)"),
    "action high": ({"actions": np.array([0, 1, 4, 0, 0])}, "step 2: expected 0 … 3, found 4"),
    "action float": ({"actions": np.zeros(5)}, "integers"),
    "no step": ({"actions": np.zeros(0, int), "observations": np.zeros((1, 3))}, "no step"),
    "no end": ({"terminated": False, "truncated": False}, "neither terminated nor truncated"),
    "flags of all steps": (
        {"terminated": [False] * 5, "truncated": True},
        r"terminated of .* expected True or False, for the last step, found \[False",
    ),
    "a word as a flag": ({"truncated": "no"}, "truncated of .* True or False, .* found 'no'"),
    "NaN as a flag": ({"terminated": np.nan}, "terminated of .* True or False"),
    "probabilities' shape": ({"propensities": np.ones((5, 3)) / 3}, r"\(5, 4\)"),
    "probabilities' sum": ({"propensities": np.full((5, 4), 0.3)}, "sum to 1"),
    "negative probability": ({"propensities": [[0.5, 0.7, -0.2, 0.0]] * 5}, "at least 0"),
    "impossible action": ({"propensities": [[0.0, 0.5, 0.5, 0.0]] * 5}, "above 0"),
    "half-known row": ({"propensities": [[np.nan, 0.5, 0.5, 0.0]] * 5}, "all but the logged"),
    "another action alone": ({"propensities": [[np.nan, 0.5, np.nan, np.nan]] * 5}, "sum to 1"),
    "a chance above 1": ({"propensities": [[1.5, np.nan, np.nan, np.nan]] * 5}, "at most 1"),
    "seed": ({"seed": -1}, "seed"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_episodes_are_refused(tmp_path: Path, case: str) -> None:
    change, message = BAD[case]
    good: dict[str, Any] = {
        "instance": "x",
        "observations": np.zeros((6, 3)),
        "actions": np.zeros(5, dtype=int),
        "rewards": np.zeros(5),
        "terminated": True,
        "truncated": False,
    }
    with (
        pytest.raises(DataError, match=message) as caught,
        DatasetWriter(tmp_path / "a.h5", num_actions=4, observation_dim=3) as writer,
    ):
        writer.append(**good)
        writer.append(**{**good, **change})
    assert "episode 1 of instance 'x'" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_other_refusals(tmp_path: Path, episodes: Any, write: Any) -> None:
    for options, message in (
        ({"instances": [1, "1"]}, "names an instance twice"),
        ({"hidden": {"train-0": {"z": 1.0}}}, "no entry for the instance 'train-1'"),
        ({"hidden": {f"train-{i}": {"z": np.inf} for i in range(3)}}, "is infinite"),
        ({"hidden": {f"train-{i}": {"z": "ice"} for i in range(3)}}, "'z'] is 'ice'; .* a number"),
        ({"hidden": {f"train-{i}": {"z": 10**400} for i in range(3)}}, "expected a number"),
        ({"hidden": {f"train-{i}": None for i in range(3)}}, "is None; expected a dict"),
        ({"family": 1}, "family is 1; expected its name"),
        ({"num_actions": 4.0}, "num_actions: expected a whole number"),
        ({"num_actions": None, "action_space": Discrete(4)}, r"is Discrete\(4\); .* num_actions"),
        ({"extra": {"x": object()}}, "extra must contain JSON-serialisable values"),
        ({"action_names": ["one"]}, "action_names has 1 names, expected 4"),
        ({"instances": ["a", "a"]}, "twice"),
    ):
        with pytest.raises(DataError, match=message):
            write(tmp_path / "a.h5", episodes, **options)
    with pytest.raises(DataError, match="no episode was appended"):
        write(tmp_path / "a.h5", [])
    with pytest.raises(DataError, match=r"a name that ends in \.h5 or \.parquet"):
        write(tmp_path / "a.csv", episodes)
    with pytest.raises(DataError, match="no directory"):
        write(tmp_path / "gone" / "a.h5", episodes)
    assert list(tmp_path.iterdir()) == []


def test_hidden_parameters_are_checked_with_each_episode(tmp_path: Path, episodes: Any) -> None:
    """Not in the end, when all episodes would be lost."""
    first, *others = episodes
    hidden = {first["instance"]: {"z": 1.0}}
    with DatasetWriter(tmp_path / "a.h5", num_actions=4, hidden=hidden) as writer:
        writer.append(**first)
        for episode in others:
            if episode["instance"] != first["instance"]:
                with pytest.raises(DataError, match="no entry for the instance"):
                    writer.append(**episode)
    assert so.load_dataset(tmp_path / "a.h5").num_episodes == 1


def test_names_that_cannot_be_encoded_are_refused(
    tmp_path: Path, suffix: str, episodes: Any
) -> None:
    """They come from names of files; a dataset that contained one could not be opened again."""
    name, path, first = "pump-\udc80", tmp_path / f"a.{suffix}", episodes[0]
    for arguments in (
        {"family": name},
        {"observation_names": [name, "b", "c"]},
        {"action_names": [name, "b", "c", "d"]},
        {"instances": [name]},
        {"hidden": {first["instance"]: {name: 1.0}}},
    ):
        with (
            pytest.raises(DataError, match="not valid Unicode"),
            DatasetWriter(path, num_actions=4, **arguments) as writer,
        ):
            writer.append(**first)
    with pytest.raises(DataError, match="extra must contain JSON"):
        DatasetWriter(path, num_actions=4, extra={"site": name})
    with DatasetWriter(path, num_actions=4) as writer:
        writer.append(**first)
        for change in ({"instance": name}, {"behaviour": name}):
            with pytest.raises(DataError, match="not valid Unicode"):
                writer.append(**first | change)
    assert so.load_dataset(path).num_episodes == 1


@pytest.mark.parametrize("flag", [True, np.True_, 1, np.array([True]), 1.0])
def test_flags_of_any_kind_of_number(tmp_path: Path, episodes: Any, flag: Any) -> None:
    with DatasetWriter(tmp_path / "a.h5", num_actions=4) as writer:
        writer.append(**episodes[0] | {"terminated": flag, "truncated": None})
    episode = so.load_dataset(tmp_path / "a.h5").episodes()[0]
    assert episode.terminated and not episode.truncated


def test_an_error_keeps_the_old_file(
    tmp_path: Path, suffix: str, episodes: Any, write: Any
) -> None:
    path = write(tmp_path / f"a.{suffix}", episodes)
    old = path.read_bytes()
    with (
        pytest.raises(RuntimeError),
        DatasetWriter(path, num_actions=4) as writer,
    ):
        writer.append(**episodes[0])
        raise RuntimeError
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_second_writer_is_refused(tmp_path: Path, suffix: str, episodes: Any, write: Any) -> None:
    path = tmp_path / f"a.{suffix}"
    with DatasetWriter(path, num_actions=4) as writer:
        with pytest.raises(DataError, match="Another writer is at work"):
            DatasetWriter(path, num_actions=4)
        writer.append(**episodes[0])
    assert so.load_dataset(path).num_episodes == 1
    write(path, episodes)
    assert so.load_dataset(path).num_episodes == 20
    with pytest.raises(DataError, match="closed"):
        writer.append(**episodes[0])


CHILD = """
import sys, numpy as np
from sept_offline.data import DatasetWriter
rng = np.random.default_rng(0)
from sept_offline.actions import Box, Finite
space = {"finite": Finite.of(2), "box": Box.of([-1, 0], [1, 1])}[sys.argv[2]]
with DatasetWriter(sys.argv[1], action_space=space, observation_dim=3) as writer:
    print("open", flush=True)
    for i in range(200):
        writer.append(instance=f"i{i % 2}", observations=rng.normal(size=(101, 3)),
                      actions=space.uniform(100).draw(rng.random((100, space.draws))),
                      rewards=rng.normal(size=100),
                      terminated=False, truncated=True)
    print("closing", flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("moment", "kind"), [("open", "finite"), ("closing", "finite"), ("closing", "box")]
)
def test_a_killed_writer_leaves_the_old_file_or_none(
    tmp_path: Path, suffix: str, moment: str, kind: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    rng = np.random.default_rng(0)
    for delay in rng.uniform(0, 0.03, size=2):
        child = start(path, kind, code=CHILD, stderr=None)
        assert child.stdout is not None
        while child.stdout.readline().strip() != moment:
            pass
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if path.exists():
            assert so.validate(path).ok
            path.unlink()
    assert run(path, kind, code=CHILD).returncode == 0
    assert so.validate(path).ok
    assert list(tmp_path.iterdir()) == [path], "the next writer clears leftovers away"


class FullDisk:
    """A file that takes nothing more."""

    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        pass


def test_an_episode_written_in_part_ends_the_writer(tmp_path: Path, episodes: Any) -> None:
    """A caller that goes on after the error must not get rows of other steps."""
    with (
        pytest.raises(DataError, match=r"Cannot write.*No space left"),
        DatasetWriter(tmp_path / "a.h5", num_actions=4) as writer,
    ):
        writer.append(**episodes[0])
        assert writer._spool is not None
        files: Any = writer._spool._files
        rewards, files["rewards"] = files["rewards"], FullDisk()
        with pytest.raises(DataError, match="Cannot write"):
            writer.append(**episodes[1])
        files["rewards"] = rewards
        with pytest.raises(DataError, match="is closed"):
            writer.append(**episodes[2])
    rewards.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error(tmp_path: Path, episodes: Any) -> None:
    """A limit on file size stands in for the disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with (
            pytest.raises(DataError, match="Cannot write"),
            DatasetWriter(tmp_path / "a.h5", num_actions=4) as writer,
        ):
            for _ in range(20_000):
                writer.append(**episodes[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []

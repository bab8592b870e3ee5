"""Datasets whose actions are vectors in a box: format version 2, in every form of file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from sept_offline.actions import Box, Finite, TruncatedNormal
from sept_offline.data.filesystems import Folder
from sept_offline.data.parquet import join_parts, write_part
from sept_offline.data.records import Metadata
from sept_offline.data.source import Header
from sept_offline.data.validation import check_episode
from sept_offline.data.writer import publish_parts
from sept_offline.errors import DataError

BOX = Box.of([-1.0, 0.0], [1.0, 0.3], names=["pump", "valve"])


def make_episode(number: int, steps: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    policy = BOX.uniform(steps)
    actions = policy.draw(rng.random((steps, BOX.draws)))
    return {
        "instance": f"train-{number % 2}",
        "observations": rng.normal(size=(steps + 1, 3)),
        "actions": actions,
        "rewards": rng.normal(size=steps),
        "terminated": number % 3 == 0,
        "truncated": number % 3 != 0,
        "log_densities": policy.logged(actions),
        "behaviour": "random",
        "seed": number,
    }


def write_box(path: Path, count: int = 6, **changes: Any) -> Path:
    hidden = {"train-0": {"mass": 1.0}, "train-1": {"mass": 2.0}}
    with so.DatasetWriter(path, action_space=BOX, hidden=hidden, probe_steps=2) as writer:
        for number in range(count):
            writer.append(**(make_episode(number, 4 + number) | changes))
    return path


def write_parts(folder: Path, episodes: list[dict[str, Any]]) -> Path:
    """The same episodes as a partitioned directory, two in a part."""
    episodes = sorted(episodes, key=lambda one: str(one["instance"]))
    folder.mkdir()
    place = Folder(folder)
    header = Header(BOX, 3, ("train-0", "train-1"), Metadata(behaviours=("random",)), None)
    code = np.array([int(one["instance"][-1]) for one in episodes])
    behaviour = np.zeros(len(episodes), dtype=np.int64)
    seed = np.array([one["seed"] for one in episodes])
    parts = []
    for first in range(0, len(episodes), 2):
        checked = []
        for one in episodes[first : first + 2]:
            passed = {k: v for k, v in one.items() if k not in ("instance", "behaviour")}
            logged = passed.pop("log_densities")
            checked.append(check_episode(place="", space=BOX, dim=3, propensities=logged, **passed))
        some = slice(first, first + 2)
        part = write_part(
            place,
            f"part-{first}.parquet",
            header,
            checked,
            number=np.arange(first, first + 2),
            instance=code[some],
            behaviour=behaviour[some],
            seed=seed[some],
        )
        parts.append(part)
    manifest = join_parts(header, parts, instance=code, behaviour=behaviour, seed=seed)
    publish_parts(place, manifest, None, lambda: None)
    return folder


@pytest.fixture
def box(tmp_path: Path, suffix: str) -> Path:
    return write_box(tmp_path / f"box.{suffix}")


def test_vectors_come_back(box: Path) -> None:
    with so.load_dataset(box) as data:
        assert data.action_space == BOX
        assert data.metadata.format_version == 2
        assert data.metadata.action_names == ("pump", "valve")
        by_seed = {episode.seed: episode for episode in data.episodes()}
        for number in range(6):
            wrote, episode = make_episode(number, 4 + number), by_seed[number]
            assert episode.actions.dtype == np.float32
            np.testing.assert_array_equal(episode.actions, wrote["actions"])
            np.testing.assert_array_equal(episode.log_densities, wrote["log_densities"])
            assert episode.log_densities is episode.propensities
        segments, steps = data.segments(3), data.steps()
        assert segments.actions.shape == (6, 3, 2)
        assert segments.propensities is not None
        assert segments.propensities.shape == (6, 3)
        assert steps.actions.shape == (data.num_steps, 2)
        assert steps.propensities is not None
        assert steps.propensities.shape == (data.num_steps,)
        np.testing.assert_array_equal(steps.actions[:3], segments.actions[0])
        np.testing.assert_array_equal(data.columns("actions")["actions"], steps.actions)
        with pytest.raises(DataError, match="this works for discrete actions only"):
            data.num_actions  # noqa: B018
    assert so.validate(box).ok
    assert not so.validate(box).warnings


def test_numbered_actions_have_no_density(tmp_path: Path, episodes: Any, write: Any) -> None:
    with so.load_dataset(write(tmp_path / "a.h5", episodes)) as data:
        assert data.action_space == Finite.of(4)
        assert data.episodes()[0].log_densities is None
        assert data.metadata.format_version == 1


def test_one_hash_for_all_forms(tmp_path: Path) -> None:
    every = [make_episode(number) for number in range(6)]
    paths = [tmp_path / "a.h5", tmp_path / "b.parquet"]
    for path in paths:
        with so.DatasetWriter(path, action_space=BOX, versions={}) as writer:
            for episode in every:
                writer.append(**episode)
    parts = write_parts(tmp_path / "parts", every)
    forms = [*paths, parts]
    assert len({so.load_dataset(path).content_hash for path in forms}) == 1
    for path in forms:
        assert so.validate(path).ok
        found = so.load_dataset(path).steps()
        np.testing.assert_array_equal(found.actions, so.load_dataset(paths[0]).steps().actions)
    for path in forms:
        so.convert(path, tmp_path / "again.h5")
        assert (tmp_path / "again.h5").read_bytes() == paths[0].read_bytes()


def test_other_tools_may_rewrite_rows(tmp_path: Path) -> None:
    path = write_box(tmp_path / "a.parquet")
    before = so.load_dataset(path).steps()
    pq.write_table(pq.read_table(path), path)
    np.testing.assert_array_equal(so.load_dataset(path).steps().actions, before.actions)
    table = pq.read_table(path).replace_schema_metadata({})
    pq.write_table(table, path)
    with pytest.raises(DataError, match="no header with their bounds"):
        so.load_dataset(path)


def test_bounds_are_those_that_float32_holds(tmp_path: Path) -> None:
    box = Box(("dose",), (-0.1,), (0.1,))
    with so.DatasetWriter(tmp_path / "a.h5", action_space=box) as writer:
        episode = make_episode(0, 2) | {"actions": [[0.1], [-0.1]]}
        writer.append(**episode)
    with so.load_dataset(tmp_path / "a.h5") as data:
        assert data.action_space == Box.of([-0.1], [0.1], ["dose"])
    assert so.validate(tmp_path / "a.h5").ok


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.zeros((5, 3))}, r"actions of .*expected shape \(5, 2\), found \(5, 3\)"),
        ({"actions": np.zeros(5)}, r"expected shape \(5, 2\), found \(5,\)"),
        ({"actions": np.zeros((0, 2))}, "the episode has no steps"),
        ({"actions": 3.0}, "the episode has no steps"),
        ({"actions": [["a", "b"]] * 5}, "actions of .*expected an array of numbers"),
        ({"actions": [[0, 0.1], [0, np.nan]] + [[0, 0]] * 3}, "step 1: expected finite numbers"),
        ({"actions": [[0, 0.1]] * 4 + [[1.5, 0]]}, r"step 4: expected 2 numbers from \[-1.0"),
        ({"log_densities": np.zeros((5, 2))}, r"propensities of .*expected shape \(5,\)"),
        ({"log_densities": [0, 0, np.inf, 0, 0]}, "step 2: expected finite log-densities"),
        ({"log_densities": [0, -np.inf, 0, 0, 0]}, "step 1: expected finite log-densities"),
        ({"propensities": np.zeros(5)}, "one of the two for continuous ones"),
    ],
)
def test_a_writer_refuses(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with (
        pytest.raises(DataError, match=message),
        so.DatasetWriter(tmp_path / "a.h5", action_space=BOX) as writer,
    ):
        writer.append(**(make_episode(0, 5) | changes))
    assert not list(tmp_path.iterdir())


def test_spaces_that_a_writer_refuses(tmp_path: Path, episodes: Any) -> None:
    path = tmp_path / "a.h5"
    for arguments in ({}, {"num_actions": 2, "action_space": BOX}):
        with pytest.raises(DataError, match="Pass num_actions for discrete actions"):
            so.DatasetWriter(path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="finite bounds"):
        so.DatasetWriter(path, action_space=Box(("a",), (0.0,), (1e300,)))
    with pytest.raises(DataError, match="action_names has 1 names, expected 2"):
        so.DatasetWriter(path, action_space=BOX, action_names=["one"])
    with (
        pytest.raises(DataError, match="log_densities are the propensities of continuous actions"),
        so.DatasetWriter(path, num_actions=4) as writer,
    ):
        writer.append(**episodes[0], log_densities=np.zeros(len(episodes[0]["actions"])))


def test_the_space_of_a_dataset_writes_the_same_bytes(
    tmp_path: Path, episodes: Any, write: Any
) -> None:
    """Numbered actions keep version 1 whichever way they are passed to the writer."""
    one = write(tmp_path / "a.h5", episodes)
    named = write(tmp_path / "b.h5", episodes, action_names=list("abcd"))
    for path in (one, named):
        again = tmp_path / "again.h5"
        with (
            so.load_dataset(path) as data,
            so.DatasetWriter(again, action_space=data.action_space) as w,
        ):
            for episode in episodes:
                w.append(**episode)
        assert again.read_bytes() == path.read_bytes()


def replace_header(path: Path, change: Any) -> None:
    """Edit the header of an HDF5 file."""
    with h5py.File(path, "r+") as file:
        header = json.loads(bytes(file["header"][()]))
        change(header)
        del file["header"]
        file.create_dataset("header", data=np.bytes_(json.dumps(header).encode()))


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("low", [0.5, 0.5], "'valve' ranges from 0.5 to 0.3"),
        ("low", [-1.0], "one name, low and high per component"),
        ("low", ["-1", 0], "must be lists of numbers"),
        ("low", None, "must be lists of numbers"),
        ("high", [float("nan"), 1.0], "expected finite bounds"),
        ("high", [1e300, 1.0], "expected finite bounds"),
        ("high", [1.0, 0.1], "not those that were written"),
        ("names", [], "one name, low and high per component"),
        ("names", "ab", "needs a list of names"),
        ("names", ["a", 2], "needs a list of names"),
        ("kind", "finite", "the action space is finite, expected a box"),
        ("kind", "sphere", "finite or a box, found 'sphere'"),
    ],
)
def test_damaged_spaces_are_refused(tmp_path: Path, entry: str, value: Any, message: str) -> None:
    path = write_box(tmp_path / "a.h5")
    replace_header(path, lambda header: header["action_space"].update({entry: value}))
    with pytest.raises(DataError, match=r"The header of .* is damaged") as caught:
        so.load_dataset(path)
    assert message in str(caught.value)
    assert ".;" not in str(caught.value)


def test_other_damage_to_the_header(tmp_path: Path) -> None:
    path = write_box(tmp_path / "a.h5")
    replace_header(path, lambda header: header.pop("action_space"))
    with pytest.raises(DataError, match=r"is damaged \(KeyError: 'action_space'\)"):
        so.load_dataset(path)
    path = write_box(tmp_path / "b.h5")
    replace_header(path, lambda header: header.update(format_version=1))
    with pytest.raises(DataError, match=r"is damaged \(KeyError: 'num_actions'\)"):
        so.load_dataset(path)
    path = write_box(tmp_path / "c.h5")
    wide = {"kind": "box", "names": ["a", "b", "c"], "low": [0.0] * 3, "high": [1.0] * 3}
    replace_header(path, lambda header: header.update(action_space=wide))
    with pytest.raises(DataError, match=r"'actions' has shape .*2.*expected .*3"):
        so.load_dataset(path)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("actions", [np.nan, 0.0], "NaN"),
        ("actions", [np.inf, 0.0], "infinite"),
        ("actions", [0.0, 0.5], "action range"),
        ("propensities", np.inf, "infinite"),
        ("propensities", -np.inf, "impossible action"),
        ("propensities", np.nan, "missing propensities"),
    ],
)
def test_validate_finds(tmp_path: Path, suffix: str, name: str, value: Any, kind: str) -> None:
    path = write_box(tmp_path / f"a.{suffix}")
    if suffix == "h5":
        with h5py.File(path, "r+") as file:
            file[name][7] = value
    else:
        table = pq.read_table(path)
        rows = table.column(name).to_pylist()
        rows[8] = value  # one row of a final observation lies before it
        position = table.schema.get_field_index(name)
        field = table.schema.field(name)
        table = table.set_column(position, field, pa.array(rows, type=field.type))
        pq.write_table(table, path)
    found = {problem.kind: problem for problem in so.validate(path).problems}
    assert kind in found
    assert found[kind].count == 1
    assert found[kind].where == f"{name}, instance 'train-0', episode 1, step 3"


def test_wrong_types_are_refused(tmp_path: Path) -> None:
    path = write_box(tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        values = file["actions"][()]
        del file["actions"]
        file.create_dataset("actions", data=values.astype(np.float64))
    with pytest.raises(DataError, match="'actions' holds float64, expected float32"):
        so.load_dataset(path)


def test_views_and_stacks(box: Path) -> None:
    with so.load_dataset(box) as data:
        view = data.without_hidden().select([4, 1])
        assert view.hidden is None
        np.testing.assert_array_equal(
            view.steps().actions,
            np.concatenate([data.episodes()[4].actions, data.episodes()[1].actions]),
        )
        assert view.without_propensities().steps().propensities is None
        stacked = data.stacked(3).episodes()[2].observations
        plain = data.episodes()[2]
        before = BOX.encode(plain.actions)
        np.testing.assert_array_equal(stacked[3, 9:], np.concatenate([before[2], before[1]]))
        np.testing.assert_array_equal(stacked[1, 9:], np.concatenate([before[0], [0, 0]]))


def test_a_view_may_repeat_episodes(box: Path) -> None:
    """As a bootstrap does: segments are those of the episodes, each as often as it was chosen."""
    with so.load_dataset(box) as data:
        for view in (data.select([0, 0, 1]), data.in_memory().select([3, 0, 0, 2])):
            segments = view.segments(2)
            for row, episode in enumerate(view.episodes()):
                np.testing.assert_array_equal(segments.actions[row], episode.actions[:2])
                np.testing.assert_array_equal(segments.observations[row], episode.observations[:3])


def test_the_effective_sample_does_not_underflow(tmp_path: Path) -> None:
    """Many components with narrow noise: no weight is larger than 1e-300."""
    space = Box.of([-1.0] * 20, [1.0] * 20)
    policy = TruncatedNormal(space, np.zeros((8, 20)), np.full(20, 1e-3))
    with so.DatasetWriter(tmp_path / "a.h5", action_space=space, probe_steps=8) as writer:
        for number in range(6):
            rng = np.random.default_rng(number)
            actions = policy.draw(rng.random((8, space.draws)))
            writer.append(
                instance=f"i{number % 2}",
                observations=rng.normal(size=(9, 1)),
                actions=actions,
                rewards=np.zeros(8),
                terminated=False,
                truncated=True,
                log_densities=policy.logged(actions),
            )
    with so.load_dataset(tmp_path / "a.h5") as data:
        size = so.inspect(data).effective_sample_size
    assert size is not None and 1 <= size <= 6


def test_metadata_are_plain_or_refused_at_once(tmp_path: Path) -> None:
    """What a writer accepts can be read again; the rest is refused before anything is logged."""
    path = tmp_path / "a.h5"
    with so.DatasetWriter(
        path,
        action_space=BOX,
        root_seed=np.int64(3),  # type: ignore[arg-type]
        probe_steps=np.int64(2),  # type: ignore[arg-type]
        observation_names=[0, 1, 2],  # type: ignore[list-item]
        hidden={"train-0": {0: 1.0}},  # type: ignore[dict-item]
    ) as writer:
        writer.append(**make_episode(0))
    with so.load_dataset(path) as data:
        assert data.metadata.root_seed == 3 and data.metadata.probe_steps == 2
        assert data.metadata.observation_names == ("0", "1", "2")
    assert so.validate(path).ok
    wrong: dict[str, Any]
    for wrong in ({"root_seed": 1.5}, {"probe_steps": 2.0}, {"probe_steps": -1}):
        with pytest.raises(DataError, match=next(iter(wrong))):
            so.DatasetWriter(tmp_path / "b.h5", action_space=BOX, **wrong)
    with so.DatasetWriter(tmp_path / "c.h5", action_space=BOX) as writer:
        for broken in ({"seed": "x"}, {"log_densities": ["a"] * 5}, {"actions": [[0], [1, 2]]}):
            with pytest.raises(DataError, match="expected"):
                writer.append(**(make_episode(0) | broken))
        writer.append(**make_episode(0))


def test_bounds_are_rounded_inwards() -> None:
    """An action must not lie beyond what the caller allows, in float64 either."""
    low, high = np.array([-0.9, 0.1]), np.array([-0.7, 0.2])
    allowed = BOX.allowed(None, (low, high))
    assert allowed is not None
    assert (allowed[0] >= low).all() and (allowed[1] <= high).all()
    fixed = BOX.allowed(None, ([0.1, 0.2], [0.1, 0.2]))
    assert fixed is not None and (fixed[0] == fixed[1]).all()


def test_a_summary_of_large_actions_is_finite(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with so.DatasetWriter(path, action_space=Box.of([-1e20], [1e20])) as writer:
        writer.append(**make_episode(0, 2) | {"actions": [[-1e20], [1e20]]})
    assert so.inspect(path).table[0].action_deviations == pytest.approx((1e20,))


def test_summary_by_hand(tmp_path: Path) -> None:
    """Two instances, of which one uses a fifth of the first component's range."""
    box = Box.of([0.0, 0.0], [10.0, 1.0])
    path = tmp_path / "a.h5"
    fifths = np.array([0.05, 0.25, 0.45, 0.65, 1.0])
    with so.DatasetWriter(path, action_space=box, probe_steps=2) as writer:
        for instance in ("wide", "narrow"):
            for number in range(5):
                pump = 10 * fifths[number] if instance == "wide" else 9.0
                actions = np.tile([pump, fifths[number]], (3, 1))
                writer.append(
                    instance=instance,
                    observations=np.zeros((4, 1)),
                    actions=actions,
                    rewards=np.ones(3),
                    terminated=True,
                    truncated=False,
                    # half of the uniform density, but twice it in the last episode
                    log_densities=np.log(np.full(3, 0.2 if number == 4 else 0.05)),
                )
    summary = so.inspect(path)
    wide, narrow = summary.table
    assert summary.num_actions is None
    assert summary.action_space == box.describe()
    assert (wide.coverage, summary.coverage_min) == (1.0, pytest.approx(0.6))
    assert narrow.action_means == pytest.approx((9.0, 0.48))
    assert narrow.action_deviations == pytest.approx((0.0, fifths.std()))
    assert wide.action_frequencies == ()
    weights = np.array([4.0] * 4 + [0.25])
    expected = weights.sum() ** 2 / (weights**2).sum()
    assert wide.effective_sample_size == pytest.approx(expected)
    assert summary.known_propensities == 1
    assert summary.leak is not None
    json.dumps(summary.to_json())


@pytest.mark.parametrize("depends", [True, False])
def test_actions_that_give_the_instance_away(tmp_path: Path, depends: bool) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a.h5"
    with so.DatasetWriter(path, action_space=BOX, probe_steps=3) as writer:
        for number in range(120):
            episode = make_episode(number) | {"log_densities": None}
            if depends:
                episode["actions"][:, 1] = 0.3 * (0.5 * rng.random(5) + 0.5 * (number % 2))
            writer.append(**episode)
    summary = so.inspect(path)
    assert summary.leak is not None
    assert summary.leak.significant is depends
    assert any("log-densities are unknown for 100%" in text for text in summary.warnings)


def test_summaries_refuse_what_validate_refuses(tmp_path: Path) -> None:
    for name, value, message in (
        ("actions", [5.0, 0.0], "1 actions outside the action space"),
        ("propensities", np.inf, "1 steps where a log-density is infinite"),
    ):
        path = write_box(tmp_path / f"{name}.h5")
        with h5py.File(path, "r+") as file:
            file[name][7] = value
        with pytest.raises(DataError, match=message):
            so.inspect(path)


def test_merging(tmp_path: Path) -> None:
    one, two = write_box(tmp_path / "a.h5"), write_box(tmp_path / "b.parquet", 4, behaviour="other")
    with so.merge([one, two], tmp_path / "c.h5") as data:
        assert data.action_space == BOX
        assert data.num_episodes == 10
    assert so.validate(tmp_path / "c.h5").ok
    with so.DatasetWriter(tmp_path / "d.h5", action_space=Box.of([-1, 0], [1, 0.4])) as writer:
        writer.append(**make_episode(0))
    with pytest.raises(DataError, match="of different systems: the action space is '2 numbers"):
        so.merge([one, tmp_path / "d.h5"], tmp_path / "e.h5")


def test_to_minari_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari.dataset._storages.hdf5_storage")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    with so.load_dataset(write_box(tmp_path / "a.h5")) as data:
        made = data.to_minari("toy/box-v0")
        last = data.episodes()[-1]
        np.testing.assert_array_equal(made[5].actions, last.actions)
        np.testing.assert_array_equal(made[5].infos["log_densities"][:-1], last.log_densities)
        with so.from_minari("toy/box-v0", tmp_path / "b.parquet") as back:
            assert back.action_space == Box.of(BOX.low, BOX.high)
            for found, wrote in zip(back.episodes(), data.episodes(), strict=True):
                for name in wrote.__dataclass_fields__:
                    np.testing.assert_array_equal(getattr(found, name), getattr(wrote, name))

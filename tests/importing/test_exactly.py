"""No step, label, time or file is lost, merged or mixed up on the way in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sept_offline as so
from sept_offline.errors import DataError
from sept_offline.tools.importing import Imported, ImportMapping, import_logs, mapping_from
from sept_offline.tools.importing.card import markdown
from sept_offline.tools.importing.rows import Rows, grouped
from sept_offline.tools.importing.tables import file_words

HEAD = "instance,episode,time,x,action,reward,terminated"
Run = Callable[..., Imported]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Import the text of a CSV file, or the columns of a Parquet file."""

    def run_import(table: str | bytes | dict[str, Any], **options: Any) -> Imported:
        path = tmp_path / ("log.parquet" if isinstance(table, dict) else "log.csv")
        if isinstance(table, dict):
            pq.write_table(pa.table(table), path)
        else:
            path.write_bytes(table if isinstance(table, bytes) else table.encode())
        options = {"observations": "x", **options}
        return import_logs(path, tmp_path / "log.h5", mapping_from(options))

    return run_import


def text(*rows: str) -> str:
    return "\n".join([HEAD, *rows, ""])


def logged(*labels: str) -> str:
    """One episode with these actions, and a row for its final observation."""
    steps = [f"a,1,{time},{time}.5,{label},1,0" for time, label in enumerate(labels)]
    return text(*steps, f"a,1,{len(labels)},9,,,")


def columns(**changes: Any) -> dict[str, Any]:
    """One episode of two steps, as the columns of a Parquet file."""
    return {
        "instance": ["a"] * 3,
        "episode": [1] * 3,
        "time": [0, 1, 2],
        "x": [1.0, 2.0, 3.0],
        "action": ["l", "r", None],
        "reward": [1.0, 1.0, None],
        **changes,
    }


def actions(done: Imported) -> tuple[tuple[str, ...] | None, list[int]]:
    """The names of the actions, and those of the first episode."""
    with so.load_dataset(done.path) as data:
        return data.metadata.action_names, data.episodes()[0].actions.tolist()


def seen(done: Imported) -> list[float]:
    with so.load_dataset(done.path) as data:
        return [float(value) for value in data.episodes()[0].observations.ravel()]


# Steps


def test_a_last_reward_without_an_action_is_not_dropped(run: Run) -> None:
    rows = ["a,1,0,0,l,0,0", "a,1,1,1,r,0,0", "a,1,2,2,,100,1"]
    with pytest.raises(DataError, match=r"1 episodes end in .*no action.*'1' .*row 3\).*--fill"):
        run(text(*rows))
    assert run(text(*rows[:2], "a,1,2,2,,0,1")).card["steps"] == 2
    done = run(text(*rows), fill={"action": "l"}, keep_terminal=True)
    assert done.card["filled"] == {"action": 1} and done.card["steps"] == 3
    assert done.card["reward"]["max"] == 100 and actions(done)[1] == [0, 1, 0]


def test_a_last_next_observation_without_an_action_is_not_dropped(run: Run) -> None:
    table = "instance,episode,x,nx,action,reward\na,1,0,1,l,0\na,1,1,5,,0\n"
    with pytest.raises(DataError, match="end in a row that has a reward or a next observation"):
        run(table, next_observations="nx")
    done = run(table, next_observations="nx", fill={"action": "previous"})
    assert actions(done)[1] == [0, 0] and seen(done) == [0, 1, 5]


def test_words_for_nothing_are_labels_among_words(run: Run) -> None:
    done = run(text("a,1,0,0,l,0,0", "a,1,1,1,NA,7,0", "a,1,2,2,null,8,0", "a,1,3,3,,,"))
    assert actions(done) == (("NA", "l", "null"), [1, 0, 2])
    assert done.card["done"]["labels for nothing"] == 2
    assert any("have a label such as NA" in line for line in done.warnings)
    with so.load_dataset(run(text("NA,1,0,0,l,0,0", "NA,1,1,1,,,")).path) as data:
        assert data.instances == ["NA"]


def test_words_for_nothing_are_missing_among_numbers(run: Run) -> None:
    rows = ["a,1,0,0,0.0,0,NA", "a,1,1,1,1.0,7,0", "a,1,2,2,nan,,"]
    done = run(text(*rows))
    assert actions(done) == (None, [0, 1])
    assert done.card["done"] == {"episodes without an end flag": 1, "empty flags": 2}
    done = run(text(*rows), actions="0,1,2")
    assert actions(done) == (None, [0, 1])
    with pytest.raises(DataError, match="1 in 'action'"):
        run(text("a,1,0,0,0,0,0", "a,1,1,1,NA,7,0", "a,1,2,2,1,1,0", "a,1,3,3,,,"))


# Labels


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (("0_0", "0_1", "1_0"), ("0_0", "0_1", "1_0")),
        (("00", "01", "10"), ("00", "01", "10")),
        (("1", "01", "2"), ("01", "1", "2")),
        (
            ("999000001000000101", "999000001000000102", "999000001000000103"),
            ("999000001000000101", "999000001000000102", "999000001000000103"),
        ),
        (("1e5", "10e4", "2"), ("1e5", "2", "10e4")),
        (("٠", "١", "0"), ("0", "٠", "١")),
    ],
)
def test_labels_stay_apart(run: Run, labels: tuple[str, ...], names: tuple[str, ...]) -> None:
    found, taken = actions(run(logged(*labels)))
    assert found is not None and sorted(found) == sorted(names)
    assert tuple(found[action] for action in taken) == labels


def test_spellings_of_a_number_are_one_and_counted(run: Run) -> None:
    done = run(logged("0", "1.0", "1", "0.000000000000000000e+00"))
    assert actions(done) == (None, [0, 1, 1, 0])
    assert done.card["done"]["spellings merged"] == 2
    assert "2 labels spell the same number as another" in done.card_path.read_text()


def test_strings_of_a_parquet_file_keep_their_names(run: Run) -> None:
    assert actions(run(columns(action=["00", "01", None]))) == (("00", "01"), [0, 1])
    assert actions(run(columns(action=["1", "1.0", None]))) == (("1", "1.0"), [0, 1])
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int32()), ["1", "1.0"])
    assert actions(run(columns(action=codes))) == (("1", "1.0"), [0, 1])
    assert actions(run(columns(action=["0", "1", None]))) == (None, [0, 1])


def test_ids_of_bytes_stay_apart(run: Run) -> None:
    ids = [bytes([number, 200]) for number in (128, 129)]
    twice: dict[str, Any] = {name: values * 2 for name, values in columns().items()}
    done = run(
        twice | {"instance": [one for one in ids for _ in range(3)], "episode": [1] * 3 + [2] * 3}
    )
    with so.load_dataset(done.path) as data:
        assert data.instances == [r"\x80\xc8", r"\x81\xc8"]


def test_categories_that_nobody_took_are_no_actions(run: Run) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([1, 2, None], pa.int32()), ["zz", "l", "r"])
    assert actions(run(columns(action=codes))) == (("l", "r"), [0, 1])


# Files


def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for folder, base in (("s1", 1), ("s2", 7)):
        (tmp_path / folder).mkdir()
        rows = f"x,action,reward\n{base},0,1\n{base + 1},1,1\n{base + 2},,\n"
        (tmp_path / folder / "log.csv").write_text(rows)
    (tmp_path / "s2" / "other.csv").write_text(rows)
    mapping = ImportMapping(instance="@file", episode=("@file",), observations=("x",))
    done = import_logs([tmp_path / "s1", tmp_path / "s2"], tmp_path / "a.h5", mapping)
    with so.load_dataset(done.path) as data:
        assert data.instances == ["other", "s1/log", "s2/log"]
        assert [len(episode.actions) for episode in data.episodes()] == [2, 2, 2]


def test_words_of_files(tmp_path: Path) -> None:
    def words(*names: str) -> list[str]:
        return list(file_words([tmp_path / name for name in names]).values())

    assert words("a.csv", "b/c.csv") == ["a", "c"]
    assert words("x/s/a.csv", "y/s/a.csv", "a.tsv")[:2] == ["x/s/a", "y/s/a"]
    assert words("a.csv", "a.csv.gz") == ["a.csv", "a.csv.gz"]


@pytest.mark.parametrize("before", ["", "e"])
def test_ids_are_in_natural_order(run: Run, before: str) -> None:
    """Numbers alone are sorted in another way than numbers within words."""
    ids = ["10", "9", "09", "0", "00", "123456789012345678"]
    rows = [
        f"a,{before}{name},{time},{place},{action},1,"
        for place, name in enumerate(ids)
        for time, action in ((0, "l"), (1, ""))
    ]
    with so.load_dataset(run(text(*(row.replace(",,1,", ",,,") for row in rows))).path) as data:
        found = [ids[int(episode.observations[0, 0])] for episode in data.episodes()]
    assert found == ["0", "00", "09", "9", "10", "123456789012345678"]


# Times


def test_nanoseconds_are_kept(run: Run) -> None:
    start = 1577836800123456789
    stamps = pa.array([start + 2, start, start + 1], pa.timestamp("ns"))
    table = columns(time=stamps, x=[3.0, 1.0, 2.0], action=[None, "l", "r"])
    assert seen(run({**table, "reward": [None, 1.0, 1.0]})) == [1, 2, 3]
    moment = "2020-01-01 00:00:00.1234567"
    rows = [f"a,1,{moment}91,3,,,", f"a,1,{moment}89,1,l,1,", f"a,1,{moment}90,2,r,1,"]
    assert seen(run(text(*rows))) == [1, 2, 3]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (pa.array([0, 1, 2**63 + 1], pa.uint64()), "beyond 2⁶³"),
        (pa.array([0, 1, 10**18], pa.timestamp("ms")), "64 bits"),
        (["a", "b", "c"], "expected numbers or timestamps"),
    ],
)
def test_times_that_cannot_be_held(run: Run, times: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(columns(time=times))


@pytest.mark.parametrize("time", ["inf", "-inf", "nan"])
def test_a_time_that_is_not_finite_orders_nothing(run: Run, time: str) -> None:
    rows = ["a,1,0.5,0,l,0,0", f"a,1,{time},1,r,0,0", "a,1,2,2,,,"]
    with pytest.raises(DataError, match=r"not finite \(1 in 'time'; first .*row 2\)"):
        run(text(*rows))


def test_times_of_different_kinds(tmp_path: Path) -> None:
    def both(one: Any, other: Any) -> Imported:
        pq.write_table(pa.table(columns(time=one)), tmp_path / "1.parquet")
        other = columns(time=other, episode=[2] * 3)
        pq.write_table(pa.table(other), tmp_path / "2.parquet")
        mapping = ImportMapping(observations=("x",))
        return import_logs(str(tmp_path / "?.parquet"), tmp_path / "a.h5", mapping)

    stamps = [0, 1, 2]
    naive, utc, rome = (
        pa.array(stamps, pa.timestamp("s", tz=tz)) for tz in (None, "UTC", "Europe/Rome")
    )
    with pytest.raises(DataError, match=r"without a time zone in one file and .* with a time zone"):
        both(naive, utc)
    assert both(rome, utc).card["episodes"] == 2
    with pytest.raises(DataError, match="beyond 2⁵³ mixed with floats"):
        both([0.5, 1.0, 2.0], [0, 1, 2**53 + 1])


# Observations


def test_whole_numbers_and_large_lists_are_observations(run: Run) -> None:
    assert seen(run(columns(x=[2**53 + 1, 5, 6]))) == [2.0**53, 5, 6]
    lists = [[1, 2**24 + 1], [3, 4], [5, 6]]
    assert seen(run(columns(x=pa.array(lists)))) == [1, 2.0**24, 3, 4, 5, 6]
    large = pa.array(lists, pa.large_list(pa.float64()))
    assert seen(run(columns(x=large))) == [1, 2.0**24, 3, 4, 5, 6]
    with pytest.raises(DataError, match="holds string, expected numbers"):
        run(columns(x=[["a", "2"], ["3", "4"], ["5", "6"]]))


@pytest.mark.parametrize("lists", [[[]] * 3, [[1.0], [1.0, 2.0], [1.0]], [[1.0], [2.0], []]])
def test_lists_must_hold_equally_many_numbers(run: Run, lists: Any) -> None:
    with pytest.raises(DataError, match=r"lists of 'x' .* are empty or do not all have the same"):
        run(columns(x=pa.array(lists, pa.list_(pa.float64()))))


def test_a_rule_for_a_list_is_for_all_of_it(run: Run) -> None:
    lists = [[1.0, 2.0], [None, None], [5.0, 6.0]]
    done = run(columns(x=lists), fill={"x": "zero"})
    assert seen(done) == [1, 2, 0, 0, 5, 6] and done.card["filled"] == {"x[0]": 1, "x[1]": 1}
    assert "1 missing values of `x[1]` were filled (zero)" in done.card_path.read_text()


@pytest.mark.parametrize(
    ("fill", "last"),
    [
        ({"ny": "zero"}, 0.0),
        ({"ny": "previous"}, 6.0),
        ({"ny": "mean"}, 5.5),
        ({"y": "previous"}, 6.0),
        ({"observations": "-3"}, -3.0),
    ],
)
def test_next_observations_are_filled(run: Run, fill: dict[str, str], last: float) -> None:
    table = "instance,episode,time,x,y,action,reward,nx,ny\na,1,0,1,5,l,1,2,6\na,1,1,2,6,r,1,3,\n"
    options = {"observations": "x,y", "next_observations": "nx,ny"}
    done = run(table, **options, fill=fill)
    assert seen(done) == [1, 5, 2, 6, 3, last] and done.card["filled"] == {"ny": 1}
    rule = next(iter(fill.values()))
    assert f"1 missing values of `ny` were filled ({rule})" in done.card_path.read_text()
    with pytest.raises(DataError, match="1 in 'ny'"):
        run(table, **options)


def test_a_continuous_action_is_filled_by_a_number(run: Run) -> None:
    rows = ["a,1,0,1,0.5,1,0", "a,1,1,2,,1,0", "a,1,2,3,0.7,1,0", "a,1,3,3,0.9,1,0"]
    with pytest.raises(DataError, match="--fill action=abc: expected previous, zero or a number"):
        run(text(*rows), bins=2, fill={"action": "abc"})
    assert run(text(*rows), bins=2, fill={"action": "0.6"}).card["filled"] == {"action": 1}


# Text and the card


def test_text_in_other_encodings(run: Run) -> None:
    table = "instance,episode,x,action,reward,note\na,1,1,l,1,café\na,1,2,,,\n".encode("latin-1")
    assert run(table).card["steps"] == 1
    with pytest.raises(DataError, match=r"'instance': .*expected UTF-8 text"):
        run(table.replace(b"\na,", "\né,".encode("latin-1")))
    with pytest.raises(DataError, match=r"column names of .* are not UTF-8"):
        run(table.replace(b"note", "né".encode("latin-1")))


def test_an_empty_file_is_named(run: Run) -> None:
    with pytest.raises(DataError, match=r"log\.csv is empty"):
        run("")


def test_options_that_mean_nothing_for_parquet(run: Run) -> None:
    with pytest.raises(DataError, match="--delimiter does not apply here"):
        run(columns(), delimiter=";")


def test_more_sequences_than_a_float_can_tell(run: Run) -> None:
    done = run(logged("0", "1", "2", "3"), probe_steps=600)
    assert done.card["coverage"]["possible"] is None and done.card["coverage"]["mean"] == 0
    assert "of the more than 10^300 initial" in markdown(done.card, done.path, "")


def test_coverage_counts_by_instance(run: Run) -> None:
    sequences = {"a": ["01", "01", "10"], "b": ["11"], "c": ["00", "01", "10", "11"]}
    rows = [
        f"{name},{name}{number},{time},1,{label},1,"
        for name, tried in sequences.items()
        for number, labels in enumerate(tried)
        for time, label in enumerate([*labels, ""])
    ]
    rows = [row.replace(",,1,", ",,,") for row in rows]
    coverage = run(text(*rows), probe_steps=2).card["coverage"]
    assert coverage["min"] == 1 / 4 and coverage["mean"] == pytest.approx((2 + 1 + 4) / 12)


def test_a_long_episode_is_not_held_twice_while_it_is_written() -> None:
    alive = []

    def parts() -> Iterator[Rows]:
        for _ in range(3):
            n = np.zeros(4, dtype=np.int64)
            seen = np.ones((4, 1), dtype=np.float32)
            alive.append(weakref.ref(seen))
            yield Rows(n, n, n, n, seen, None, seen * 1.0, n * 1.0, n.astype(np.uint8), None)

    batches = grouped(parts())
    assert len(next(batches)) == 12
    assert [part() is None for part in alive[:2]] == [True, True]

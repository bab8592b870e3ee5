"""Irregular logs get answers: a sentence that says what to do, or a line on the card."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.errors import DataError
from sept_offline.tools.importing import Imported, ImportMapping, import_logs
from tests.importing.tables import COLUMNS, Row, stay, stays, write_table

Change = Callable[[list[Row]], Any]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Imported]:
    def run_import(rows: list[Row], **options: Any) -> Imported:
        path = write_table(tmp_path / "log.csv", rows)
        return import_logs(path, tmp_path / "log.h5", ImportMapping(**{**COLUMNS, **options}))

    return run_import


def changed(change: Change, **options: Any) -> list[Row]:
    rows = stays(6, **options)
    change(rows)
    return rows


def put(name: str, value: Any, *places: int) -> Change:
    """An edit of some rows of a column."""

    def edit(rows: list[Row]) -> None:
        for place in places:
            rows[place][name] = value

    return edit


REFUSED: dict[str, tuple[Change, str]] = {
    "missing observation": (put("pulse", None, 1, 2, 8), r"missing .*3 in 'pulse'.*--fill"),
    "missing in two columns": (
        lambda rows: (put("pulse", None, 1)(rows), put("pressure", None, 2, 3)(rows)),
        "1 in 'pulse', 2 in 'pressure'",
    ),
    "infinite observation": (put("pulse", float("inf"), 1), "not finite.*1 in 'pulse'"),
    "too large for float32": (put("pulse", 1e300, 1), "not finite as float32 .*1 in 'pulse'"),
    "missing reward": (put("score", None, 1), "1 in 'score'"),
    "missing action": (put("drug", None, 1), "1 in 'drug'"),
    "missing instance": (put("site", None, 1), "1 in 'site'.*complete the rows"),
    "missing episode": (put("stay", None, 1, 2), "2 in 'stay'.*complete the rows"),
    "missing time": (put("hour", None, 1), "1 in 'hour'.*complete the rows"),
    "contradictory step": (
        lambda rows: rows.append({**rows[6], "pulse": 99.0}),
        r"1 steps are logged twice with different values, first one of the "
        r"episode 's7' \(.*row 7, and "
        r".*row 31\)",
    ),
    "a change of instance": (
        put("site", "site-9", 7),
        r"1 episodes change their instance, first the episode 's7' from 'site-1' to 'site-9' "
        r"\(.*row 8\).*--episode site,stay",
    ),
    "an end in the middle": (put("cured", True, 6), r"before the last step.*'s7' .*row 7"),
    "an odd flag": (put("cured", "perhaps", 3), r"neither true nor false, first 'perhaps'.*row 4"),
    "no rewards": (
        put("score", None, *range(10)),
        r"2 episodes have no reward at all, first the episode 's0'.*--drop-unrewarded",
    ),
    "an action that is not whole": (
        lambda rows: [row.update(drug=row["pulse"]) for row in rows if row["drug"]],
        "not integers.*not discrete.*--bins",
    ),
    "no step at all": (
        lambda rows: rows.__setitem__(slice(None), [row for row in rows if not row["drug"]]),
        "No episode has any steps",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_counts_and_places(
    case: str, run: Callable[..., Imported], tmp_path: Path
) -> None:
    change, message = REFUSED[case]
    old = tmp_path / "log.h5"
    old.write_bytes(b"what was there")
    rows = [{**row, "cured": str(row["cured"])} if "flag" in case else row for row in stays(6)]
    change(rows)
    with pytest.raises(DataError, match=message):
        run(rows)
    assert old.read_bytes() == b"what was there"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "log.h5"]


def test_fill_rules(run: Callable[..., Imported]) -> None:
    def lacking(rows: list[Row]) -> None:
        put("pulse", None, 1, 2, 8)(rows)
        put("pressure", None, 3)(rows)
        put("score", None, 1)(rows)
        put("drug", None, 2)(rows)

    rows, whole = changed(lacking), stays(6)
    fill = {"pulse": "previous", "pressure": "mean", "score": "-1.5", "drug": "none"}
    done = run(rows, fill=fill)
    assert done.card["filled"] == {"pulse": 3, "pressure": 1, "score": 1, "drug": 1}
    with so.load_dataset(done.path) as data:
        first = data.episodes()[0]
        expected = [whole[0]["pulse"], whole[0]["pulse"], whole[0]["pulse"], whole[3]["pulse"]]
        np.testing.assert_array_equal(first.observations[:4, 0], np.float32(expected))
        known = [row["pressure"] for place, row in enumerate(rows) if place != 3]
        assert first.observations[3, 1] == pytest.approx(np.mean(known), rel=1e-5)
        assert first.rewards[1] == -1.5
        assert (data.metadata.action_names or ())[first.actions[2]] == "none"
    text = done.card_path.read_text()
    assert "3 missing values of `pulse` were filled (previous)" in text
    done = run(rows, fill={"observations": "zero", "score": "mean", "drug": "previous"})
    with so.load_dataset(done.path) as data:
        assert (data.episodes()[0].observations[[1, 2], 0] == 0).all()
        rewards = [row["score"] for row in rows if row["score"] is not None]
        assert data.episodes()[0].rewards[1] == pytest.approx(np.mean(rewards))
        assert data.episodes()[0].actions[2] == data.episodes()[0].actions[1]


def test_nothing_before_the_first_to_fill_from(run: Callable[..., Imported]) -> None:
    def lacking(rows: list[Row]) -> None:
        put("pulse", None, 5, 7, 10, 11)(rows)
        put("pressure", None, 15)(rows)

    message = (
        r"Episodes start with missing .*3 in 'pulse', 1 in 'pressure'; first .*log.csv, row 6\)"
    )
    with pytest.raises(DataError, match=message + ".*as in --fill COLUMN=previous,mean") as caught:
        run(changed(lacking), fill={"observations": "previous"})
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match=r"start with .*1 in 'score', 1 in 'drug'; first .*row 1\)"):
        run(
            changed(lambda rows: (put("drug", None, 0)(rows), put("score", None, 0)(rows))),
            fill={"drug": "previous", "score": "previous"},
        )


def test_rules_tried_in_turn(run: Callable[..., Imported]) -> None:
    def lacking(rows: list[Row]) -> None:
        put("pulse", None, 5, 6, 8)(rows)
        put("pressure", None, 0, 2)(rows)
        put("score", None, 10, 12)(rows)
        put("drug", None, 15, 17)(rows)

    rows, whole = changed(lacking), stays(6)
    fill = {"observations": "previous,mean", "pressure": "previous, -3", "score": "previous,zero"}
    done = run(rows, fill={**fill, "drug": "previous,none"}, instance=None)
    assert done.card["filled"] == {"pulse": 3, "pressure": 2, "score": 2, "drug": 2}
    assert "3 missing values of `pulse` were filled (previous,mean)" in done.card_path.read_text()
    with so.load_dataset(done.path) as data:
        first, second, third, fourth = data.episodes()[:4]
        # 6 stands after 5, which has none either: both wait for the mean.
        known = [row["pulse"] for row in rows if row["pulse"] is not None]
        known.append(whole[7]["pulse"])
        np.testing.assert_allclose(second.observations[:2, 0], np.mean(known), rtol=1e-5)
        assert second.observations[3, 0] == np.float32(whole[7]["pulse"])
        assert first.observations[0, 1] == -3
        assert first.observations[2, 1] == np.float32(whole[1]["pressure"])
        assert third.rewards[0] == 0 and third.rewards[2] == whole[11]["score"]
        names = data.metadata.action_names or ()
        assert [names[a] for a in fourth.actions[[0, 2]]] == ["none", whole[16]["drug"]]


def test_rules_in_turn_for_what_is_seen_after(run: Callable[..., Imported]) -> None:
    rows = stays(6)
    beside = [
        {**row, "pulse2": after["pulse"], "pressure2": after["pressure"]}
        for row, after in itertools.pairwise(rows)
        if row["drug"] is not None
    ]
    names = ("pulse2", "pressure2")
    put("pulse2", None, 3, 7)(beside)
    put("pulse", None, 7)(beside)
    # Row 7 ends its episode, and its own pulse is that of the row before.
    done = run(beside, next_observations=names, fill={"observations": "previous,mean"})
    assert done.card["filled"] == {"pulse": 1, "pulse2": 2}
    with so.load_dataset(done.path) as data:
        finals = {e.observations[0, 1]: e.observations[-2:, 0] for e in data.episodes()}
    assert finals[np.float32(beside[0]["pressure"])][1] == np.float32(beside[3]["pulse"])
    np.testing.assert_array_equal(
        finals[np.float32(beside[4]["pressure"])], np.float32(beside[6]["pulse"])
    )
    # A last next observation to repeat what only the mean will fill.
    put("pulse", None, 4, 5, 6)(beside)
    fill = {"pulse": "mean", "pulse2": "previous"}
    with pytest.raises(DataError, match=r"1 in 'pulse2'; first .*row 8\).*previous,mean"):
        run(beside, next_observations=names, fill=fill)


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        ({"puls": "zero"}, "did you mean 'pulse'"),
        ({"pulse": "often"}, "expected previous, zero, mean or a number"),
        ({"drug": "mean"}, "previous or a label"),
        ({"drug": "previous,mean"}, "previous or a label"),
        ({"pulse": "mean,previous"}, "only previous leaves values missing"),
        ({"pulse": "previous,previous"}, "only previous leaves values missing"),
        ({"pulse": "previous,often"}, "expected previous, zero, mean or a number"),
    ],
)
def test_wrong_fill_rules(run: Callable[..., Imported], fill: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(stays(6), fill=fill)


def test_identical_steps_count_once(run: Callable[..., Imported]) -> None:
    rows = stays(6)
    done = run([*rows, rows[3], rows[3], rows[9]])
    assert done.card["done"]["duplicated steps"] == 3 and done.card["steps"] == 24


def test_both_flags_and_none(run: Callable[..., Imported]) -> None:
    def flags(rows: list[Row]) -> None:
        put("cured", True, 3)(rows)
        put("left", True, 3)(rows)
        put("cured", False, 8)(rows)

    done = run(changed(flags))
    assert done.card["done"]["both end flags"] == 1
    assert done.card["done"]["episodes without an end flag"] == 1
    with so.load_dataset(done.path) as data:
        ends = {tuple(e.observations[0].tolist()): e.terminated for e in data.episodes()}
    first = [stays(6)[place] for place in (0, 5)]
    found = [ends[tuple(np.float32([row["pulse"], row["pressure"]]).tolist())] for row in first]
    assert found == [True, False]


def test_a_flag_on_the_final_row_is_the_episode_s(run: Callable[..., Imported]) -> None:
    def moved(rows: list[Row]) -> None:
        put("cured", False, 8)(rows)
        put("cured", True, 9)(rows)

    def ended(done: Imported) -> float:
        return float(done.card["terminated"])

    assert ended(run(changed(moved))) == ended(run(stays(6)))


def test_no_final_observation_gives_up_the_last_step(run: Callable[..., Imported]) -> None:
    rows = stays(6, final=False)
    done = run(rows)
    assert done.card["steps"] == 18 and done.card["done"]["last steps given up"] == 6
    assert done.card["done"]["terminations given up"] == 4 and done.card["terminated"] == 0
    message = "4 episodes lost the step that ended their task"
    assert any("--keep-terminal" in line and message in line for line in done.warnings)
    assert "4 of the dropped steps ended the task" in done.card_path.read_text()
    kept = run(rows, keep_terminal=True)
    assert kept.card["steps"] == 18 + 4 and kept.card["terminated"] == pytest.approx(4 / 6)
    with so.load_dataset(kept.path) as data:
        episode = next(e for e in data.episodes() if e.terminated)
        np.testing.assert_array_equal(episode.observations[-1], episode.observations[-2])


def test_next_observations_that_do_not_follow_are_reported(run: Callable[..., Imported]) -> None:
    rows = stays(6, final=True)
    beside = []
    for row, after in itertools.pairwise(rows):
        if row["drug"] is not None:
            beside.append({**row, "pulse2": after["pulse"], "pressure2": after["pressure"]})
    del beside[1]
    done = run(beside, next_observations=("pulse2", "pressure2"))
    assert done.card["done"] == {"next observations that differ": 1, "gaps in time": 1}
    assert done.card["steps"] == 23


def test_unrewarded_episodes_can_go(run: Callable[..., Imported]) -> None:
    rows = changed(put("score", None, *range(10)))
    done = run(rows, drop_unrewarded=True)
    assert done.card["episodes"] == 4 and done.card["done"]["unrewarded episodes"] == 2


def test_bins_of_a_continuous_action(run: Callable[..., Imported]) -> None:
    rows = stays(40)
    for row in rows:
        row["drug"] = None if row["drug"] is None else row["pulse"]
    done = run(rows, bins=4)
    assert len(done.card["actions"]) == 4
    assert all(0.2 < share < 0.3 for share in done.card["actions"].values())
    with so.load_dataset(done.path) as data:
        steps = data.steps()
        values = steps.observations[steps.row, 0]
        order = np.argsort(values, kind="stable")
        assert (np.diff(steps.actions[order]) >= 0).all()
        assert (data.metadata.action_names or ("",))[0].startswith("x < ")
    assert "4 bins of equal counts" in done.card_path.read_text()


def test_episodes_numbered_anew_in_every_instance(run: Callable[..., Imported]) -> None:
    rows = stays(6)
    for row in rows:
        row["stay"] = str(int(row["stay"][1:]) // 14)
    with pytest.raises(DataError, match="change their instance"):
        run(rows, time=None)
    assert run(rows, episode=("site", "stay")).card["episodes"] == 6


def test_whole_numbers_with_gaps_are_names(run: Callable[..., Imported]) -> None:
    rows = stays(6)
    for row in rows:
        row["drug"] = {"none": 2, "low": 10, "high": -1, None: None}[row["drug"]]
    done = run(rows)
    assert list(done.card["actions"]) == ["-1", "2", "10"]


def test_an_action_that_was_not_declared(run: Callable[..., Imported]) -> None:
    with pytest.raises(DataError, match="'high' is logged but is not among --actions none,low"):
        run(stays(6), actions=("none", "low"))


def test_probabilities(run: Callable[..., Imported]) -> None:
    def with_chances(**chances: float) -> list[Row]:
        return [{**row, **(chances if row["drug"] else {})} for row in stays(6)]

    names = ("p_none", "p_low", "p_high")
    rounded = with_chances(p_none=0.333, p_low=0.333, p_high=0.333)
    done = run(rounded, probabilities=names)
    assert done.card["done"]["probabilities made to sum to 1"] == 24
    assert done.card["entropy"]["of_behaviour"] == pytest.approx(np.log(3))
    with so.load_dataset(done.path) as data:
        assert data.metadata.action_names == ("none", "low", "high")
    assert so.validate(done.path).ok
    with pytest.raises(DataError, match="24 steps do not sum to 1"):
        run(with_chances(p_none=0.3, p_low=0.3, p_high=0.3), probabilities=names)
    # a step that is wrong in several ways is counted once in each, and each is reported
    message = r"24 steps do not sum to 1.* Also: .*24 steps are not within.* Also: .* are 0 for"
    with pytest.raises(DataError, match=message):
        run(with_chances(p_none=2.0, p_low=0.0, p_high=0.0), probabilities=names)
    with pytest.raises(DataError, match="0 for the very action"):
        run(with_chances(p_none=0.5, p_low=0.5, p_high=0.0), probabilities=names)
    with pytest.raises(DataError, match="list the actions in the same order"):
        run(with_chances(a=0.5, b=0.3, c=0.2), probabilities=("a", "b", "c"))
    done = run(with_chances(p=0.25), probability="p")
    assert done.card["entropy"]["of_behaviour"] == pytest.approx(-np.log(0.25))
    assert done.card["entropy"]["steps_with_the_taken_alone"] == 1
    assert "100% that of the action taken alone" in done.card_path.read_text()
    report = so.validate(done.path)
    assert report.ok and {p.kind for p in report.warnings} == {"partial propensities"}
    with pytest.raises(DataError, match="not within 0 … 1"):
        run(with_chances(p=1.25), probability="p")


def test_confounded_actions_are_reported(run: Callable[..., Imported]) -> None:
    rows = stays(40, steps=6)
    for row in rows:
        if row["drug"] is not None:
            row["drug"] = "low" if row["site"] == "site-0" else "high"
    done = run(rows)
    assert done.card["confounding"]["accuracy"] == 1.0
    assert "from the initial actions alone in 100%" in done.card_path.read_text()


def stamped(rows: list[Row], unit: str, every: int) -> list[Row]:
    """The hours as timestamps, this many units apart."""
    start = np.datetime64("2024-03-01T00:00:00.000000000")
    return [{**row, "hour": str(start + np.timedelta64(every * row["hour"], unit))} for row in rows]


@pytest.mark.parametrize(
    ("unit", "every", "interval"), [("s", 300, "5 min"), ("h", 1, "1 h"), ("ns", 7, "7e-09 s")]
)
def test_gaps_between_timestamps(
    run: Callable[..., Imported], unit: str, every: int, interval: str
) -> None:
    rows = stamped(stays(30, steps=12), unit, every)
    assert "gaps in time" not in run(rows).card["done"]
    half = [rows[i] for i in sorted(np.random.default_rng(0).permutation(len(rows))[::2])]
    # Flags and final rows are lost with the others: what is left looks like shorter episodes.
    done = run(half, terminated=None, truncated=None, fill={"drug": "none", "score": "zero"})
    hours = [(row["stay"], rows.index(row)) for row in half]
    expected = sum(a[0] == b[0] and b[1] - a[1] > 1 for a, b in itertools.pairwise(hours))
    assert expected > 50 and done.card["done"]["gaps in time"] == expected
    message = f"{expected} steps come at least 1.5 times the usual interval ({interval}) after"
    assert any(message in line for line in done.warnings)
    text = done.card_path.read_text()
    assert text.count(message) == 2, "among what was found, and before fitting"


def test_a_clock_of_no_usual_interval_gives_no_alarm(run: Callable[..., Imported]) -> None:
    rng = np.random.default_rng(0)
    rows, clock = stays(30, steps=12), 0
    for row in rows:
        clock += int(rng.integers(1, 5000))
        row["hour"] = clock
    done = run(rows)
    assert done.card["interval"] is None and "gaps in time" not in done.card["done"]


def test_numbers_that_count_in_tens_have_no_gaps(run: Callable[..., Imported]) -> None:
    rows = [{**row, "hour": 10 * row["hour"]} for row in stays(6)]
    assert "gaps in time" not in run(rows).card["done"]
    assert run([row for i, row in enumerate(rows) if i != 7]).card["done"]["gaps in time"] == 1


def shuffled(rows: list[Row]) -> list[Row]:
    return [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]


def test_scattered_rows_without_a_time_are_reported(run: Callable[..., Imported]) -> None:
    rows = shuffled(stays(6, final=False))
    done = run(rows, time=None, terminated=None, truncated=None)
    assert done.card["done"]["scattered episodes"] == 6
    assert "unordered rows" not in done.card["done"]
    assert any("6 episodes have rows interleaved" in line for line in done.warnings)
    text = done.card_path.read_text()
    assert "--time" in text and "sorted" not in text
    done = run(stays(6, final=False), time=None)
    assert "scattered episodes" not in done.card["done"]
    assert "scattered episodes" not in run(rows).card["done"]


def test_scattered_rows_that_are_refused_ask_for_their_time(run: Callable[..., Imported]) -> None:
    rows = shuffled(stays(6))
    with pytest.raises(DataError) as caught:
        run(rows, time=None)
    first, *others = str(caught.value).split(" Also: ")
    assert "end flags are set before" in first and "name their time with --time" in first
    assert any("missing or not finite" in line and "'drug'" in line for line in others)
    assert "The rows of 6 episodes are interleaved with those of others" in others[-1]
    with pytest.raises(DataError) as caught:
        run(changed(put("cured", True, 6)))
    assert "--time" not in str(caught.value)
    with pytest.raises(DataError) as caught:
        run(changed(put("site", None, 6)), time=None)
    assert "interleaved" not in str(caught.value), "rows that were left out part nothing"


def test_no_more_than_a_few_problems_at_once(run: Callable[..., Imported]) -> None:
    def worst(rows: list[Row]) -> None:
        put("site", "site-9", 7)(rows)
        put("cured", True, 11)(rows)
        put("pulse", None, 1)(rows)
        put("stay", None, 16)(rows)
        put("score", None, *range(20, 25))(rows)
        rows.append({**rows[6], "pulse": 99.0})

    with pytest.raises(DataError) as caught:
        run(changed(worst))
    lines = str(caught.value).split(" Also: ")
    assert len(lines) == 5 and lines[-1] == "2 more kinds of problem."


def test_a_probe_length_that_was_not_named(run: Callable[..., Imported]) -> None:
    def about(done: Imported) -> list[str]:
        return [line for line in done.warnings if "probe" in line]

    rows = [*stays(80, steps=6), *stay("last", "site-0", 3)]
    unnamed = run(rows)
    first, covered = about(unnamed)
    assert "fit --set probe_steps=N" in first and "--probe-steps N" in first
    assert (
        "at most 3, the length of the shortest episode; episodes shorter than 5 steps: 1." in first
    )
    assert "of the 3^5 initial action sequences of 5 steps" in covered
    text = unnamed.card_path.read_text().partition("## Before fitting")[2]
    assert first in text and covered in text
    assert about(run(rows, probe_steps=1)) == []
    (shortened,) = (line for line in about(run(rows, probe_steps=4)) if "shorter" in line)
    assert "1 episode is shorter than the probe's 4 steps" in shortened
    assert "--probe-steps 3" in shortened

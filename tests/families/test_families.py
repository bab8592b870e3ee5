"""The test-bed's families: their contracts, and that each has the one trait it stands for."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sept_offline as so
from benchmarks.families import NAMES
from sept_offline.environments import make_vector, reset_rows, spaces
from sept_offline.errors import FamilyError
from tests import processes

ROOT = Path(__file__).parents[2]
PATIENTS = ("glucose", "glucose_dose")
NEEDS = {
    **dict.fromkeys(PATIENTS, ("simglucose", "pandas", "gym")),
    "lander": ("Box2D", "pygame"),
}
"""Packages that are not the library's own."""
IN_ARRAYS = (
    *("delayed", "indifferent", "infused", "many", "reversed_torque", "slow_noisy", "steered"),
)
MATTERS = [name for name in NAMES if name != "indifferent"]

Trace = tuple[NDArray[Any], NDArray[Any]]


def module(name: str) -> Any:
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package, reason=f"the family {name} needs {package}: make testbed")
    return importlib.import_module(f"benchmarks.families.{name}")


def family_of(name: str) -> so.Family:
    found: so.Family = module(name).family
    return found


def trace(
    family: so.Family, hidden: so.family.Hidden, actions: Sequence[Any], seed: int = 0
) -> Trace:
    """Observations and rewards of an episode; nothing is ever handed out in `info`."""
    env = family.make(hidden)
    observation, info = env.reset(seed=seed)
    assert not info
    observations, rewards = [observation], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        assert not info and not truncated
        observations.append(observation)
        rewards.append(float(reward))
        if terminated:
            break
    env.close()  # type: ignore[no-untyped-call]
    return np.array(observations), np.array(rewards)


def some_actions(family: so.Family, steps: int, seed: int = 0) -> list[Any]:
    space = spaces(family)[1]
    drawn = space.uniform(steps).draw(np.random.default_rng(seed).random((steps, space.draws)))
    return list(drawn) if space.shape else drawn.tolist()


def same(one: Trace, other: Trace) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_module_is_listed() -> None:
    folder = Path(importlib.import_module("benchmarks.families").__file__ or "").parent
    found = {path.stem for path in folder.glob("*.py")} - {"__init__", "batch"}
    assert found == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_named_as_its_module_and_keeps_its_splits_apart(name: str) -> None:
    family = family_of(name)
    assert family.name == name
    seen = [
        {tuple(sorted(hidden.items())) for hidden in family.instances(split)}
        for split in ("train", "validation", "test")
    ]
    assert all(not one & other for one, other in combinations(seen, 2))
    assert [len(split) for split in seen] == [len(family.splits[s]) for s in family.splits]


@pytest.mark.parametrize("name", MATTERS)
def test_the_contract_holds(name: str) -> None:
    so.check_family(family_of(name))


def test_the_check_says_that_a_colour_changes_nothing() -> None:
    with pytest.raises(FamilyError, match="hidden parameters have no effect"):
        so.check_family(family_of("indifferent"))


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_an_episode(name: str) -> None:
    family = family_of(name)
    hidden, actions = family.instances("test")[0], some_actions(family, 20)
    assert same(trace(family, hidden, actions, 3), trace(family, hidden, actions, 3))
    assert not same(trace(family, hidden, actions, 3), trace(family, hidden, actions, 4))


@pytest.mark.parametrize("name", NAMES)
def test_instances_differ_where_the_hidden_factor_matters(name: str) -> None:
    family = family_of(name)
    actions = some_actions(family, 30)
    traces = [trace(family, hidden, actions) for hidden in family.instances("train")[:8]]
    pairs = [same(one, other) for one, other in combinations(traces, 2)]
    assert all(pairs) if name == "indifferent" else not any(pairs)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_observation_does_not_give_the_instance_away(name: str) -> None:
    family = family_of(name)
    hiddens = family.instances("train")[:8]
    if name in PATIENTS:
        # A patient's glucose is theirs from the start; meals and clock are everyone's.
        actions = some_actions(family, 48)
        seen = [trace(family, hidden, actions)[0][:, 1:] for hidden in hiddens[:3]]
    elif name == "lander":
        # Gymnasium's lander has fallen for one step when it is first seen; the sides do not show.
        seen = [trace(family, hidden, [])[0] for hidden in hiddens[:2]]
        assert hiddens[0]["gravity"] == hiddens[1]["gravity"]
    else:
        seen = [trace(family, hidden, [])[0] for hidden in hiddens]
    assert all(np.array_equal(one, seen[0]) for one in seen)


def test_a_fall_of_one_step_is_lost_in_how_landers_start() -> None:
    family = family_of("lander")
    train = family.instances("train")
    lightest, heaviest = (
        np.stack([trace(family, train[place], [], seed)[0][0] for seed in range(20)])
        for place in (0, -1)
    )
    apart = np.abs(lightest.mean(axis=0) - heaviest.mean(axis=0))
    assert (apart <= 0.5 * lightest.std(axis=0)).all() and apart.max() > 0


@pytest.mark.parametrize("name", IN_ARRAYS)
def test_a_batch_goes_on_as_single_environments_do(name: str) -> None:
    family = family_of(name)
    hiddens, limit = family.instances("train")[:5], 7
    single = {f: getattr(family, f) for f in family.__dataclass_fields__} | {"make_vec": None}
    rows = []
    for record in (family, so.Family(**single)):
        env = make_vector(record, hiddens, limit)
        seen = [reset_rows(record, env, [10 + row for row in range(5)])]
        for step in range(3 * limit):
            actions = np.array(some_actions(family, 5, seed=step))
            observation, reward, terminated, truncated, _ = env.step(actions)
            columns = [reward, terminated, truncated]
            seen.append(np.column_stack([observation, *columns]))
        env.close()
        rows.append(seen)
    assert all(np.array_equal(one, other) for one, other in zip(*rows, strict=True))


def test_a_wrong_hidden_name_is_refused() -> None:
    with pytest.raises(ValueError, match="gain, delay"):
        family_of("delayed").make({"gain": 1.0, "lag": 2.0})


@pytest.mark.parametrize("delay", [1, 3, 4])
def test_heat_arrives_after_the_delay(delay: int) -> None:
    family = family_of("delayed")
    hidden = {"gain": 0.5, "delay": float(delay)}
    _, heated = trace(family, hidden, [3, 0, 0, 0, 0, 0])
    _, cold = trace(family, hidden, [0, 0, 0, 0, 0, 0])
    assert np.flatnonzero(heated != cold)[0] == delay


def test_many_has_five_episodes_of_each_of_200_instances(tmp_path: Path) -> None:
    with so.collect_dataset(family_of("many"), tmp_path / "many.h5") as data:
        counts = [len(data.episodes(name)) for name in data.instances]
    assert counts == [5] * 200


def test_one_step_of_slow_noisy_tells_little_and_forty_tell_much() -> None:
    family = family_of("slow_noisy")
    assert family.make_vec is not None
    rows = 1000
    env = family.make_vec([{"effect": 1.0}, {"effect": -1.0}] * (rows // 2), 100)
    first, _ = env.reset(seed=0)
    right = []
    for _ in range(40):
        level = env.step(np.full(rows, 2))[0]
        right.append(float((np.sign(level - first)[:, 0] == [1, -1] * (rows // 2)).mean()))
    assert 0.52 < right[0] < 0.66 and right[-1] > 0.9


def test_a_reversed_motor_does_the_opposite() -> None:
    family = family_of("reversed_torque")
    actions = some_actions(family, 50)
    forth = trace(family, {"sign": 1.0, "strength": 0.9}, actions)
    back = trace(family, {"sign": -1.0, "strength": 0.9}, [4 - action for action in actions])
    assert same(forth, back)


def test_a_boat_that_is_turned_half_around_goes_the_other_way() -> None:
    family = family_of("steered")
    ahead, behind = (
        trace(family, {"angle": angle, "strength": 1.0}, [np.array([1.0, 0.0])] * 20)[0][-1]
        for angle in (0.0, np.pi)
    )
    assert ahead[2] > 1 and behind[2] < -1
    np.testing.assert_allclose(ahead[2:] + behind[2:], 0, atol=0.2)


def test_a_sensitive_patient_needs_less() -> None:
    family = family_of("infused")
    rates = [np.array([0.3])] * 40
    effects = [
        trace(family, {"clearance": 0.4, "sensitivity": value}, rates)[0][-1, 0]
        for value in (0.5, 1.0, 2.0)
    ]
    assert effects[0] + 0.1 < effects[1] < effects[2] - 0.1


def test_any_dose_is_the_dose_of_the_list() -> None:
    listed, free = family_of("glucose"), family_of("glucose_dose")
    hidden = listed.instances("train")[0]
    codes = [0, 4, 2, 3, 1]
    doses = [np.array([module("glucose").DOSES[code]]) for code in codes]
    one, other = trace(listed, hidden, codes), trace(free, hidden, doses)
    np.testing.assert_allclose(one[0], other[0], atol=1e-5)
    np.testing.assert_allclose(one[1], other[1], atol=1e-5)


def test_no_mountain_car_returns_more_than_five() -> None:
    family = family_of("mountain_car")
    returns = []
    for hidden in family.instances("test"):
        # Pushing with the speed, as the car feels it, is how to get there.
        env = family.make(hidden)
        observation, _ = env.reset(seed=1)
        total, terminated = 0.0, False
        while not terminated and total > -10:
            forth = (observation[1] > 0) == (hidden["force"] > 0)
            observation, reward, terminated, _, _ = env.step(2 if forth else 0)
            total += float(reward)
        returns.append(total)
    assert min(returns) > -5 and max(returns) < 5


def test_no_mountain_car_arrives_before_the_probe_is_over() -> None:
    car = module("mountain_car")
    for hidden in car.family.instances("train"):
        env = car.make(hidden)
        env.reset(seed=0)
        env.state = car.MOST
        action = 2 if hidden["force"] > 0 else 0
        ends = [env.step(action)[2] for _ in range(car.family.probe_steps)]
        assert not any(ends)
        # It was on its way.
        assert env.state[0] > 0.3


def test_swapped_engines_are_swapped() -> None:
    family = family_of("lander")
    actions = some_actions(family, 40)
    other = [{1: 3, 3: 1}.get(action, action) for action in actions]
    plain = trace(family, {"gravity": -9.0, "swapped": 0.0}, actions)
    assert same(plain, trace(family, {"gravity": -9.0, "swapped": 1.0}, other))
    assert not same(plain, trace(family, {"gravity": -9.0, "swapped": 1.0}, actions))


def test_careful_gives_probabilities() -> None:
    chances = module("lander").careful(np.random.default_rng(0).normal(size=(50, 8)))
    assert chances.shape == (50, 4) and (chances > 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_dosing_doses_for_meals_and_high_glucose() -> None:
    glucose = module("glucose")
    low, high, meal = (80 - 140) / 60, (240 - 140) / 60, 1.0
    chances = glucose.dosing(np.array([[low, 0, 0, 1], [high, 0, 0, 1], [low, meal, 0, 1]]))
    assert (chances > 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert chances.argmax(axis=1).tolist() == [0, 3, len(glucose.DOSES) - 1]


def test_patients_are_those_of_simglucose() -> None:
    glucose = module("glucose")
    pandas = pytest.importorskip("pandas")
    assert [len(glucose.family.splits[s]) for s in ("train", "validation", "test")] == [14, 4, 4]
    env = glucose.Patient("child#003")
    env.reset(seed=0)
    quick = env._patient
    table = pandas.read_csv(glucose.T1D.PATIENT_PARA_FILE).set_index("Name", drop=False)
    theirs = glucose.T1D.T1DPatient(table.loc["child#003"], init_state=quick.init_state.copy())
    for minute in range(60):
        action = glucose.T1D.Action(CHO=40.0 if minute == 10 else 0.0, insulin=0.02)
        quick.step(action)
        theirs.step(action)
    assert np.array_equal(quick.state, theirs.state) and quick.state[3] != quick.init_state[3]


def test_risk_is_least_in_the_middle() -> None:
    risk = module("glucose").risk
    values = [risk(glucose) for glucose in (40, 70, 140, 250, 400)]
    assert values[2] < 0.001 and values[0] > values[1] > values[2] < values[3] < values[4]
    assert risk(0.0) == risk(1000.0) == 2.0


def test_an_unknown_patient_is_refused() -> None:
    family = family_of("glucose")
    with pytest.raises(ValueError, match="no patient"):
        family.make(family.instances("test")[0] | {"weight": 1.0})


def test_by_command_from_logs_to_a_bench(tmp_path: Path) -> None:
    spec, logs = "benchmarks.families.reversed_torque:family", tmp_path / "motors.h5"
    done = processes.run("collect", spec, "--episodes", 24, "-o", logs, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    words = ["bench", "--quick", "--families", spec, "--dataset", logs]
    words += ["--methods", "avg,oracle", "--set", "control.updates=20"]
    done = processes.run(*words, "--workers", 1, "-o", tmp_path / "bench", "--json", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ran"], found["failed"]) == (2, [])
    assert {row["family"] for row in found["summary"]} == {"reversed_torque"}

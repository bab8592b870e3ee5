"""Worlds that the viewer draws: those that are shipped, and ones that are not sound."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sept_offline.family import family_names, load_family
from sept_offline.tools.report.episodes import COLUMNS, VALUES, plain_scene, playable, scene_of
from sept_offline.tools.report.sources import Run, read_run
from simulators.navigation2d import SWITCH_STEP


@pytest.fixture
def run(navigation: Path) -> Run:
    found = read_run(navigation / "sept")
    assert found.data is not None
    found.data.close()
    return found


@pytest.mark.parametrize(
    "name", [name for name in family_names() if load_family(name).scene is not None]
)
def test_every_scene_is_sound(name: str) -> None:
    family = load_family(name)
    assert family.scene is not None and family.observation_names is not None
    for split in family.splits:
        for hidden in family.instances(split):
            found = plain_scene(family.scene(hidden), len(family.observation_names))
            json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("z", [1, 2])
def test_the_wall_is_where_the_simulator_has_it(z: int) -> None:
    """A move into the goal through the drawn side fails; through the other it arrives."""
    family = load_family("navigation2d")
    assert family.scene is not None
    (wall,) = family.scene({"z": float(z)})["walls"]
    x0, y0, x1, y1 = wall["line"]
    assert (x0, y0) == (0.0, 0.0)
    below, beside = {"state": [1.0, -0.1]}, {"state": [-0.1, 1.0]}
    closed, opened = (below, beside) if y1 == 0 else (beside, below)
    assert (x1 == 0) != (y1 == 0)
    env = family.make({"z": float(z)})

    def arrives(start: dict[str, Any]) -> bool:
        ends = []
        for action in range(4):
            env.reset(seed=0, options=start)
            ends.append(env.step(action)[2])
        return any(ends)

    assert not arrives(closed)
    assert arrives(opened)


def test_the_switch_moves_its_wall() -> None:
    family = load_family("navigation2d-switch")
    assert family.scene is not None
    before, after = family.scene({"z": 1.0})["walls"]
    assert before["to"] == after["from"] == SWITCH_STEP
    assert before["line"] != after["line"]


def test_the_links_are_as_long_as_the_instance_says() -> None:
    family = load_family("acrobot")
    assert family.scene is not None
    scene = family.scene({"m1": 0.0, "m2": 0.0, "l1": 0.5, "l2": -0.5})
    assert scene["lengths"] == [1.5, 0.5]
    assert scene["goal"] == 1.5


def unsound(hidden: Any) -> Any:
    raise RuntimeError("no picture today")


@pytest.mark.parametrize(
    "scene",
    [
        unsound,
        lambda hidden: {"kind": "opera"},
        lambda hidden: {"kind": "plane", "x": 0, "y": 7, "box": (0, 1, 0, 1)},
        lambda hidden: {"kind": "plane", "x": 0, "y": 1, "box": (0, 1)},
        lambda hidden: {"kind": "links", "lengths": [1.0], "angles": [0, 1]},
        lambda hidden: {"kind": "links", "lengths": [float("nan")], "angles": [0]},
        lambda hidden: {"kind": "doses", "drugs": ["A"], "given": [[True, False]]},
        lambda hidden: {"kind": "plane", "x": 0.5, "y": 1, "box": (0, 1, 0, 1)},
        lambda hidden: {"kind": "plane", "x": 0, "y": 1, "box": (0, 0, 0, 0)},
        lambda hidden: {
            "kind": "plane",
            "x": 0,
            "y": 1,
            "box": (0, 1, 0, 1),
            "walls": [{"line": (0, 0, 1, 1), "to": math.inf}],
        },
    ],
)
def test_a_scene_that_is_not_sound_gives_way_to_columns(run: Run, scene: Any) -> None:
    assert run.family is not None
    own = dataclasses.replace(run, family=dataclasses.replace(run.family, scene=scene))
    assert scene_of(own, "test-0", 2) == COLUMNS
    assert scene_of(run, "test-0", 2) != COLUMNS


def test_numbers_of_numpy_become_plain_ones() -> None:
    scene = {
        "kind": "plane",
        "x": np.int64(0),
        "y": 1,
        "box": np.array([0.0, 1.0, 0.0, 1.0]),
        "walls": [{"line": np.zeros(4), "from": np.int64(3)}],
    }
    assert json.loads(json.dumps(plain_scene(scene, 2)))["walls"] == [
        {"line": [0.0] * 4, "from": 3}
    ]
    given = {"kind": "doses", "drugs": (1,), "given": [np.array([True])]}
    assert json.loads(json.dumps(plain_scene(given, 2)))["drugs"] == ["1"]


def test_of_too_many_episodes_some_are_left_out_evenly(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.results is not None
    shown, left = playable([run])
    assert (len(shown), left) == (len(run.results.episodes), 0)
    size = sum(len(one) + 2 for e in run.results.episodes for one in e.observations or ())
    assert size < VALUES
    monkeypatch.setattr("sept_offline.tools.report.episodes.VALUES", size // 2)
    shown, left = playable([run])
    assert left >= 4 and len(shown) + left == len(run.results.episodes)
    names = [episode["instance"] for episode in shown]
    assert len(set(names)) == len(names)


def test_an_endless_episode_is_not_played(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.results is not None
    monkeypatch.setattr("sept_offline.tools.report.episodes.LARGEST", 10)
    assert playable([run]) == ([], len(run.results.episodes))


def test_a_latent_is_shown_when_it_is_known(run: Run) -> None:
    assert run.agent is not None
    (shown, *_), _ = playable([run])
    assert shown["known"] == run.agent.probe_steps == 1
    assert not shown["moves"]


def test_results_without_observations_play_nothing(run: Run) -> None:
    assert run.results is not None
    bare = tuple(dataclasses.replace(e, observations=None) for e in run.results.episodes)
    old = dataclasses.replace(run, results=dataclasses.replace(run.results, episodes=bare))
    assert playable([old]) == ([], 0)


def test_a_run_of_a_family_that_is_not_installed_is_played_as_columns(run: Run) -> None:
    own = dataclasses.replace(run, family=None)
    assert scene_of(own, "test-0", 2) == COLUMNS

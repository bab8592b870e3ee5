"""The families that are shipped, one frozen record each, with the scenes that draw them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sept_offline.family import Family, Hidden
from simulators.acrobot import ACROBOT, LENGTH
from simulators.dynamics import Dynamics
from simulators.environment import SimulatorEnv, SimulatorVectorEnv
from simulators.hiv import HIV
from simulators.locomotion import HOPPER, STEPS, WALKER, LocomotionEnv, Robot
from simulators.navigation2d import BOX, NAVIGATION2D, NAVIGATION2D_SWITCH, SWITCH_STEP
from simulators.pendulum import PENDULUM
from simulators.point_robot import GOAL_X, GOAL_Y, POINT_ROBOT_WIND, STRIDE

_HERE = Path(__file__).parent
_DRAWN = json.loads((_HERE / "data" / "splits.json").read_text(encoding="utf-8"))

# The patients of the paper's run, in the order of the hidden parameters.
_PAPER_PATIENTS = (
    (0.4, 0.4, 0.0, 0.4, 0.8, 0.4, 0.4, -0.4, 0.0, 0.8, -0.8, 0.0),
    (0.0, -0.4, -0.8, 0.4, -0.4, 0.4, -0.8, -0.8, -0.4, 0.8, 0.4, 0.0),
    (0.0, 0.4, -0.4, -0.8, -0.4, -0.4, -0.8, 0.8, 0.0, 0.0, 0.4, 0.0),
    (-0.8, 0.0, 0.4, 0.4, 0.8, -0.8, -0.8, -0.8, 0.4, -0.4, -0.8, 0.0),
    (-0.8, -0.8, 0.4, 0.8, 0.8, 0.8, -0.8, -0.8, -0.4, -0.8, -0.8, -0.4),
)

# Steps to solve in the paper's table, by method; it has none for the switch.
PAPER_NAVIGATION = {"sept": 20, "avg": 49, "oracle": 12, "bnn": 34, "epopt": 49, "maml": 49}
PAPER_ACROBOT = {"sept": 100, "avg": 114, "oracle": 88, "bnn": 169, "epopt": 91, "maml": 99}

Scene = dict[str, Any]
Wall = tuple[float, float, float, float]

SOUTH: Wall = (0.0, 0.0, BOX, 0.0)
"""x, y, x, y: closes the goal's lower side, as mode 1 does."""
WEST: Wall = (0.0, 0.0, 0.0, BOX)
DRUGS = {"none": (False, False), "RTI": (True, False), "PI": (False, True), "both": (True, True)}


def _navigation_scene(hidden: Hidden) -> Scene:
    """A point in its box, the goal's quarter, and the wall of the mode."""
    return _box([{"line": SOUTH if int(hidden["z"]) == 1 else WEST}])


def _switch_scene(hidden: Hidden) -> Scene:
    """The same; the wall moves when the mode does."""
    before, after = (SOUTH, WEST) if int(hidden["z"]) == 1 else (WEST, SOUTH)
    return _box([{"line": before, "to": SWITCH_STEP}, {"line": after, "from": SWITCH_STEP}])


def _box(walls: list[dict[str, Any]]) -> Scene:
    return {
        "kind": "plane",
        "x": 0,
        "y": 1,
        "box": (-BOX, BOX, -BOX, BOX),
        "goal": (0.0, BOX, 0.0, BOX),
        "walls": walls,
    }


def _acrobot_scene(hidden: Hidden) -> Scene:
    """Two links hanging from a pivot, and the height that the tip must reach."""
    lengths = [LENGTH * (1.0 + hidden[name]) for name in ("l1", "l2")]
    angles = [ACROBOT.observation_names.index(name) for name in ("theta1", "theta2")]
    return {"kind": "links", "lengths": lengths, "angles": angles, "goal": lengths[0]}


def _hiv_scene(hidden: Hidden) -> Scene:
    """Six populations over time, and which of two drugs is given at each step."""
    return {
        "kind": "doses",
        "drugs": ("RTI", "PI"),
        "given": [DRUGS[name] for name in HIV.action_names],
    }


def _robot_scene(hidden: Hidden) -> Scene:
    """A point that starts at the origin, and a square around the goal, one move wide."""
    half = STRIDE / 2
    return {
        "kind": "plane",
        "x": 0,
        "y": 1,
        "box": (-0.5, 1.5, -1.0, 1.0),
        "goal": (GOAL_X - half, GOAL_X + half, GOAL_Y - half, GOAL_Y + half),
        "walls": [],
    }


def _batch(
    dynamics: Dynamics, hiddens: Sequence[Hidden], max_episode_steps: int
) -> SimulatorVectorEnv:
    return SimulatorVectorEnv(dynamics, len(hiddens), list(hiddens), max_episode_steps)


def _shipped(path: str) -> Path | None:
    """A file or folder of `datasets/`: inside this package in a wheel, or in the source tree."""
    places = (_HERE / path, _HERE.parent / "datasets" / path)
    return next((place for place in places if place.exists()), None)


def _files(name: str) -> dict[str, Any]:
    """The files of the family `name`, by the fields of its record."""
    return {
        "recipe": _shipped(f"recipes/{name}.toml"),
        "experts": _shipped(f"experts/{name}"),
        "references": _shipped(f"data/references/{name}.json"),
    }


def _family(dynamics: Dynamics, **facts: Any) -> Family:
    """The family of these dynamics; `facts` are the fields that they do not have."""
    return Family(
        name=dynamics.name,
        make=partial(SimulatorEnv, dynamics),
        make_vec=partial(_batch, dynamics),
        train_steps=dynamics.train_steps,
        observation_names=dynamics.observation_names,
        action_names=dynamics.action_names,
        **_files(dynamics.name),
        **facts,
    )


def _robot(robot: Robot) -> Family:
    return Family(
        name=robot.name,
        make=partial(LocomotionEnv, robot),
        splits=robot.draw({"train": 20, "test": 20, "validation": 5}),
        train_steps=STEPS,
        test_steps=STEPS,
        probe_steps=8,
        latent_dim=6,
        **_files(robot.name),
        extra="mujoco",
        benched=False,
    )


def _equal(*deltas: float) -> list[Hidden]:
    """Acrobots whose masses and lengths all differ from nominal by the same share."""
    return [{parameter.name: delta for parameter in ACROBOT.hidden} for delta in deltas]


_MODES = ({"z": 1.0}, {"z": 2.0})
_NAVIGATION: dict[str, Any] = {
    "splits": {"train": _MODES, "validation": _MODES, "test": _MODES * 5},
    "test_steps": 50,
    "probe_steps": 2,
    "latent_dim": 2,
    "solved": 1000.0,
}
navigation2d = _family(
    NAVIGATION2D, **_NAVIGATION, published=PAPER_NAVIGATION, scene=_navigation_scene
)
navigation2d_switch = _family(NAVIGATION2D_SWITCH, **_NAVIGATION, scene=_switch_scene)
acrobot = _family(
    ACROBOT,
    splits={
        "train": _equal(-0.3, -0.1, 0.1, 0.3),
        "validation": _equal(-0.25, 0.0, 0.25),
        "test": _equal(-0.35, -0.2, 0.2, 0.35),
        "test-independent": _DRAWN["acrobot"]["test-independent"],
    },
    test_steps=200,
    probe_steps=5,
    latent_dim=2,
    solved=10.0,
    published=PAPER_ACROBOT,
    scene=_acrobot_scene,
)
_HIDDEN_OF_HIV = [parameter.name for parameter in HIV.hidden]
hiv = _family(
    HIV,
    splits={
        **_DRAWN["hiv"],
        "paper": [dict(zip(_HIDDEN_OF_HIV, patient, strict=True)) for patient in _PAPER_PATIENTS],
    },
    test_steps=200,
    probe_steps=8,
    latent_dim=6,
    scene=_hiv_scene,
)
pendulum = _family(
    PENDULUM,
    splits=_DRAWN["pendulum"],
    test_steps=200,
    probe_steps=4,
    latent_dim=3,
    benched=False,
)
point_robot_wind = _family(
    POINT_ROBOT_WIND,
    splits=_DRAWN["point-robot-wind"],
    test_steps=25,
    # One step shows the wind, and every step that is not control costs its distance.
    probe_steps=1,
    latent_dim=2,
    scene=_robot_scene,
    benched=False,
)
hopper_params = _robot(HOPPER)
walker_params = _robot(WALKER)

FAMILIES = {
    family.name: family
    for family in (
        *(navigation2d, navigation2d_switch, acrobot, hiv, pendulum, point_robot_wind),
        *(hopper_params, walker_params),
    )
}

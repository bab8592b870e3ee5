"""The families that are shipped, one frozen record each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sept_offline.family import Family, Hidden
from simulators import scenes
from simulators.acrobot import ACROBOT
from simulators.dynamics import Dynamics
from simulators.environment import SimulatorEnv, SimulatorVectorEnv
from simulators.hiv import HIV
from simulators.locomotion import HOPPER, STEPS, WALKER, LocomotionEnv, Robot
from simulators.navigation2d import NAVIGATION2D, NAVIGATION2D_SWITCH
from simulators.pendulum import PENDULUM
from simulators.point_robot import POINT_ROBOT_WIND

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


PAPER_NAVIGATION = {"sept": 20, "avg": 49, "oracle": 12, "bnn": 34, "epopt": 49, "maml": 49}
PAPER_ACROBOT = {"sept": 100, "avg": 114, "oracle": 88, "bnn": 169, "epopt": 91, "maml": 99}
"""Steps to solve in the paper's table, by method."""


def _environment(dynamics: Dynamics, hidden: Hidden) -> SimulatorEnv:
    return SimulatorEnv(dynamics, hidden)


def _batch(
    dynamics: Dynamics, hiddens: Sequence[Hidden], max_episode_steps: int
) -> SimulatorVectorEnv:
    return SimulatorVectorEnv(dynamics, len(hiddens), list(hiddens), max_episode_steps)


def _makers(
    dynamics: Dynamics,
) -> tuple[Callable[[Hidden], SimulatorEnv], Callable[[Sequence[Hidden], int], SimulatorVectorEnv]]:
    return partial(_environment, dynamics), partial(_batch, dynamics)


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


def _same(delta: float) -> dict[str, float]:
    return {parameter.name: delta for parameter in ACROBOT.hidden}


def _navigation(dynamics: Dynamics) -> Family:
    make, make_vec = _makers(dynamics)
    both = ({"z": 1.0}, {"z": 2.0})
    return Family(
        name=dynamics.name,
        make=make,
        make_vec=make_vec,
        splits={"train": both, "validation": both, "test": both * 5},
        train_steps=dynamics.train_steps,
        test_steps=50,
        probe_steps=2,
        latent_dim=2,
        solved=1000.0,
        observation_names=dynamics.observation_names,
        action_names=dynamics.action_names,
        **_files(dynamics.name),
        # The paper's table of steps to solve; it has none for the switch.
        published=PAPER_NAVIGATION if dynamics is NAVIGATION2D else {},
        scene=scenes.navigation if dynamics is NAVIGATION2D else scenes.navigation_switch,
    )


def _acrobot() -> Family:
    make, make_vec = _makers(ACROBOT)
    return Family(
        name="acrobot",
        make=make,
        make_vec=make_vec,
        splits={
            "train": [_same(delta) for delta in (-0.3, -0.1, 0.1, 0.3)],
            "validation": [_same(delta) for delta in (-0.25, 0.0, 0.25)],
            "test": [_same(delta) for delta in (-0.35, -0.2, 0.2, 0.35)],
            "test-independent": _DRAWN["acrobot"]["test-independent"],
        },
        train_steps=ACROBOT.train_steps,
        test_steps=200,
        probe_steps=5,
        latent_dim=2,
        solved=10.0,
        observation_names=ACROBOT.observation_names,
        action_names=ACROBOT.action_names,
        **_files("acrobot"),
        published=PAPER_ACROBOT,
        scene=scenes.acrobot,
    )


def _hiv() -> Family:
    make, make_vec = _makers(HIV)
    names = [parameter.name for parameter in HIV.hidden]
    paper = [dict(zip(names, patient, strict=True)) for patient in _PAPER_PATIENTS]
    return Family(
        name="hiv",
        make=make,
        make_vec=make_vec,
        splits={**_DRAWN["hiv"], "paper": paper},
        train_steps=HIV.train_steps,
        test_steps=200,
        probe_steps=8,
        latent_dim=6,
        solved=None,
        observation_names=HIV.observation_names,
        action_names=HIV.action_names,
        **_files("hiv"),
        scene=scenes.hiv,
    )


def _pendulum() -> Family:
    make, make_vec = _makers(PENDULUM)
    return Family(
        name="pendulum",
        make=make,
        make_vec=make_vec,
        splits=_DRAWN["pendulum"],
        train_steps=PENDULUM.train_steps,
        test_steps=200,
        probe_steps=4,
        latent_dim=3,
        observation_names=PENDULUM.observation_names,
        action_names=PENDULUM.action_names,
        **_files("pendulum"),
        benched=False,
    )


def _point_robot_wind() -> Family:
    make, make_vec = _makers(POINT_ROBOT_WIND)
    return Family(
        name="point-robot-wind",
        make=make,
        make_vec=make_vec,
        splits=_DRAWN["point-robot-wind"],
        train_steps=POINT_ROBOT_WIND.train_steps,
        test_steps=25,
        # One step shows the wind, and every step that is not control costs its distance.
        probe_steps=1,
        latent_dim=2,
        observation_names=POINT_ROBOT_WIND.observation_names,
        action_names=POINT_ROBOT_WIND.action_names,
        **_files("point-robot-wind"),
        scene=scenes.point_robot,
        benched=False,
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


navigation2d = _navigation(NAVIGATION2D)
navigation2d_switch = _navigation(NAVIGATION2D_SWITCH)
acrobot = _acrobot()
hiv = _hiv()
pendulum = _pendulum()
point_robot_wind = _point_robot_wind()
hopper_params = _robot(HOPPER)
walker_params = _robot(WALKER)

FAMILIES = {
    one.name: one
    for one in (
        *(navigation2d, navigation2d_switch, acrobot, hiv, pendulum, point_robot_wind),
        *(hopper_params, walker_params),
    )
}

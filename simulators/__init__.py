"""Gymnasium environments of the benchmark families; importing this package registers them."""

from __future__ import annotations

from functools import partial

import gymnasium

from sept_offline.family import Family
from simulators.acrobot import ACROBOT
from simulators.environment import SimulatorEnv, SimulatorVectorEnv
from simulators.families import FAMILIES
from simulators.hiv import HIV
from simulators.locomotion import HOPPER, STEPS, WALKER, LocomotionEnv
from simulators.navigation2d import NAVIGATION2D, NAVIGATION2D_SWITCH
from simulators.pendulum import PENDULUM
from simulators.point_robot import POINT_ROBOT_WIND

__all__ = ["family"]

IDS = {
    "sept/Navigation2D-v0": NAVIGATION2D,
    "sept/Navigation2DSwitch-v0": NAVIGATION2D_SWITCH,
    "sept/Acrobot-v0": ACROBOT,
    "sept/HIV-v0": HIV,
    "sept/Pendulum-v0": PENDULUM,
    "sept/PointRobotWind-v0": POINT_ROBOT_WIND,
}


def family(name: str) -> Family:
    """The shipped family of that name, for example "acrobot"."""
    if name not in FAMILIES:
        raise ValueError(f"There is no family {name!r}; expected one of {', '.join(FAMILIES)}.")
    return FAMILIES[name]


for _id, _dynamics in IDS.items():
    gymnasium.register(
        _id,
        entry_point=partial(SimulatorEnv, _dynamics),
        vector_entry_point=partial(SimulatorVectorEnv, _dynamics),
        max_episode_steps=_dynamics.train_steps,
    )

for _id, _robot in (("sept/HopperParams-v0", HOPPER), ("sept/WalkerParams-v0", WALKER)):
    gymnasium.register(_id, entry_point=partial(LocomotionEnv, _robot), max_episode_steps=STEPS)

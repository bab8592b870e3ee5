"""Hopper and walker whose masses, inertias, damping and friction are hidden; they need MuJoCo."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Hidden = Mapping[str, float]

AXES = ("x", "y", "z")
CONTACTS = ("slide", "spin", "roll")
SPREAD = 3.0  # a multiplier is a base to the power of u, u uniform in [-SPREAD, SPREAD]
BASES = {"mass": 1.5, "inertia": 1.5, "damping": 1.3, "friction": 1.5}
DECIMALS = 4
STEPS = 200


@dataclass(frozen=True)
class Robot:
    """A robot of Gymnasium, and the names of what a multiplier changes.

    Left out are the world's mass and the joints without damping: nothing changes them.
    """

    name: str
    environment: str
    """Gymnasium's class, `module:class`."""
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    geoms: tuple[str, ...]
    seed: int
    """Of the instances."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the multipliers."""
        return (
            *(f"mass_{body}" for body in self.bodies),
            *(f"inertia_{body}_{axis}" for body in self.bodies for axis in AXES),
            *(f"damping_{joint}" for joint in self.joints),
            *(f"friction_{geom}_{contact}" for geom in self.geoms for contact in CONTACTS),
        )

    def draw(self, counts: Mapping[str, int]) -> dict[str, list[dict[str, float]]]:
        """Instances of each split, one after the other from one stream."""
        random = np.random.default_rng(self.seed)
        names = self.parameters
        bases = np.array([BASES[name.partition("_")[0]] for name in names])
        return {
            split: [
                dict(zip(names, row, strict=True))
                for row in np.round(
                    bases ** random.uniform(-SPREAD, SPREAD, (count, len(names))), DECIMALS
                ).tolist()
            ]
            for split, count in counts.items()
        }


HOPPER = Robot(
    name="hopper-params",
    environment="gymnasium.envs.mujoco.hopper_v5:HopperEnv",
    bodies=("torso", "thigh", "leg", "foot"),
    joints=("thigh_joint", "leg_joint", "foot_joint"),
    geoms=("floor", "torso_geom", "thigh_geom", "leg_geom", "foot_geom"),
    seed=20200105,
)
_SIDES = ("thigh", "leg", "foot", "thigh_left", "leg_left", "foot_left")
WALKER = Robot(
    name="walker-params",
    environment="gymnasium.envs.mujoco.walker2d_v5:Walker2dEnv",
    bodies=("torso", *_SIDES),
    joints=tuple(f"{side}_joint" for side in _SIDES),
    geoms=("floor", "torso_geom", *(f"{side}_geom" for side in _SIDES)),
    seed=20200106,
)


class LocomotionEnv(gymnasium.Env[NDArray[np.float32], Any]):
    """One instance: Gymnasium's robot with some of its physics multiplied, observed as float32."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, robot: Robot, hidden: Hidden | None = None) -> None:
        multipliers = _checked(robot, hidden)
        try:
            import mujoco

            module, _, name = robot.environment.partition(":")
            kind = getattr(__import__(module, fromlist=[name]), name)
        except ImportError as error:
            raise ModuleNotFoundError(
                f'{robot.name} needs MuJoCo, which is not installed: pip install "sept-offline['
                'mujoco]".'
            ) from error
        self._inside = kind()
        model = self._inside.model
        for body in robot.bodies:
            place = model.body(body).id
            model.body_mass[place] *= multipliers[f"mass_{body}"]
            for axis, letter in enumerate(AXES):
                model.body_inertia[place, axis] *= multipliers[f"inertia_{body}_{letter}"]
        for joint in robot.joints:
            model.dof_damping[model.joint(joint).dofadr] *= multipliers[f"damping_{joint}"]
        for geom in robot.geoms:
            place = model.geom(geom).id
            for column, contact in enumerate(CONTACTS):
                model.geom_friction[place, column] *= multipliers[f"friction_{geom}_{contact}"]
        # What MuJoCo derives from masses and inertias.
        mujoco.mj_setConst(model, self._inside.data)
        self.action_space = self._inside.action_space
        shape = self._inside.observation_space.shape
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode, from `options["state"]` if it is given."""
        super().reset(seed=seed)
        unknown = set(options or {}) - {"state"}
        if unknown:
            raise ValueError(f"Unknown reset option {min(unknown)!r}; expected state.")
        observation, _ = self._inside.reset(seed=seed)
        if options:
            state = np.array(options["state"], dtype=np.float64)
            if state.shape != self.observation_space.shape or not np.isfinite(state).all():
                raise ValueError(
                    "Reset option 'state' must be finite numbers of shape "
                    f"{self.observation_space.shape}, got {options['state']!r:.200}."
                )
            # The place along the way is not observed.
            places = self._inside.model.nq - 1
            self._inside.set_state(np.append(0.0, state[:places]), state[places:])
            observation = state
        return observation.astype(np.float32), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take one action; the episode ends when the robot falls."""
        given = np.asarray(action, dtype=np.float32)
        if given.shape != self.action_space.shape or not self.action_space.contains(given):
            raise ValueError(
                f"An action must be a vector of shape {self.action_space.shape} between -1 and 1, "
                f"got {action!r}."
            )
        observation, reward, terminated, _, _ = self._inside.step(given)
        return observation.astype(np.float32), float(reward), bool(terminated), False, {}

    def close(self) -> None:
        """Let go of the simulator."""
        self._inside.close()


def _checked(robot: Robot, hidden: Hidden | None) -> dict[str, float]:
    """All multipliers; missing ones are 1."""
    given = {} if hidden is None else hidden
    if not isinstance(given, Mapping):
        raise ValueError(f"The hidden parameters must be a dict, got {hidden!r:.200}.")
    names = robot.parameters
    value: Any
    for name, value in given.items():
        if name not in names:
            raise ValueError(f"Family {robot.name!r} has no hidden parameter {name!r}.")
        number = float(value) if isinstance(value, Real | np.number) else math.nan
        if not 0.0 < number < math.inf:
            raise ValueError(f"Hidden parameter {name!r} must be above 0, got {value!r}.")
    return dict.fromkeys(names, 1.0) | {name: float(value) for name, value in given.items()}

"""Pendulum: Gymnasium's swing-up with a hidden mass, length and sign of the torque."""

from __future__ import annotations

import math

import numpy as np

from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, Observations
from simulators.elementary import compiled, sin_cos, wrap

TIME_STEP = 0.05  # s
GRAVITY = 10.0  # m/s^2
MAX_TORQUE = 2.0  # N m
MAX_SPEED = 8.0  # rad/s
SPEED_COST = 0.1
TORQUE_COST = 0.001
START_SPEED = 1.0  # rad/s, the start is uniform in [-START_SPEED, START_SPEED], at any angle
MOST = 10.0  # kg and m


@compiled
def _advance(
    state: Array,
    action: Array,
    hidden: Array,
    elapsed: Integers,
    after: Array,
    reward: Array,
    terminated: Mask,
) -> None:
    """Angle 0 is up. The cost is that of the state before the step, and counts the torque asked."""
    for row in range(state.shape[0]):
        angle, speed, torque = state[row, 0], state[row, 1], action[row, 0]
        mass, length, sign = hidden[row, 0], hidden[row, 1], hidden[row, 2]
        reward[row] = -(
            angle * angle + SPEED_COST * (speed * speed) + TORQUE_COST * (torque * torque)
        )
        terminated[row] = False
        fall = 3.0 * GRAVITY / (2.0 * length) * sin_cos(angle)[0]
        push = 3.0 / (mass * (length * length)) * (sign * torque)
        speed = min(max(speed + (fall + push) * TIME_STEP, -MAX_SPEED), MAX_SPEED)
        after[row, 0] = wrap(angle + speed * TIME_STEP)
        after[row, 1] = speed


@compiled
def _observe(state: Array) -> Observations:
    seen = np.empty((state.shape[0], 3), dtype=np.float32)
    for row in range(state.shape[0]):
        sine, cosine = sin_cos(state[row, 0])
        seen[row, 0] = cosine
        seen[row, 1] = sine
        seen[row, 2] = state[row, 1]
    return seen


def _from_observation(seen: Array) -> Array:
    """The angle is the direction of (cos, sin), whatever its length."""
    return np.stack([np.arctan2(seen[:, 1], seen[:, 0]), seen[:, 2]], axis=1)


PENDULUM = Dynamics(
    name="pendulum",
    advance=_advance,
    observe=_observe,
    hidden=(
        HiddenParameter("mass", default=1.0, above=0.0, most=MOST),
        HiddenParameter("length", default=1.0, above=0.0, most=MOST),
        HiddenParameter("sign", default=1.0, choices=(-1.0, 1.0)),
    ),
    observation_names=("cos", "sin", "speed"),
    observation_low=(-1.0, -1.0, -MAX_SPEED),
    observation_high=(1.0, 1.0, MAX_SPEED),
    start_low=(-math.pi, -START_SPEED),
    start_high=(math.pi, START_SPEED),
    action_names=("torque",),
    action_low=(-MAX_TORQUE,),
    action_high=(MAX_TORQUE,),
    train_steps=200,
    from_observation=_from_observation,
)

"""Acrobot: two links, a torque on the joint between them, hidden masses and lengths."""

from __future__ import annotations

import math

import numpy as np

from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, as_float32
from simulators.elementary import compiled, sin_cos, wrap

TIME_STEP = 0.2  # s, one RK4 step an action
GRAVITY = 9.8  # m/s^2
MASS = 1.0  # kg, of each link at nominal
LENGTH = 1.0  # m, of each link at nominal
CENTRE = 0.5  # m from the joint to the centre of mass, for any length of the link
INERTIA = 1.0  # kg m^2, of each link
MAX_SPEED_1 = 4.0 * math.pi  # rad/s
MAX_SPEED_2 = 9.0 * math.pi  # rad/s
START = 0.1  # rad and rad/s, the start is uniform in [-START, START]
REWARD_UP = 10.0
HEIGHT_COST = 0.05  # per m^2


@compiled
def accelerations(
    theta1: float, theta2: float, speed1: float, speed2: float, torque: float, hidden: Array
) -> tuple[float, float]:
    """Angular accelerations of both links, by the equations of Sutton and Barto's book."""
    m1 = MASS * (1.0 + hidden[0])
    m2 = MASS * (1.0 + hidden[1])
    l1 = LENGTH * (1.0 + hidden[2])
    sin1, cos1 = sin_cos(theta1)
    sin2, cos2 = sin_cos(theta2)
    sin12 = sin1 * cos2 + cos1 * sin2
    coupling = m2 * l1 * CENTRE
    d1 = m1 * CENTRE**2 + m2 * (l1**2 + CENTRE**2) + 2.0 * coupling * cos2 + 2.0 * INERTIA
    d2 = m2 * CENTRE**2 + coupling * cos2 + INERTIA
    phi2 = m2 * CENTRE * GRAVITY * sin12
    phi1 = (
        -coupling * speed2**2 * sin2
        - 2.0 * coupling * speed2 * speed1 * sin2
        + (m1 * CENTRE + m2 * l1) * GRAVITY * sin1
        + phi2
    )
    ratio = d2 / d1
    second = (torque + ratio * phi1 - coupling * speed1**2 * sin2 - phi2) / (
        m2 * CENTRE**2 + INERTIA - d2 * ratio
    )
    return -(d2 * second + phi1) / d1, second


@compiled
def rk4(
    theta1: float,
    theta2: float,
    speed1: float,
    speed2: float,
    torque: float,
    hidden: Array,
    dt: float,
) -> tuple[float, float, float, float]:
    """One Runge-Kutta step of `dt` seconds under a constant torque, before wrapping and limits."""
    half = 0.5 * dt
    a1, a2 = accelerations(theta1, theta2, speed1, speed2, torque, hidden)
    u1, u2 = speed1 + half * a1, speed2 + half * a2
    b1, b2 = accelerations(theta1 + half * speed1, theta2 + half * speed2, u1, u2, torque, hidden)
    v1, v2 = speed1 + half * b1, speed2 + half * b2
    c1, c2 = accelerations(theta1 + half * u1, theta2 + half * u2, v1, v2, torque, hidden)
    w1, w2 = speed1 + dt * c1, speed2 + dt * c2
    e1, e2 = accelerations(theta1 + dt * v1, theta2 + dt * v2, w1, w2, torque, hidden)
    sixth = dt / 6.0
    return (
        theta1 + sixth * (speed1 + 2.0 * u1 + 2.0 * v1 + w1),
        theta2 + sixth * (speed2 + 2.0 * u2 + 2.0 * v2 + w2),
        speed1 + sixth * (a1 + 2.0 * b1 + 2.0 * c1 + e1),
        speed2 + sixth * (a2 + 2.0 * b2 + 2.0 * c2 + e2),
    )


@compiled
def _advance(
    state: Array,
    action: Integers,
    hidden: Array,
    elapsed: Integers,
    after: Array,
    reward: Array,
    terminated: Mask,
) -> None:
    for row in range(state.shape[0]):
        theta1, theta2, speed1, speed2 = rk4(
            state[row, 0],
            state[row, 1],
            state[row, 2],
            state[row, 3],
            float(action[row] - 1),
            hidden[row],
            TIME_STEP,
        )
        theta1, theta2 = wrap(theta1), wrap(theta2)
        after[row, 0] = theta1
        after[row, 1] = theta2
        after[row, 2] = min(max(speed1, -MAX_SPEED_1), MAX_SPEED_1)
        after[row, 3] = min(max(speed2, -MAX_SPEED_2), MAX_SPEED_2)
        l1 = LENGTH * (1.0 + hidden[row, 2])
        l2 = LENGTH * (1.0 + hidden[row, 3])
        height = -l1 * sin_cos(theta1)[1] - l2 * sin_cos(theta1 + theta2)[1]
        up = height >= l1
        terminated[row] = up
        reward[row] = REWARD_UP if up else -HEIGHT_COST * (height - l1) ** 2


def energy(state: Array, hidden: Array) -> Array:
    """Kinetic plus potential energy [n] in J of state[n, 4], hidden[n, 4]; constant at torque 0."""
    theta1, theta2, speed1, speed2 = state.T
    m1, m2 = MASS * (1.0 + hidden[:, 0]), MASS * (1.0 + hidden[:, 1])
    l1 = LENGTH * (1.0 + hidden[:, 2])
    speed12 = speed1 + speed2
    kinetic = 0.5 * (
        (m1 * CENTRE**2 + INERTIA + m2 * l1**2) * speed1**2
        + (m2 * CENTRE**2 + INERTIA) * speed12**2
    ) + m2 * l1 * CENTRE * speed1 * speed12 * np.cos(theta2)
    potential = -(m1 * CENTRE + m2 * l1) * GRAVITY * np.cos(
        theta1
    ) - m2 * CENTRE * GRAVITY * np.cos(theta1 + theta2)
    total: Array = kinetic + potential
    return total


ACROBOT = Dynamics(
    name="acrobot",
    advance=_advance,
    observe=as_float32,
    hidden=tuple(HiddenParameter(name) for name in ("m1", "m2", "l1", "l2")),
    observation_names=("theta1", "theta2", "speed1", "speed2"),
    observation_low=(-math.pi, -math.pi, -MAX_SPEED_1, -MAX_SPEED_2),
    observation_high=(math.pi, math.pi, MAX_SPEED_1, MAX_SPEED_2),
    start_low=(-START,) * 4,
    start_high=(START,) * 4,
    action_names=("torque -1", "torque 0", "torque +1"),
    train_steps=400,
)

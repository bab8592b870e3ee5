"""A point robot in an unknown, constant wind: FOCAL's point-robot-wind."""

from __future__ import annotations

import numpy as np

from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, as_float32
from simulators.elementary import compiled

GOAL_X, GOAL_Y = 1.0, 0.0  # length
STRIDE = 0.1  # most length of a move, in x and in y
FAR = 1000.0  # length, far beyond the 25 steps of an episode


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
    for row in range(state.shape[0]):
        x = state[row, 0] + (action[row, 0] + hidden[row, 0])
        y = state[row, 1] + (action[row, 1] + hidden[row, 1])
        after[row, 0] = x
        after[row, 1] = y
        away_x, away_y = x - GOAL_X, y - GOAL_Y
        reward[row] = -np.sqrt(away_x * away_x + away_y * away_y)
        terminated[row] = False


POINT_ROBOT_WIND = Dynamics(
    name="point-robot-wind",
    advance=_advance,
    observe=as_float32,
    hidden=(HiddenParameter("wind_x"), HiddenParameter("wind_y")),
    observation_names=("x", "y"),
    observation_low=(-FAR, -FAR),
    observation_high=(FAR, FAR),
    start_low=(0.0, 0.0),
    start_high=(0.0, 0.0),
    action_names=("move_x", "move_y"),
    action_low=(-STRIDE, -STRIDE),
    action_high=(STRIDE, STRIDE),
    train_steps=25,
)

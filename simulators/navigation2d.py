"""2D navigation and its non-stationary twin: a windy box with a goal walled off on one side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, as_float32
from simulators.elementary import compiled

BOX = 2.0  # the box is [-BOX, BOX] squared, length
STRIDE = 0.3  # length of a move
WIND = 0.1  # beta: strength of the wind, per length
CALM = -1.5  # x and y of the point where there is no wind, length
START_LOW, START_HIGH = -1.75, -1.25  # the start is uniform between them, length
REWARD_GOAL = 1000.0
REWARD_MOVE = -0.1
REWARD_INVALID = -5.0
SWITCH_STEP = 10  # the first action that acts under the other z in the switch family


@compiled
def _move(state: Array, row: int, action: int, z: int, after: Array) -> tuple[float, bool]:
    """Write where row `row` comes to rest; return its reward and whether it reached the goal.

    Without branches, `&` and `|` for `and` and `or`: random moves are what a processor cannot
    predict, and it would spend most of its time on wrong guesses.
    """
    x, y = state[row, 0], state[row, 1]
    first = z == 1
    stride = STRIDE if first else -STRIDE
    drift = -STRIDE * WIND * np.sqrt((x - CALM) ** 2 + (y - CALM) ** 2)
    east = (1.0 if action == 2 else 0.0) - (1.0 if action == 0 else 0.0)
    north = (1.0 if action == 1 else 0.0) - (1.0 if action == 3 else 0.0)
    new_x = x + stride * east + (drift if first else 0.0)
    new_y = y + stride * north + (0.0 if first else drift)
    inside = (abs(new_x) <= BOX) & (abs(new_y) <= BOX)
    was_goal = (x > 0.0) & (y > 0.0)
    is_goal = (new_x > 0.0) & (new_y > 0.0)
    walled = y if first else x
    new_walled = new_y if first else new_x
    crosses = (is_goal & (walled <= 0.0)) | (was_goal & (new_walled <= 0.0))
    valid = inside & (not crosses)
    reached = valid & is_goal
    after[row, 0] = new_x if valid else x
    after[row, 1] = new_y if valid else y
    reward = REWARD_GOAL if reached else REWARD_MOVE
    return (reward if valid else REWARD_INVALID), reached


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
        z = int(hidden[row, 0])
        reward[row], terminated[row] = _move(state, row, action[row], z, after)


@compiled
def _advance_switch(
    state: Array,
    action: Integers,
    hidden: Array,
    elapsed: Integers,
    after: Array,
    reward: Array,
    terminated: Mask,
) -> None:
    for row in range(state.shape[0]):
        z = int(hidden[row, 0])
        if elapsed[row] >= SWITCH_STEP:
            z = 3 - z
        reward[row], terminated[row] = _move(state, row, action[row], z, after)


NAVIGATION2D = Dynamics(
    name="navigation2d",
    advance=_advance,
    observe=as_float32,
    hidden=(HiddenParameter("z", default=1.0, choices=(1.0, 2.0)),),
    observation_names=("x", "y"),
    observation_low=(-BOX, -BOX),
    observation_high=(BOX, BOX),
    start_low=(START_LOW, START_LOW),
    start_high=(START_HIGH, START_HIGH),
    action_names=("W", "N", "E", "S"),
    train_steps=100,
)

NAVIGATION2D_SWITCH = replace(NAVIGATION2D, name="navigation2d-switch", advance=_advance_switch)

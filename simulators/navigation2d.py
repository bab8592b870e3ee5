"""2D navigation and its non-stationary twin: a windy box with a goal walled off on one side."""

from __future__ import annotations

import numpy as np

from simulators.compiled import compiled
from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, as_float32

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
    """Write where row `row` comes to rest; return its reward and whether it reached the goal."""
    x, y = state[row, 0], state[row, 1]
    distance = np.sqrt((x - CALM) ** 2 + (y - CALM) ** 2)
    drift = -STRIDE * WIND * distance
    stride = STRIDE if z == 1 else -STRIDE
    new_x, new_y = x, y
    if action == 0:
        new_x -= stride
    elif action == 1:
        new_y += stride
    elif action == 2:
        new_x += stride
    else:
        new_y -= stride
    if z == 1:
        new_x += drift
    else:
        new_y += drift
    inside = abs(new_x) <= BOX and abs(new_y) <= BOX
    was_goal = x > 0.0 and y > 0.0
    is_goal = new_x > 0.0 and new_y > 0.0
    walled, new_walled = (y, new_y) if z == 1 else (x, new_x)
    crosses = (is_goal and walled <= 0.0) or (was_goal and new_walled <= 0.0)
    if not inside or crosses:
        after[row, 0], after[row, 1] = x, y
        return REWARD_INVALID, False
    after[row, 0], after[row, 1] = new_x, new_y
    return (REWARD_GOAL, True) if is_goal else (REWARD_MOVE, False)


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

NAVIGATION2D_SWITCH = Dynamics(
    name="navigation2d-switch",
    advance=_advance_switch,
    observe=as_float32,
    hidden=NAVIGATION2D.hidden,
    observation_names=NAVIGATION2D.observation_names,
    observation_low=NAVIGATION2D.observation_low,
    observation_high=NAVIGATION2D.observation_high,
    start_low=NAVIGATION2D.start_low,
    start_high=NAVIGATION2D.start_high,
    action_names=NAVIGATION2D.action_names,
    train_steps=NAVIGATION2D.train_steps,
)

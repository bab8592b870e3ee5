"""Descriptions of each family's world for drawing episodes, JSON-ready."""

from __future__ import annotations

from typing import Any

from sept_offline.family import Hidden
from simulators.acrobot import ACROBOT, LENGTH
from simulators.hiv import HIV
from simulators.navigation2d import BOX, SWITCH_STEP
from simulators.point_robot import GOAL_X, GOAL_Y, STRIDE

Scene = dict[str, Any]
Wall = tuple[float, float, float, float]

SOUTH: Wall = (0.0, 0.0, BOX, 0.0)
"""x, y, x, y: closes the goal's lower side, as mode 1 does."""
WEST: Wall = (0.0, 0.0, 0.0, BOX)
DRUGS = {"none": (False, False), "RTI": (True, False), "PI": (False, True), "both": (True, True)}


def navigation(hidden: Hidden) -> Scene:
    """A point in its box, the goal's quarter, and the wall of the mode."""
    return _box([{"line": SOUTH if int(hidden["z"]) == 1 else WEST}])


def navigation_switch(hidden: Hidden) -> Scene:
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


def acrobot(hidden: Hidden) -> Scene:
    """Two links hanging from a pivot, and the height that the tip must reach."""
    lengths = [LENGTH * (1.0 + hidden[name]) for name in ("l1", "l2")]
    angles = [ACROBOT.observation_names.index(name) for name in ("theta1", "theta2")]
    return {"kind": "links", "lengths": lengths, "angles": angles, "goal": lengths[0]}


def hiv(hidden: Hidden) -> Scene:
    """Six populations over time, and which of two drugs is given at each step."""
    return {
        "kind": "doses",
        "drugs": ("RTI", "PI"),
        "given": [DRUGS[name] for name in HIV.action_names],
    }


def point_robot(hidden: Hidden) -> Scene:
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

"""Action spaces: a finite set or a box, and all that differs between the two.

Nothing else asks which kind a space is. An action is a number below A, or a vector in a box; what a
behaviour logs of it is the probability of every action `[A]`, or the log-density of the one it
took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .box import Box
from .finite import SUM_TOLERANCE, Finite
from .policies import SMALLEST, Categorical, Certain, Policy, TruncatedNormal
from .space import ActionSpace, PropensityFault

__all__ = [
    "SMALLEST",
    "SUM_TOLERANCE",
    "ActionSpace",
    "Box",
    "Categorical",
    "Certain",
    "Finite",
    "Policy",
    "PropensityFault",
    "TruncatedNormal",
    "space_from",
]


def space_from(description: Any) -> ActionSpace:
    """The space that `describe` wrote; a ConfigError names anything invalid."""
    kind = description.get("kind") if isinstance(description, Mapping) else None
    names = description.get("names") if isinstance(description, Mapping) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("An action space needs a list of names.")
    if kind == Finite.kind:
        return Finite(tuple(names))
    if kind != Box.kind:
        raise ConfigError(f"An action space is finite or a box, found {kind!r:.80}.")
    bounds = [description.get("low"), description.get("high")]
    for bound in bounds:
        plain = isinstance(bound, list) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in bound
        )
        if not plain:
            raise ConfigError("The bounds of continuous actions must be lists of numbers.")
    low, high = (tuple(map(float, bound)) for bound in bounds)
    return Box(tuple(names), low, high)

"""Windows: all runs of T consecutive steps of an episode, in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sept_offline.data.records import Steps
from sept_offline.training.inputs import Doubles, Floats, Integers


@dataclass(frozen=True)
class Windows:
    """All windows of T steps, in the order of the step that completes them."""

    observations: Floats
    """[W, T+1, d]"""
    actions: Integers
    """[W, T]"""
    instance: Integers
    """[W]"""
    last: Integers
    """[W], the step that completes the window, an index into the columns of `Steps`"""
    left: Integers
    """[W], how many steps of its episode follow"""
    propensities: Doubles | None = None


def all_windows(steps: Steps, length: int) -> Windows:
    """The windows of `length` steps; those of an episode overlap in all but one."""
    last = np.flatnonzero(steps.time >= length - 1)
    back = np.arange(length) - (length - 1)
    # one row more than steps: the state the window ends in
    rows = steps.row[last][:, None] + np.arange(length + 1) - (length - 1)
    ends = np.flatnonzero(np.append(steps.time[1:] == 0, True))
    return Windows(
        observations=steps.observations[rows],
        actions=steps.actions[last[:, None] + back],
        instance=steps.instance[last],
        last=last,
        left=ends[np.searchsorted(ends, last)] - last,
    )

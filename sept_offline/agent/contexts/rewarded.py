"""A latent that is refined with every step and its reward as context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...actions import Policy
from ..networks import Array
from .base import Tracker
from .refined import RefinedContext, Refining

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class RewardedContext(RefinedContext):
    """As a refined context, with the reward as one more column of what the encoder reads.

    The column is 0 before a step and the reward of the step after it.
    """

    kind = "rewarded"
    needs = frozenset({"reward"})

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that starts from the prior."""
        return _Rewarded(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless probe and encoder fit these spaces and a reward."""
        super().check(observation_dim + 1, action_width)


class _Rewarded(Refining):
    """Shows the encoder each observation with the reward that came with it."""

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """See Tracker."""
        paid = np.float32(0.0 if reward is None else reward)
        probe = self._context.probe
        super().step(np.append(observation, paid).astype(np.float32))
        # the next step sets out without a reward
        self._before[-1] = 0
        if probe is None or self._time >= self._context.probe_steps:
            return None
        return probe.policy(observation, self._time)

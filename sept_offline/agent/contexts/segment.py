"""The latent of a probed segment as context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actions import Policy
from ..encoders import SegmentEncoder
from ..networks import Array, Standardiser
from ..novelty import Novelty
from ..probes import Probe, probe_from_arrays
from ..records import Part, Value
from .base import EMPTY, Tracker, check_sizes
from .encoded import EncodedContext, Encoding

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class SegmentContext(EncodedContext):
    """Probe, encode once, keep the posterior mean: SEPT."""

    kind = "segment"
    stored = (
        Value("probe_steps"),
        Part("probe", probe_from_arrays),
        *EncodedContext.stored,
    )

    def __init__(
        self,
        probe: Probe,
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
        uncertainty_scale: float = 1.0,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty, uncertainty_scale)
        self.probe, self.probe_steps = probe, encoder.steps

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that probes first."""
        return _Probing(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless probe, encoder and decoder fit these spaces and share a latent size."""
        super().check(observation_dim, action_width)
        sizes = (observation_dim, self.probe.action_width)
        check_sizes("probe", sizes, (observation_dim, action_width))


class _Probing(Encoding):
    """The probe acts for T steps."""

    def __init__(self, context: SegmentContext) -> None:
        super().__init__(context, EMPTY)
        self._probe = context.probe

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """The probe while it lasts."""
        if self._complete(observation):
            return None
        return self._probe.policy(observation, self._time)

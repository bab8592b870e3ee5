"""The latent of a probed segment as context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...actions import Policy
from ..encoders import SegmentEncoder
from ..fields import field
from ..networks import Array, Arrays, Standardiser
from ..novelty import Novelty
from ..probes import Probe, probe_from_arrays
from .base import EMPTY, Tracker, check_sizes
from .encoded import EncodedContext, Encoding, encoded_parts

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class SegmentContext(EncodedContext):
    """Probe, encode once, keep the posterior mean: SEPT."""

    kind = "segment"

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

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        return self.probe.to_arrays(f"{prefix}.probe") | super().to_arrays(prefix)

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        own = {"kind": self.kind, "probe_steps": self.probe_steps, "probe": self.probe.describe()}
        return own | super().describe()

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> SegmentContext:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        probe = probe_from_arrays(arrays, field(description, "probe", dict), f"{prefix}.probe")
        return cls(probe, *encoded_parts(arrays, description, prefix))


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

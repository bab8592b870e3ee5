"""The latent of control's own first steps as context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..encoders import SegmentEncoder
from ..networks import Array, Arrays, Standardiser, take
from ..novelty import Novelty
from .base import Tracker
from .encoded import EncodedContext, Encoding, encoded_parts

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class UnprobedContext(EncodedContext):
    """Control acts from the first step, with `start[k]` as the latent at first: `sept-np`.

    `start` is what control reads, standardised: the mean of the latents it was trained with.
    """

    kind = "unprobed"
    probe_steps = 0

    def __init__(
        self,
        start: NDArray[Any],
        encoder: SegmentEncoder,
        latent_scaler: Standardiser,
        novelty: Novelty | None = None,
        uncertainty_scale: float = 1.0,
    ) -> None:
        super().__init__(encoder, latent_scaler, novelty, uncertainty_scale)
        self.start: Array = np.ascontiguousarray(start, dtype=np.float32)
        if self.start.shape != (self.dim,):
            raise AgentError(
                f"The latent has {self.dim} columns, but the initial latent has shape "
                f"{list(self.start.shape)}."
            )

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that records control's first steps."""
        return _Watching(self)

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All parts' weights."""
        return {f"{prefix}.start": self.start} | super().to_arrays(prefix)

    def describe(self) -> dict[str, Any]:
        """All parts' descriptions."""
        return {"kind": self.kind} | super().describe()

    @classmethod
    def from_arrays(cls, arrays: Arrays, description: Any, prefix: str) -> UnprobedContext:
        """What `to_arrays(prefix)` and `describe()` wrote."""
        start = take(arrays, f"{prefix}.start", 1)
        return cls(start, *encoded_parts(arrays, description, prefix))


class _Watching(Encoding):
    """Control acts in all steps; the first T are encoded."""

    def __init__(self, context: UnprobedContext) -> None:
        super().__init__(context, context.start)

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control always acts."""
        self._complete(observation)
        return None

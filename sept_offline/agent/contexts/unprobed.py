"""The latent of control's own first steps as context."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ..encoders import SegmentEncoder
from ..networks import Array, Standardiser, take
from ..novelty import Novelty
from ..records import Weights
from .base import Tracker
from .encoded import EncodedContext, Encoding

if TYPE_CHECKING:
    from ...family import Hidden
    from ..control import Control


class UnprobedContext(EncodedContext):
    """Control acts from the first step, with `start[k]` as the latent at first: `sept-np`.

    `start` is what control reads, standardised: the mean of the latents it was trained with.
    """

    kind = "unprobed"
    stored = (Weights("start", partial(take, ndim=1)), *EncodedContext.stored)

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


class _Watching(Encoding):
    """Control acts in all steps; the first T are encoded."""

    def __init__(self, context: UnprobedContext) -> None:
        super().__init__(context, context.start)

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control always acts."""
        self._complete(observation)
        return None
